"""What the lines of `context.jsonl` mean: the pure replayer that daemon and client share.

`parse_line` says what one line is, `ContextCounters` keeps the numbers (the daemon's share), and
`ContextState` adds the history (the client's). The rules are those of kimi-cli 1.52: an `_usage`
line sets the token count, a `_checkpoint` line sets the next id, a `_system_prompt` line sets the
prompt, the four message roles make the history, and anything else is skipped and counted.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, Self

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_object
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.records import MESSAGE_ROLES, RESERVED_KEYS, text_chars

CHARS_PER_TOKEN: Final = 4
"""kimi-cli's estimate for text that no model has counted yet."""

Message = dict[str, Any]
"""One message as it is sent to a model: the record without steno's own keys."""

_decode = msgspec.json.Decoder().decode


class SystemPrompt(msgspec.Struct, frozen=True, gc=False):
    """A line that sets the system prompt."""

    content: str


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """A line that marks a checkpoint."""

    id: int


class Usage(msgspec.Struct, frozen=True, gc=False):
    """A line with the token count of the context."""

    token_count: int


class MessageLine(msgspec.Struct, frozen=True, gc=False):
    """A line that holds a message; `text_chars` are the characters of its text parts."""

    text_chars: int
    record: dict[str, Any] = {}


class Blank(msgspec.Struct, frozen=True, gc=False):
    """A line of whitespace: it has a position and no meaning."""


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """A line that readers skip and count, and why."""

    reason: str


Line = SystemPrompt | Checkpoint | Usage | MessageLine | Blank | Damaged


def parse_line(data: bytes) -> Line:
    """What one line of `context.jsonl` means. Never raises: what it cannot read is `Damaged`."""
    try:
        record = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Damaged(f"not JSON: {error}") if data.strip() else Blank()
    if not is_object(record):
        return Damaged("not an object")
    return _meaning(record)


def parse_tolerantly(data: bytes) -> Line:
    """As `parse_line`, of a line as kimi-cli reads it: see `decode_tolerantly`.

    NULs are what a crash leaves, in a string, too: a line that has them is `Damaged` here.
    """
    line = parse_line(data)
    if not isinstance(line, Damaged) or b"\0" in data:
        return line
    record = decode_tolerantly(data)
    return line if record is None else _meaning(record)


def decode_tolerantly(data: bytes) -> dict[str, Any] | None:
    """The object in a line as kimi-cli reads it, None when there is none.

    Bytes that are no UTF-8 are replaced, and control characters in strings and NaN pass.
    """
    try:
        value: object = json.loads(data.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def _meaning(record: dict[str, Any]) -> Line:
    role = record.get("role")
    if not isinstance(role, str):
        return Damaged("no role")
    # Nearly every line is a message.
    if role in MESSAGE_ROLES and "content" in record:
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
    # A larger number of another program would not fit into a reply or a further sum.
    return type(value) is int and 0 <= value <= limits.COUNT_MAX


class ContextCounters(msgspec.Struct):
    """The numbers of a session's context, kept line by line in constant memory.

    Attributes:
        token_count: the last `_usage`, 0 before the first.
        pending_chars: characters of text in the messages after it.
        n_checkpoints: the id that the next checkpoint gets.
        has_system_prompt: whether a `_system_prompt` line was seen.
    """

    token_count: int = 0
    pending_chars: int = 0
    n_checkpoints: int = 0
    has_system_prompt: bool = False

    def apply_messages(self, text_chars: int) -> None:
        """Take messages into account, of which only the characters of their text count."""
        self.pending_chars += text_chars

    def apply(self, line: Line) -> None:
        """Take one more line into account."""
        match line:
            case MessageLine():
                self.apply_messages(line.text_chars)
            case Usage():
                self.token_count = line.token_count
                self.pending_chars = 0
            case Checkpoint():
                # Ids in a clean file only rise; after kimi-cli's races the largest one counts, so
                # that a new id is new.
                self.n_checkpoints = max(self.n_checkpoints, line.id + 1)
            case SystemPrompt():
                self.has_system_prompt = True
            case Blank() | Damaged():
                pass

    @property
    def token_count_with_pending(self) -> int:
        """The token count plus an estimate of the messages that no model has counted yet."""
        return self.token_count + self.pending_chars // CHARS_PER_TOKEN

    def become(self, other: Self) -> None:
        """Take the numbers of others; cheaper than a copy, at every commit."""
        self.token_count = other.token_count
        self.pending_chars = other.pending_chars
        self.n_checkpoints = other.n_checkpoints
        self.has_system_prompt = other.has_system_prompt

    def copy(self) -> Self:
        """An independent copy, for a state that may have to be taken back."""
        return type(self)(
            self.token_count, self.pending_chars, self.n_checkpoints, self.has_system_prompt
        )


class UsageEntry(msgspec.Struct, frozen=True):
    """One past token count and the cursor of its line."""

    cursor: Position
    token_count: int


class ContextState:
    """A session's context in memory, built from its lines and cut by its rewrites.

    It is fed whole blocks of lines in order (`apply_block`) and follows a rewrite by `reset`, which
    keeps what the rewrite kept. `head` is the position up to which it has seen everything.

    Args:
        generation: the generation whose lines it is fed first.
        checkpoint_floor: ids below it were assigned before these lines.
    """

    def __init__(self, generation: int = 0, checkpoint_floor: int = 0) -> None:
        self.head = Position(generation, 0)
        self.damaged = 0
        self.system_prompt: str | None = None
        self.history: list[Message] = []
        self._history_lines: list[int] = []
        self._usages: list[tuple[int, int]] = []
        # With the next id after each, so that no search for the largest is needed.
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
        """The id that the next checkpoint gets."""
        return max(self._next_told, self._checkpoint_floor)

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
        """True when nothing was ever applied."""
        return self.head.line == 0

    def apply_block(self, block: bytes) -> None:
        """Take in the block of whole lines that follows `head`."""
        self.apply_lines(split_lines(block))

    def apply_lines(self, lines: Iterable[bytes]) -> None:
        """Take in single lines that follow `head`."""
        generation, number = self.head
        for data in lines:
            self._apply(number, parse_line(data))
            number += 1
        self.head = Position(generation, number)

    def reset(self, generation: int, kept: int, checkpoint_floor: int = 0) -> None:
        """Follow a rewrite: the first `kept` lines live on in `generation`, the rest is gone.

        Args:
            checkpoint_floor: ids below it were assigned before that generation's lines contain
                any; it takes the place of the one before.
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
        """Forget the lines behind `head`, of an `apply_lines` that an interrupt ended half-way."""
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
                following = max(self._next_told, line.id + 1)
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
    def _next_told(self) -> int:
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
