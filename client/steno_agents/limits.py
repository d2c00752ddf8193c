"""Bounds of reading transcripts of other programs, each with its unit and its reason."""

from typing import Final

TITLE_CHARS: Final = 80
"""Characters of a first prompt that become the title."""

PAST_FACTOR_MAX: Final = 8
"""Records of all past histories together, as a multiple of the transcript's records: each branch is
written whole, and a file of 10 000 short branches would otherwise fill the disk."""

PAST_RECORDS: Final = 10_000
"""Records of all past histories together that any transcript may have: a few megabytes."""

PROMPTS_KEPT_BYTES: Final = 80_000
"""Bytes of the prompts that Codex itself repeats before a summary: 20 000 tokens of four bytes."""

QUEUED_MAX: Final = 1000
"""Prompts that wait at once in a queue of Claude Code; people type a few."""

CALL_ID_CHARS_MAX: Final = 64
"""Characters of the id of a call that every service takes; OpenAI refuses more."""

TOOL_NAME_CHARS_MAX: Final = 64
"""Characters of the name of a tool that every service takes."""

FORKS_MAX: Final = 32
"""Forks of forks that are followed to the beginning of a conversation; people make a few."""
