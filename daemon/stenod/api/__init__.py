"""Requests: decoding, dispatch to the sessions, replies."""
