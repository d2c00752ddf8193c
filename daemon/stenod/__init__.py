"""The daemon that owns session files: one writer a file, and an ack once the bytes are on disk."""
