"""The examinations of `steno doctor`, one a subject."""
