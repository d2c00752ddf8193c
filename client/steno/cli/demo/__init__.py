"""The demo: its processes, its course and its proofs."""
