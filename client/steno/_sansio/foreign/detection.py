"""The program that wrote a transcript, from its first records."""

from collections.abc import Iterable
from typing import Any, Final

from steno._sansio.foreign.claude_code import ClaudeCode
from steno._sansio.foreign.codex import Codex
from steno._sansio.foreign.transcript import ForeignTranscript

FORMATS: Final[tuple[type[ForeignTranscript], ...]] = (ClaudeCode, Codex)
"""The formats that can be converted."""


def detect(records: Iterable[dict[str, Any]]) -> type[ForeignTranscript] | None:
    """Return the format of a file, None if no record shows it.

    Args:
        records: its first records; the first that a format recognises decides.
    """
    for record in records:
        for each in FORMATS:
            if each.recognises(record):
                return each
    return None
