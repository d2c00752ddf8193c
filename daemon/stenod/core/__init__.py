"""Decisions of a session's writer, without files, clocks or sockets."""
