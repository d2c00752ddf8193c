"""The daemon that owns session files, with one writer a file."""
