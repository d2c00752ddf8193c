"""Schemas of the lines of each file type."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from steno_protocol import limits, paths
from steno_protocol.context import Blank, Checkpoint, Damaged, is_message, line_of, parse_line
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.records import Stamp, stamp_of
from steno_protocol.timeline_entries import TimelineEntry
from steno_protocol.wire import (
    DamagedLine,
    Metadata,
    WireRecord,
    parse_wire_line,
    wire_line_of,
)

_decode_entry = msgspec.json.Decoder(TimelineEntry).decode


class Spot(NamedTuple):
    """The place of a line: its offset, its size with the newline, its number counted from 1."""

    offset: int
    size: int
    line: int


class Remark(NamedTuple):
    """A remark about whole lines, for a finding."""

    kind: str
    what: str
    spot: Spot


class LineSchema(ABC):
    """The rules for the lines of one file type.

    Attributes:
        objects_only: a line with JSON that is not an object is damage.
    """

    objects_only = True

    @abstractmethod
    def is_record(self, data: bytes) -> bool:
        """Whether an object can be a record of this file, whatever its place."""

    @abstractmethod
    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Check the next line, which is an object."""

    def gap(self) -> Sequence[Remark]:
        """Note a line that is not a record."""
        return ()

    def finish(self, end: int) -> Sequence[Remark]:
        """Note the end of the file after `end` bytes."""
        del end
        return ()


_COMPACTION_SIZE: Final = 2
"""Records in the batch that a compaction begins with: its checkpoint and the summary."""


class _Batch(msgspec.Struct, frozen=True):
    first: Spot
    next: Stamp


class Stamps:
    """The stamps of consecutive lines: detects torn batches and duplicate commands.

    A batch may lack its head, which a compaction has dropped. The last `CHECKED_KEYS_MAX` keys are
    remembered.
    """

    def __init__(self) -> None:
        self._batch: _Batch | None = None
        self._seen: dict[int, int] = {}

    def take(self, stamp: Stamp | None, spot: Spot) -> Sequence[Remark]:
        """Check the stamp of the next line, None for a line without a stamp."""
        batch, self._batch = self._batch, None
        found: tuple[Remark, ...] = ()
        if batch is not None and stamp != batch.next:
            found = (self._torn(batch, spot.offset),)
            batch = None
        if stamp is None:
            return found
        is_last = stamp.index + 1 == stamp.size
        if not is_last:
            first = spot if batch is None else batch.first
            self._batch = _Batch(first, Stamp(stamp.key, stamp.index + 1, stamp.size))
        elif batch is not None or stamp.size == 1:
            return (*found, *self._complete(stamp, spot))
        return found

    def is_compaction(self, stamp: Stamp) -> bool:
        """Whether a token count belongs to a compaction, which begins with a batch of two."""
        return stamp.size == 1 and self._seen.get(hash(stamp.key)) == _COMPACTION_SIZE

    def finish(self, end: int) -> Sequence[Remark]:
        """Report a batch that is torn by the end of the file."""
        batch, self._batch = self._batch, None
        return () if batch is None else (self._torn(batch, end),)

    def _torn(self, batch: _Batch, end: int) -> Remark:
        key, index, size = batch.next.key, batch.next.index, batch.next.size
        first = batch.first
        what = f"the batch {key} has {size} records, and number {index + 1} is missing"
        return Remark("torn_batch", what, first._replace(size=end - first.offset))

    def _complete(self, stamp: Stamp, spot: Spot) -> Sequence[Remark]:
        name = hash(stamp.key)
        if name in self._seen:
            return (Remark("duplicate", f"the command {stamp.key} is in the file twice", spot),)
        self._seen[name] = stamp.size
        if len(self._seen) > limits.CHECKED_KEYS_MAX:
            del self._seen[next(iter(self._seen))]
        return ()


class _StampedSchema(LineSchema):
    """Rules for files with stamps: a batch ends at a line without its stamp."""

    def __init__(self) -> None:
        self._stamps = Stamps()

    def gap(self) -> Sequence[Remark]:
        """Report a batch that ends at a line which is not a record."""
        return self._stamps.take(None, _NOWHERE)

    def finish(self, end: int) -> Sequence[Remark]:
        """Report a batch that the end of the file tears."""
        return self._stamps.finish(end)


class ContextSchema(_StampedSchema):
    """Schema of a context: messages and control records of kimi-cli 1.52 and steno."""

    def __init__(self) -> None:
        super().__init__()
        self._checkpoint = -1

    def is_record(self, data: bytes) -> bool:
        """Whether an object is a message or a control record."""
        return not isinstance(parse_line(data), (Blank, Damaged))

    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Check the role, the order of checkpoint ids, and the stamp."""
        stamp = stamp_of(data)
        if stamp and record.get("role") == "_usage" and self._stamps.is_compaction(stamp):
            # The last line of a compaction has the key of its batch and is not part of it.
            stamp = None
        found = self._stamps.take(stamp, spot)
        # Nearly every line is a message, whose text needs no check.
        if is_message(record):
            return found
        line = line_of(record)
        if isinstance(line, Damaged):
            return (*found, Remark("unknown_record", line.reason, spot))
        if isinstance(line, Checkpoint):
            return (*found, *self._check_order(line, spot))
        return found

    def _check_order(self, checkpoint: Checkpoint, spot: Spot) -> Iterator[Remark]:
        if checkpoint.id <= self._checkpoint:
            what = f"checkpoint {checkpoint.id} comes after checkpoint {self._checkpoint}"
            yield Remark("checkpoint_order", what, spot)
        self._checkpoint = max(self._checkpoint, checkpoint.id)


class WireSchema(_StampedSchema):
    """Schema of a wire file: a header, then events."""

    def __init__(self) -> None:
        super().__init__()
        self._at: Position | None = None
        self._timestamp: float | None = None
        self._lines = 0

    def is_record(self, data: bytes) -> bool:
        """Whether an object is an event or a header."""
        return isinstance(parse_wire_line(data), (Metadata, WireRecord))

    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Check the type of line, the order of times and of `_at`, and the stamp."""
        return (*self._stamps.take(stamp_of(data), spot), *self._check_line(record, spot))

    def _check_line(self, record: dict[str, Any], spot: Spot) -> Iterator[Remark]:
        match wire_line_of(record):
            case Metadata():
                if self._lines:
                    yield Remark("second_header", "a header that is not the first line", spot)
            case WireRecord(timestamp=timestamp, at=at):
                yield from self._check_timestamp(timestamp, spot)
                if at is not None:
                    yield from self._check_at(at, spot)
            case DamagedLine() as damaged:
                yield Remark("unknown_record", damaged.reason, spot)
        self._lines += 1

    def _check_timestamp(self, timestamp: float, spot: Spot) -> Iterator[Remark]:
        """Compare with the previous event, so that a clock set back is reported once.

        Clients date their events before the daemon orders them, so a small fall is normal.
        """
        before, self._timestamp = self._timestamp, timestamp
        if before is not None and timestamp < before - limits.TIME_FALL_S:
            yield Remark("time_order", f"the timestamp falls from {before} to {timestamp}", spot)

    def _check_at(self, text: str, spot: Spot) -> Iterator[Remark]:
        try:
            at = Position.parse(text)
        except BadRequest:
            yield Remark("at_order", f"_at is {text[:40]!r}, not a position", spot)
            return
        if self._at is not None and at < self._at:
            yield Remark("at_order", f"_at falls from {self._at} to {at}", spot)
        else:
            self._at = at


class StreamSchema(_StampedSchema):
    """Schema of a stream: any JSON objects."""

    def is_record(self, data: bytes) -> bool:
        """Whether the bytes are an object."""
        try:
            _decode_object(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Check the stamp."""
        del record
        return self._stamps.take(stamp_of(data), spot)


class TimelineSchema(LineSchema):
    """Schema of a timeline: entries."""

    def is_record(self, data: bytes) -> bool:
        """Whether an object is an entry."""
        try:
            _decode_entry(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Check that a line is an entry."""
        del record
        if self.is_record(data):
            return ()
        return (Remark("unknown_record", "an object that is not an entry of a timeline", spot),)


class OtherSchema(LineSchema):
    """Schema of any other transcript: one JSON value a line, whose common keys are learned."""

    objects_only = False

    def __init__(self) -> None:
        self._common: frozenset[str] | None = None

    def is_record(self, data: bytes) -> bool:
        """Whether an object has the keys that all records before it had."""
        try:
            keys = _decode_object(data).keys()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return bool(keys) and (self._common is None or self._common <= keys)

    def take(self, record: dict[str, Any], data: bytes, spot: Spot) -> Sequence[Remark]:
        """Learn the common keys from a record."""
        del data, spot
        keys = record.keys()
        if self._common is None:
            self._common = frozenset(keys)
        elif not self._common <= keys:
            self._common &= keys
        return ()


_NOWHERE: Final = Spot(0, 0, 0)

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def schema_of(name: str, *, in_session: bool) -> LineSchema:
    """Return the schema of a file by its name.

    Args:
        name: the file's name.
        in_session: the file lies in a session's folder.
    """
    if in_session and (name == paths.CONTEXT or paths.generation_of(name) is not None):
        return ContextSchema()
    if in_session and name == paths.WIRE:
        return WireSchema()
    if in_session and (paths.stream_of(name) or paths.deleted_stream_of(name)):
        return StreamSchema()
    if in_session and name == paths.TIMELINE:
        return TimelineSchema()
    return OtherSchema()
