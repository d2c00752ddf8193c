"""The feed of a session's events to its subscribers."""
