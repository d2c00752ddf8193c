"""The daemon's sockets."""
