"""Damage in sessions and in transcripts of any program: found by `verify`, and repaired."""
