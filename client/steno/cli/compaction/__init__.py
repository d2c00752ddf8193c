"""The worker of `steno compact`: what is due, and what is said of it."""
