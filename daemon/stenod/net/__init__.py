"""Sockets: bytes of clients in, messages to them out."""
