"""Sessions as a whole: folders, open sessions, queries, and the steps of moves and forks."""
