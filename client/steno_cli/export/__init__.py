"""Sessions as folders and files of other programs, for `steno export`."""
