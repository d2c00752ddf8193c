"""Requests: decoded, dispatched to the sessions, answered."""
