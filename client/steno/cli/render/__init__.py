"""Text for a terminal and documents for programs."""
