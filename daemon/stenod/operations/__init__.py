"""The commands for a session as a whole, such as a fork or a rename: one module a subject."""
