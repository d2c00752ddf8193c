"""Services of the daemon: configuration, threads, logs, limits and counters."""
