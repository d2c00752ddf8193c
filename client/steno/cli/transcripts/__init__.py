"""Transcripts of any program, found and repaired without a daemon."""
