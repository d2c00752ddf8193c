"""Replay of a file's lines into a session's numbers."""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from steno_protocol.blocks import count_lines, split_lines
from steno_protocol.context import Checkpoint, ContextCounters, SystemPrompt, Usage, parse_line
from steno_protocol.records import is_message_role
from stenod.core.seek_index import SeekIndex

_CONTROL: Final = re.compile(rb'"_(?:usage|checkpoint|system_prompt)"')
_ESCAPED: Final = re.compile(rb"\\u00[567]")
"""A letter or underscore that another program escaped, perhaps in a role's name. One pattern for
both searches would be ten times as slow."""


Control = Checkpoint | SystemPrompt | Usage
"""The control records, which set a number of the session."""


def control_of(line: bytes) -> Control | None:
    """Parse a control record; None for any other line."""
    if _CONTROL.search(line) is None and _ESCAPED.search(line) is None:
        return None
    found = parse_line(line)
    return found if isinstance(found, Control) else None


@dataclass(slots=True)
class Replay:
    """Counts lines and follows control records, block by block, in constant memory.

    Attributes:
        lines: lines so far, blank and damaged ones included.
        counters: the numbers of the context.
        seek_index: seek points of the replayed lines.
    """

    lines: int = 0
    counters: ContextCounters = field(default_factory=ContextCounters)
    seek_index: SeekIndex = field(default_factory=SeekIndex, compare=False)

    def feed(self, block: bytes, before: int | None = None) -> int | None:
        """Replay the next block of whole lines.

        Args:
            block: the lines.
            before: the id of a checkpoint to stop at.

        Returns:
            The offset of that checkpoint's line, or None if the whole block was replayed.
        """
        uncounted, stop = 0, None
        for start, end in _control_lines(block):
            line = parse_line(block[start:end])
            match line:
                case Checkpoint(id=number) if number == before:
                    stop = start
                    break
                case Usage():
                    self.counters.apply(line)
                    uncounted = end
                case Checkpoint() | SystemPrompt():
                    self.counters.apply(line)
                case _:
                    pass
        taken = block[:stop]
        self.lines += count_lines(taken)
        self._count_messages(taken, uncounted)
        return stop

    def _count_messages(self, block: bytes, start: int) -> None:
        chars = 0
        for data in split_lines(block[start:]):
            try:
                message = _decode_message(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._count_odd(data)
                continue
            if not is_message_role(message.role):
                continue
            # As `records.text_chars`; a call per message would take a third of the time.
            content = message.content
            if isinstance(content, str):
                chars += len(content)
            elif content:
                for part in content:
                    if part.text and part.type == "text":
                        chars += len(part.text)
        self.counters.pending_chars += chars

    def _count_odd(self, data: bytes) -> None:
        """Count a line that is neither a message of the usual shape nor a control record."""
        line = parse_line(data)
        if not isinstance(line, Control):
            self.counters.apply(line)


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None


class _Message(msgspec.Struct, gc=False):
    """The usual shape of a message, decoded at a third of the cost of `parse_line`."""

    role: str
    content: str | list[_Part] | None


_decode_message = msgspec.json.Decoder(_Message).decode


def _control_lines(block: bytes) -> list[tuple[int, int]]:
    """Return start and end of every line that may be a control record."""
    spans: list[tuple[int, int]] = []
    end = 0
    hits = [match.start() for match in _CONTROL.finditer(block)]
    # Checking for a backslash takes a tenth of the time of the search.
    has_escapes = b"\\" in block
    escaped = [match.start() for match in _ESCAPED.finditer(block)] if has_escapes else []
    for hit in sorted(hits + escaped) if escaped else hits:
        if hit < end:
            continue
        start = block.rfind(b"\n", 0, hit) + 1
        end = block.find(b"\n", hit) + 1 or len(block)
        spans.append((start, end))
    return spans
