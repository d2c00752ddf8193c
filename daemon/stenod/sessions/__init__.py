"""Sessions as a whole: which are there, which are open, and what is done with them."""
