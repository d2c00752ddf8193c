"""Events for the followers of a session."""
