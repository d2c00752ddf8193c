"""What the daemon runs on: configuration, threads, logs, limits and counters."""
