"""Scanner for damage of JSONL files, and edits to repair it.

A `Scanner` gets a file's bytes in blocks of any size and keeps at most one line of them. It never
raises: any bytes are lines or damage. A repair is a list of edits; each edit cuts bytes that are
not a whole record, or separates two records that share a line.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from steno_protocol import limits
from steno_protocol._json import is_object, json_type
from steno_protocol.line_schemas import LineSchema, Remark, Spot
from steno_protocol.record_salvage import Span, is_well_formed, whole_records

DAMAGES: Final = frozenset(
    {
        "not_json", "torn", "nul", "bad_utf8", "welded", "bom", "not_object", "too_deep",
        "oversized", "torn_batch", "duplicate", "checkpoint_order", "at_order",
        "no_context", "rewrite_lost", "synced_lost", "state_unreadable", "unreadable",
    }
)  # fmt: skip
"""Kinds of findings that mean lost data, or data that some readers cannot decode."""

NOTES: Final = frozenset(
    {
        "unended", "crlf", "plain_value", "odd_value", "unknown_record", "second_header",
        "time_order",
        "generation_gap", "rewrite_open", "mark_ignored", "leftover", "quarantined", "mended",
        "unchecked",
    }
)  # fmt: skip
"""Kinds of findings that an operator should know; nothing is lost."""

_BOM: Final = b"\xef\xbb\xbf"

_BLANKS: Final = b" \t\r"
"""The bytes of a blank line."""

_decode = msgspec.json.Decoder().decode


class Edit(NamedTuple):
    """A part of a repair: `put` replaces `size` bytes from `offset`."""

    offset: int
    size: int
    put: bytes = b""


class Finding(msgspec.Struct, frozen=True):
    """One damage or note.

    Attributes:
        kind: one of `DAMAGES` or `NOTES`.
        what: its description for a person.
        offset: the offset of its first byte.
        size: its bytes; 0 for a finding without a range.
        line: number of its first line, counted from 1 as editors do; 0 for a whole file.
        records: whole records inside it, which a repair keeps.
        edits: the edits of a repair; none if a repair does nothing about it.
    """

    kind: str
    what: str
    offset: int = 0
    size: int = 0
    line: int = 0
    records: int = 0
    edits: tuple[Edit, ...] = ()

    @property
    def is_damage(self) -> bool:
        """Whether data is lost or unreadable; False for a note."""
        return self.kind in DAMAGES

    @property
    def remedy(self) -> str:
        """The effect of a repair: `cut`, `split`, `end` (the newline is added), or `none`."""
        if not self.edits:
            return "none"
        if self.kind == "unended":
            return "end"
        return "split" if self.records else "cut"


class Scanner(msgspec.Struct):
    """One pass over one file.

    Attributes:
        schema: the rules for its lines.
        size: bytes scanned so far.
        lines: lines among them, a last one without newline included.
        records: records among them.
        crc: CRC-32 of the bytes.
    """

    schema: LineSchema
    size: int = 0
    lines: int = 0
    records: int = 0
    crc: int = 0
    _start: int = 0
    _parts: list[bytes] = msgspec.field(default_factory=list[bytes])
    _held: int = 0
    _crlf: int = 0

    def feed(self, data: bytes) -> Iterator[Finding]:
        """Scan the next bytes; exhaust the findings before the next call."""
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            found = self._held_line(data[at:end], ended=True) if self._held else self._line(
                data[at:end], end - at, ended=True
            )  # fmt: skip
            # Nearly always empty: `yield from` alone would take a tenth of the time of a line.
            if found:
                yield from found
            at = end + 1
        self._hold(data[at:])

    def finish(self) -> Iterator[Finding]:
        """Note the end of the file, and return its last findings."""
        if self._held:
            yield from self._held_line(b"", ended=False)
        yield from map(self._finding, self.schema.finish(self._start))
        if self._crlf:
            what = f"{self._crlf} lines end with CR LF, which readers skip as white space"
            yield Finding("crlf", what)

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        # Of a longer line only the length is needed.
        if part and self._held <= limits.LINE_CHECKED_BYTES_MAX:
            self._parts.append(part)

    def _held_line(self, end: bytes, *, ended: bool) -> Sequence[Finding]:
        self._hold(end)
        data, size = b"".join(self._parts), self._held
        self._parts, self._held = [], 0
        return self._line(data, size, ended=ended)

    def _line(self, data: bytes, size: int, *, ended: bool) -> Sequence[Finding]:
        """Check one line that is complete, by its newline or the end of the file.

        Of a line that is longer than `LINE_CHECKED_BYTES_MAX` only the `size` is known.
        """
        spot = Spot(self._start, size + ended, self.lines + 1)
        self._start += size + ended
        self.lines += 1
        if size > limits.LINE_CHECKED_BYTES_MAX:
            what = f"a line of {size} bytes, longer than any that steno decodes"
            return [*self._gap(), Finding("oversized", what, spot.offset, spot.size, spot.line)]
        if spot.offset == 0 and data.startswith(_BOM):
            what = "a byte order mark, which makes JSON readers fail"
            bom = Finding("bom", what, 0, len(_BOM), 1, edits=(Edit(0, len(_BOM)),))
            data, spot = data[len(_BOM) :], Spot(len(_BOM), spot.size - len(_BOM), spot.line)
            return [bom, *self._judge(data, spot, ended=ended)]
        return self._judge(data, spot, ended=ended)

    def _judge(self, data: bytes, spot: Spot, *, ended: bool) -> Sequence[Finding]:
        if data.endswith(b"\r") and ended and data.strip(_BLANKS):
            self._crlf += 1
        try:
            value = _decode(data)
        except RecursionError:
            return [*self._gap(), *self._too_deep(data, spot, ended=ended)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            if not data.strip(_BLANKS):
                return ()
            return [*self._gap(), self._broken(data, spot, ended=ended)]
        if is_object(value):
            self.records += 1
            remarks = self.schema.take(value, data, spot)
            found = [*map(self._finding, remarks)] if remarks else []
        else:
            found = [*self._gap(), self._no_object(value, spot)]
        return found if ended else [*found, self._unended(data, spot)]

    def _gap(self) -> Iterator[Finding]:
        return map(self._finding, self.schema.gap())

    def _unended(self, data: bytes, spot: Spot) -> Finding:
        edit = Edit(spot.offset + len(data), 0, b"\n")
        what = "the last line lacks its newline: what is appended next would be welded to it"
        return Finding("unended", what, edit.offset, 0, spot.line, 1, (edit,))

    def _finding(self, remark: Remark) -> Finding:
        return Finding(remark.kind, remark.what, *remark.spot)

    def _no_object(self, value: object, spot: Spot) -> Finding:
        what = f"JSON that is not an object: {json_type(value)}"
        if not self.schema.objects_only:
            return Finding("plain_value", what, *spot)
        return Finding("not_object", what, *spot, edits=(Edit(spot.offset, spot.size),))

    def _too_deep(self, data: bytes, spot: Spot, *, ended: bool) -> Iterator[Finding]:
        spans = whole_records(data, self.schema.is_record, ended=ended)
        if spans:
            yield self._welded(data, spot, spans, ended=ended)
            return
        what = "nested too deep for readers; it may be whole"
        yield Finding("too_deep", what, *spot)

    def _broken(self, data: bytes, spot: Spot, *, ended: bool) -> Finding:
        """Describe a line that does not decode: the whole records in it, and the kind of damage."""
        if is_well_formed(data):
            what = "JSON with a value that strict readers refuse, for example a lone surrogate"
            return Finding("odd_value", what, *spot)
        spans = whole_records(data, self.schema.is_record, ended=ended)
        if spans:
            return self._welded(data, spot, spans, ended=ended)
        kind, what = _nature(data, ended=ended)
        return Finding(kind, what, *spot, edits=(Edit(spot.offset, spot.size),))

    def _welded(self, data: bytes, spot: Spot, spans: Sequence[Span], *, ended: bool) -> Finding:
        self.records += len(spans)
        edits = tuple(_partings(data, spot.offset, spans, ended=ended))
        lost = sum(edit.size for edit in edits)
        count = len(spans)
        whole = f"{count} whole record{'' if count == 1 else 's'}"
        if not lost:
            what = f"{whole} welded into one line"
        elif b"\0" in data and not data[: spans[0].start].strip(b"\0 \t\r"):
            return Finding("nul", f"{lost} NUL bytes before {whole}", *spot, count, edits)
        else:
            what = f"{lost} damaged bytes welded to {whole}"
        return Finding("welded", what, *spot, count, edits)


def _nature(data: bytes, *, ended: bool) -> tuple[str, str]:
    """Return kind and description of a line without a whole record."""
    size = len(data)
    if b"\0" in data:
        return (
            "nul",
            f"{data.count(0)} NUL bytes in a line of {size}: pages that were never written",
        )
    if not ended:
        return "torn", f"a last line of {size} bytes that was never finished"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return "bad_utf8", f"a line of {size} bytes that is no UTF-8 from its byte {error.start} on"
    return "not_json", f"a line of {size} bytes that is no JSON"


def _partings(data: bytes, offset: int, spans: Sequence[Span], *, ended: bool) -> Iterator[Edit]:
    """Yield the edits that keep the whole records of a line, each on its own line."""
    at = 0
    for number, span in enumerate(spans):
        put = b"\n" if number else b""
        if put or span.start > at:
            yield Edit(offset + at, span.start - at, put)
        at = span.end
    if not ended:
        yield Edit(offset + at, len(data) - at, b"\n")
    elif data[at:].strip():
        yield Edit(offset + at, len(data) - at)


def merged(edits: Iterable[Edit]) -> list[Edit]:
    """Sort the edits of a file, and merge those that touch or overlap."""
    found: list[Edit] = []
    for edit in sorted(edits):
        last = found[-1] if found else None
        if last is None or edit.offset > last.offset + last.size:
            found.append(edit)
            continue
        end = max(last.offset + last.size, edit.offset + edit.size)
        found[-1] = Edit(last.offset, end - last.offset, last.put)
    return found


def kept_pieces(edits: Sequence[Edit], size: int) -> Iterator[Span | bytes]:
    """Yield the parts of a file of `size` bytes after merged edits: old ranges and new bytes."""
    at = 0
    for edit in edits:
        if edit.offset > at:
            yield Span(at, edit.offset)
        if edit.put:
            yield edit.put
        at = edit.offset + edit.size
    if at < size:
        yield Span(at, size)
