"""Opening files after any end: crash recovery, torn tails, and keys that were used before."""
