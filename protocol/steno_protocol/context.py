"""The meaning of the lines of `context.jsonl`, for daemon and client.

`parse_line` parses one line, `ContextCounters` keeps the numbers for the daemon, and `ContextState`
keeps the history for the client. The rules are those of kimi-cli 1.52: a `_usage` line sets the
token count, a `_checkpoint` line the next id and a `_system_prompt` line the prompt; the four
message roles form the history; any other line is skipped and counted.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, Self

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_object
from steno_protocol.blocks import split_lines
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS, is_message_role, text_chars

CHARS_PER_TOKEN: Final = 4
"""kimi-cli's estimate for text that no model has counted yet."""

Message = dict[str, Any]
"""One message for a model: the record without steno's own keys."""

_decode = msgspec.json.Decoder().decode


class SystemPrompt(msgspec.Struct, frozen=True, gc=False):
    """A line that sets the system prompt."""

    content: str


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """A line that sets a checkpoint."""

    id: int


class Usage(msgspec.Struct, frozen=True, gc=False):
    """A line with the token count of the context."""

    token_count: int


class MessageLine(msgspec.Struct, frozen=True, gc=False):
    """A line with a message; `text_chars` counts the characters of its text parts."""

    text_chars: int
    record: dict[str, Any] = {}


class Blank(msgspec.Struct, frozen=True, gc=False):
    """A line of whitespace, which has a position and no meaning."""


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """A line that readers skip and count, and the reason."""

    reason: str


Line = SystemPrompt | Checkpoint | Usage | MessageLine | Blank | Damaged


def parse_line(data: bytes) -> Line:
    """Parse one line of `context.jsonl`; an unreadable line is `Damaged`, not an error."""
    try:
        record = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Damaged(f"not JSON: {error}") if data.strip() else Blank()
    if not is_object(record):
        return Damaged("not an object")
    return line_of(record)


def parse_tolerantly(data: bytes) -> Line:
    """Parse one line as tolerantly as kimi-cli, see `decode_tolerantly`.

    A line with NULs is `Damaged`, even inside a string: a crash leaves them.
    """
    line = parse_line(data)
    if not isinstance(line, Damaged) or b"\0" in data:
        return line
    record = decode_tolerantly(data)
    return line if record is None else line_of(record)


def decode_tolerantly(data: bytes) -> dict[str, Any] | None:
    """Decode the object of a line as tolerantly as kimi-cli; None if there is none.

    Bytes that are not UTF-8 are replaced; control characters in strings and NaN are accepted.
    """
    try:
        value: object = json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def is_message(record: dict[str, Any]) -> bool:
    """Whether a decoded line of `context.jsonl` is a message."""
    return "content" in record and is_message_role(record.get("role"))


def line_of(record: dict[str, Any]) -> Line:
    """Return the meaning of a decoded line of `context.jsonl`."""
    role = record.get("role")
    if not isinstance(role, str):
        return Damaged("no role")
    # Nearly every line is a message; a call of `is_message` would cost each append of a follower.
    if "content" in record and is_message_role(role):
        return MessageLine(text_chars(record["content"]), record)
    match role:
        case "_system_prompt" if isinstance(record.get("content"), str):
            return SystemPrompt(record["content"])
        case "_checkpoint" if _is_count(record.get("id")):
            return Checkpoint(record["id"])
        case "_usage" if _is_count(record.get("token_count")):
            return Usage(record["token_count"])
        case _:
            return Damaged(f"a record of role {role[:40]!r} that is unknown or lacks its field")


def _is_count(value: object) -> bool:
    # A larger number of another program would overflow a reply or a sum.
    return type(value) is int and 0 <= value <= limits.COUNT_MAX


class ContextCounters(msgspec.Struct):
    """The numbers of a session's context, updated line by line in constant memory.

    Attributes:
        token_count: the last `_usage`, 0 before the first.
        pending_chars: characters of text in the messages after it.
        n_checkpoints: the id of the next checkpoint.
        has_system_prompt: whether a `_system_prompt` line was seen.
    """

    token_count: int = 0
    pending_chars: int = 0
    n_checkpoints: int = 0
    has_system_prompt: bool = False

    def apply_messages(self, text_chars: int) -> None:
        """Count messages by the characters of their text."""
        self.pending_chars += text_chars

    def apply(self, line: Line) -> None:
        """Count one line."""
        match line:
            case MessageLine():
                self.apply_messages(line.text_chars)
            case Usage():
                self.token_count = line.token_count
                self.pending_chars = 0
            case Checkpoint():
                # Ids rise in a sound file. After kimi-cli's races they may not, and the largest
                # one decides, so that the next id is unused.
                self.n_checkpoints = max(self.n_checkpoints, line.id + 1)
            case SystemPrompt():
                self.has_system_prompt = True
            case Blank() | Damaged():
                pass

    @property
    def token_count_with_pending(self) -> int:
        """The token count plus an estimate for the messages that no model has counted yet."""
        return self.token_count + self.pending_chars // CHARS_PER_TOKEN

    def become(self, other: Self) -> None:
        """Take over another's numbers; at every commit this is cheaper than a copy."""
        self.token_count = other.token_count
        self.pending_chars = other.pending_chars
        self.n_checkpoints = other.n_checkpoints
        self.has_system_prompt = other.has_system_prompt

    def copy(self) -> Self:
        """Return an independent copy, for a state that may be rolled back."""
        return type(self)(
            self.token_count, self.pending_chars, self.n_checkpoints, self.has_system_prompt
        )


class UsageEntry(msgspec.Struct, frozen=True):
    """One past token count and the cursor of its line.

    Attributes:
        cursor: the position of its line.
        token_count: the number of tokens.
    """

    cursor: Position
    token_count: int


class ContextState:
    """A session's context in memory, built from its lines and cut by its rewrites.

    The caller applies blocks of lines in order (`apply_block`) and each rewrite with `reset`. All
    lines up to `head` are applied.

    Args:
        generation: the generation of the first lines.
        checkpoint_floor: ids below it were assigned before these lines.

    Attributes:
        head: the end of the applied lines.
        damaged: the number of damaged lines that were skipped.
        system_prompt: the system prompt, None when there is none.
        history: the messages in order, without steno's own keys.
    """

    def __init__(self, generation: int = 0, checkpoint_floor: int = 0) -> None:
        self.head: Position = Position(generation, 0)
        self.damaged: int = 0
        self.system_prompt: str | None = None
        self.history: list[Message] = []
        self._history_lines: list[int] = []
        self._usages: list[tuple[int, int]] = []
        # Each entry has the next id after it, which saves searching for the largest.
        self._checkpoints: list[tuple[int, int, int]] = []
        self._prompts: list[tuple[int, str]] = []
        self._damaged_lines: list[int] = []
        self._pending_chars = 0
        self._checkpoint_floor = checkpoint_floor

    @property
    def token_count(self) -> int:
        """The last token count, 0 before the first."""
        return self._usages[-1][1] if self._usages else 0

    @property
    def token_count_with_pending(self) -> int:
        """The token count plus an estimate of the messages that no model has counted yet."""
        return self.token_count + self._pending_chars // CHARS_PER_TOKEN

    @property
    def n_checkpoints(self) -> int:
        """The id of the next checkpoint."""
        return max(self._next_id, self._checkpoint_floor)

    @property
    def usage_history(self) -> list[UsageEntry]:
        """Every token count of this generation, oldest first."""
        return [
            UsageEntry(Position(self.head.generation, line), count) for line, count in self._usages
        ]

    @property
    def checkpoints(self) -> list[tuple[int, Position]]:
        """Id and cursor of every checkpoint of this generation, oldest first."""
        return [
            (number, Position(self.head.generation, line)) for line, number, _ in self._checkpoints
        ]

    @property
    def is_empty(self) -> bool:
        """Whether no line was applied yet."""
        return self.head.line == 0

    def apply_block(self, block: bytes) -> None:
        """Apply the block of whole lines that follows `head`."""
        self.apply_lines(split_lines(block))

    def apply_lines(self, lines: Iterable[bytes]) -> None:
        """Apply single lines that follow `head`."""
        generation, number = self.head
        for data in lines:
            self._apply(number, parse_line(data))
            number += 1
        self.head = Position(generation, number)

    def reset(self, generation: int, kept: int, checkpoint_floor: int = 0) -> None:
        """Apply a rewrite.

        Args:
            generation: the new generation.
            kept: the number of first lines that the new generation keeps.
            checkpoint_floor: ids below it were assigned before the new generation's lines.
        """
        keep = bisect_left(self._history_lines, kept)
        del self.history[keep:], self._history_lines[keep:]
        for entries in (self._usages, self._checkpoints, self._prompts):
            del entries[bisect_left(entries, kept, key=_line_of) :]
        del self._damaged_lines[bisect_left(self._damaged_lines, kept) :]
        self.damaged = len(self._damaged_lines)
        self.system_prompt = self._prompts[-1][1] if self._prompts else None
        self._pending_chars = self._count_pending()
        self._checkpoint_floor = checkpoint_floor
        self.head = Position(generation, min(kept, self.head.line))

    def roll_back(self) -> None:
        """Drop the lines behind `head` that an interrupted `apply_lines` left."""
        self.reset(*self.head, self._checkpoint_floor)

    def _apply(self, number: int, line: Line) -> None:
        match line:
            case MessageLine():
                self.history.append(_public(line.record))
                self._history_lines.append(number)
                self._pending_chars += line.text_chars
            case Usage():
                self._usages.append((number, line.token_count))
                self._pending_chars = 0
            case Checkpoint():
                following = max(self._next_id, line.id + 1)
                self._checkpoints.append((number, line.id, following))
            case SystemPrompt():
                self._prompts.append((number, line.content))
                self.system_prompt = line.content
            case Damaged():
                self._damaged_lines.append(number)
                self.damaged += 1
            case Blank():
                pass

    @property
    def _next_id(self) -> int:
        return self._checkpoints[-1][2] if self._checkpoints else 0

    def _count_pending(self) -> int:
        last_usage = self._usages[-1][0] if self._usages else -1
        first = bisect_left(self._history_lines, last_usage)
        return sum(text_chars(message["content"]) for message in self.history[first:])


def _line_of(entry: tuple[int, Any] | tuple[int, Any, Any]) -> int:
    return entry[0]


def _public(record: dict[str, Any]) -> Message:
    for key in RESERVED_KEYS:
        record.pop(key, None)
    return record
