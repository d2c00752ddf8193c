"""What a session's writer decides: pure functions and state, no file, clock or socket."""
