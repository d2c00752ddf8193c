"""Blocking files: the disk as system calls, the session folder on it, its rewrites and its lock."""
