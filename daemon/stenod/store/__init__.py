"""Files on disk: system calls, a session's log and the root's lock."""
