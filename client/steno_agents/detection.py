"""The program that wrote a transcript, from its records."""

from collections.abc import Callable
from typing import Any, Final

from steno_agents.claude_code import ClaudeCode
from steno_agents.codex import Codex
from steno_agents.copilot_cli import CopilotCli
from steno_agents.gemini_cli import GeminiCli
from steno_agents.kimi_code import KimiCode
from steno_agents.opencode import Opencode
from steno_agents.pi import Pi
from steno_agents.qwen_code import QwenCode
from steno_agents.transcript import ForeignTranscript, object_field, text_field
from steno_protocol._json import is_array, is_object

FORMATS: Final[tuple[type[ForeignTranscript], ...]] = (
    ClaudeCode,
    Codex,
    CopilotCli,
    GeminiCli,
    KimiCode,
    Opencode,
    Pi,
    QwenCode,
)
"""The formats that can be converted."""

BESIDE: Final = frozenset(
    {"history.jsonl", *(each.index.file for each in FORMATS if each.index is not None)}
)
"""Names of files that these programs keep beside their transcripts."""

_Record = dict[str, Any]


class Detector:
    """Finds the format of one file, record by record.

    Attributes:
        format: the format, once a record decides it.
        guess: the name of the most likely program, once a record suggests one.
    """

    def __init__(self) -> None:
        self.format: type[ForeignTranscript] | None = None
        self.guess: str | None = None
        self._hinted: type[ForeignTranscript] | None = None

    def feed(self, record: _Record) -> bool:
        """Look at the next record; returns whether the format is decided."""
        self.format = next((each for each in FORMATS if each.recognises(record)), None)
        if self.format is None:
            hinting = (each for each in FORMATS if each.hints(record))
            self._hinted = self._hinted or next(hinting, None)
            self.guess = self.guess or guessed(record)
        return self.format is not None

    def finish(self) -> type[ForeignTranscript] | None:
        """Return the format; records beside a conversation decide if nothing else does."""
        # What looks like a message of another program is no transcript of the hinted one.
        if self.format is None and self.guess is None:
            self.format = self._hinted
        return self.format


def is_record(record: _Record) -> bool:
    """Whether an object is a record of one of the programs."""
    return any(each.is_record(record) for each in FORMATS)


def guessed(record: _Record) -> str | None:
    """Return the program that most likely wrote a record which no reader understands.

    >>> guessed({"type": "user", "uuid": "1", "message": {"role": "user", "parts": []}})
    'Qwen Code in another form'
    """
    return next((name for name, is_like in _GUESSES if is_like(record)), None)


def _has_parts(record: _Record) -> bool:
    return "uuid" in record and is_array(object_field(record, "message").get("parts"))


def _is_gemini(record: _Record) -> bool:
    return "projectHash" in record or record.get("type") == "gemini"


def _is_kimi_code(record: _Record) -> bool:
    return (text_field(record, "type") or "").startswith("context.")


def _is_codebuddy(record: _Record) -> bool:
    kinds = {"session_start", "message", "function_call", "function_call_result", "reasoning"}
    return "sessionId" in record and record.get("type") in kinds


def _is_pi(record: _Record) -> bool:
    is_head = record.get("type") == "session" and "cwd" in record
    return is_head or (record.get("type") == "message" and "parentId" in record)


def _is_copilot(record: _Record) -> bool:
    return "." in (text_field(record, "type") or "") and is_object(record.get("data"))


def _is_opencode(record: _Record) -> bool:
    return "sessionID" in record


def _is_like_claude(record: _Record) -> bool:
    is_message = record.get("type") in {"user", "assistant"} and is_object(record.get("message"))
    return is_message and ("uuid" in record or "sessionId" in record)


_GUESSES: Final[tuple[tuple[str, Callable[[_Record], bool]], ...]] = (
    ("Qwen Code in another form", _has_parts),
    ("Gemini CLI in another form", _is_gemini),
    ("Kimi Code in another form", _is_kimi_code),
    ("CodeBuddy", _is_codebuddy),
    ("pi in another form", _is_pi),
    ("GitHub Copilot CLI in another form", _is_copilot),
    ("opencode in another form", _is_opencode),
    ("Claude Code in another form", _is_like_claude),
)
"""Programs with files that no reader understands, and how their records look."""
