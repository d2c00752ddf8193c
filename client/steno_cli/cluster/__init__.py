"""The parts of `steno cluster`: its report, the servers' configuration, and the trial."""
