"""The operating system: files, folders, forks and threads."""
