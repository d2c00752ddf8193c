"""The blocking client: the same verbs, shared by threads."""
