"""A connection to the daemon: found, started if it is not there, greeted."""
