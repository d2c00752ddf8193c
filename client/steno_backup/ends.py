"""The ends of whole batches, and of settled timelines."""

from collections.abc import Callable

import msgspec

from steno_protocol import timeline_entries
from steno_protocol.blocks import seek_last, split_lines
from steno_protocol.records import stamp_of
from steno_protocol.timeline_entries import TimelineEntry

_entry = msgspec.json.Decoder(TimelineEntry)


class _View:
    """The first bytes of a file that may grow."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self.size: int = size
        self._read = read

    def read(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`."""
        return self._read(size, offset)


def whole_end(read: Callable[[int, int], bytes], size: int) -> int:
    """Return the end of the last whole batch of a file.

    Args:
        read: reads a number of bytes from an offset.
        size: the bytes of the file.
    """
    view = _View(read, size)
    begin = seek_last(view, size, 0)
    if begin == 0:
        return 0
    last = seek_last(view, begin, 1)
    stamp = stamp_of(read(begin - last, last))
    if stamp is None or stamp.index + 1 == stamp.size:
        return begin
    # The rest of the batch is being written.
    return seek_last(view, begin, stamp.index + 1)


class Timeline(msgspec.Struct, frozen=True):
    """The lines of a timeline without a rewrite that has not taken place yet.

    Attributes:
        data: its bytes.
        incarnation: the session's incarnation, empty if no line has one.
        intents: the bytes up to the end of the line of each rewrite, by its generation.
    """

    data: bytes = b""
    incarnation: str = ""
    intents: dict[int, int] = {}


def settled(data: bytes, present: int) -> Timeline:
    """Cut a timeline before a rewrite to a generation later than the present one.

    A rewrite that was voided is followed by its `voided` line; both stay.
    """
    size, end, incarnation = 0, 0, ""
    intents: dict[int, int] = {}
    pending: int | None = None
    for line in split_lines(data):
        if not line.endswith(b"\n"):
            break
        entry = _decoded(line)
        if entry is not None:
            found = entry.details.get("incarnation")
            incarnation = incarnation or (found if isinstance(found, str) else "")
            if entry.kind in timeline_entries.REWRITES and entry.generation > present:
                pending = pending if pending is not None else size
            elif entry.kind == timeline_entries.VOIDED and entry.generation > present:
                pending = None
        size += len(line)
        if entry is not None and entry.kind in timeline_entries.REWRITES:
            intents[entry.generation] = size
        if pending is None:
            end = size
    kept = {generation: at for generation, at in intents.items() if at <= end}
    return Timeline(data[:end], incarnation, kept)


def _decoded(line: bytes) -> TimelineEntry | None:
    try:
        return _entry.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
