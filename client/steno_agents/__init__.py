"""Transcripts of other agents, converted to the messages of a context; pure.

transcript    the interface of a reader of one format
claude_code   the files of Claude Code's project folders
codex         the rollouts of Codex
detection     the format of a file, from its records
tree          branches of records that name their parents
prompts       the words in a prompt that a person typed
surrogates    halves of surrogate pairs in their lines
limits        bounds
"""
