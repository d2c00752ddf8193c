"""The compaction of `steno compact`, once or as a worker."""
