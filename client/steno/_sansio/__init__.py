"""Requests, replies and events as values: no socket, clock or file."""
