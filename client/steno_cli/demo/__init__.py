"""What `steno demo` and the trial of a cluster share: agents, and the proof of what they wrote."""
