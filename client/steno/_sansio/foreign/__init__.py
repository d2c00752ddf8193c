"""Transcripts of other agents, converted to the messages of a context; pure.

transcript    what a converter of any format does
claude_code   the files of Claude Code's project folders
codex         the rollouts of Codex
detection     the format of a file, from its first records
surrogates    halves of surrogate pairs in their lines
"""
