"""The writer of one file: group commits, rewrites, and the recovery from failed ones."""
