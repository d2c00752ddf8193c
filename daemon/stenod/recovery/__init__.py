"""Opening of files: crash recovery, torn tails and key lookup."""
