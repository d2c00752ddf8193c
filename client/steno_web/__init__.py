"""A web server on this machine: where it listens, and which requests it accepts."""
