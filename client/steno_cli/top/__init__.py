"""The live screen of `steno top`: reports, rates between two of them, and their picture."""
