"""Sockets: messages from clients and to them."""
