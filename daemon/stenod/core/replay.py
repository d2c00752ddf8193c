"""Replay of a file's bytes into a session's numbers, decoding only the lines that set them."""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from steno_protocol.context import Checkpoint, ContextCounters, SystemPrompt, Usage, parse_line
from steno_protocol.lines import count_lines
from steno_protocol.records import MESSAGE_ROLES
from stenod.core.messages import Content, chars_of
from stenod.core.seek_index import SeekIndex

_CONTROL: Final = re.compile(rb'"_(?:usage|checkpoint|system_prompt)"')
_ESCAPED: Final = re.compile(rb"\\u00[567]")
"""A letter or underscore that another program escaped, as it may in the name of a role. A search of
its own: as an alternative of the other it would be ten times as slow."""


Control = Checkpoint | SystemPrompt | Usage
"""What sets a number of the session instead of being said in it."""


def control_of(line: bytes) -> Control | None:
    """The control record that a line is, None if it is something else."""
    if _CONTROL.search(line) is None and _ESCAPED.search(line) is None:
        return None
    found = parse_line(line)
    return found if isinstance(found, Control) else None


@dataclass(slots=True)
class Replay:
    """Counts lines and follows control records, block by block, in constant memory.

    Attributes:
        lines: lines seen, blank and damaged ones too.
        counters: what the lines say of the context.
        milestones: what was so at some of the offsets that were passed.
    """

    lines: int = 0
    counters: ContextCounters = field(default_factory=ContextCounters)
    milestones: SeekIndex = field(default_factory=SeekIndex, compare=False)

    def feed(self, block: bytes, before: int | None = None) -> int | None:
        """Take in a block of whole lines that follows the last one.

        Args:
            before: the id of a checkpoint to stop at.

        Returns:
            The offset of that checkpoint's line, or None when the block was taken in as a whole.
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
        for data in block[start:].split(b"\n"):
            try:
                message = _decode_message(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._count_odd(data)
                continue
            if message.role in MESSAGE_ROLES:
                self.counters.pending_chars += chars_of(message.content)

    def _count_odd(self, data: bytes) -> None:
        """Take in a line that is no message of the usual shape, and no control line."""
        line = parse_line(data)
        if not isinstance(line, Control):
            self.counters.apply(line)


class _Message(msgspec.Struct, gc=False):
    role: str
    content: Content


_decode_message = msgspec.json.Decoder(_Message).decode


def _control_lines(block: bytes) -> list[tuple[int, int]]:
    """Start and end of every line that may be a control record."""
    spans: list[tuple[int, int]] = []
    end = 0
    places = [match.start() for match in _CONTROL.finditer(block)]
    # To see that there is no backslash takes a tenth of the time of the search.
    has_escapes = b"\\" in block
    escaped = [match.start() for match in _ESCAPED.finditer(block)] if has_escapes else []
    for place in sorted(places + escaped) if escaped else places:
        if place < end:
            continue
        start = block.rfind(b"\n", 0, place) + 1
        end = block.find(b"\n", place) + 1 or len(block)
        spans.append((start, end))
    return spans
