"""Followers of a session: the backlog first, then every commit."""
