"""Recovery of a session's files when they are opened."""
