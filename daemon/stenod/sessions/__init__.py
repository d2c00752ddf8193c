"""Sessions as a whole: folders, open sessions, queries and operations."""
