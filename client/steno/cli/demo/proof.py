"""What the demo proves, from the bytes of the file alone; pure, so that a broken file can be shown.

The evidence is of three kinds: the replies to each writer (its acknowledgements, in the order in
which it sent), what the follower saw, and the file. Nothing here asks the daemon anything.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from steno.cli.render.wording import count, number
from steno_protocol._json import is_object
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS

_decode = msgspec.json.Decoder().decode


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """One acknowledged append: its writer, its record, and its position from the reply.

    Attributes:
        writer: the process that sent it.
        key: of the command.
        first: cursor of its first record.
        last: cursor of its last record.
        duplicate: the answer came to a repetition.
        sent: the records, as they were given to the client.
    """

    writer: str
    key: str
    first: str
    last: str
    duplicate: bool
    sent: list[dict[str, Any]]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One line as the follower saw it, and its cursor."""

    cursor: str
    line: str


@dataclass(frozen=True, slots=True)
class Proof:
    """One claim, whether it holds, and the first thing that speaks against it."""

    claim: str
    holds: bool
    detail: str = ""


def prove(data: bytes, acked: Sequence[Acked], seen: Sequence[Seen]) -> list[Proof]:
    """Check every claim of the demo.

    Args:
        data: the bytes of `context.jsonl`.
        acked: every acknowledgement, those of one writer in the order in which it sent.
        seen: what the follower saw, in order.
    """
    lines = data.split(b"\n")
    records = [_object(line) for line in lines[:-1]]
    total = sum(len(each.sent) for each in acked)
    return [
        _proof(
            f"the file is {count(len(records), 'line')}, each one a whole JSON object",
            lambda: _not_whole(lines, records),
        ),
        _proof(
            f"each of the {number(total)} acknowledged records is in it exactly once",
            lambda: _not_once(records, acked),
        ),
        _proof(
            "each lies where its acknowledgement said, and says what was sent",
            lambda: _not_there(records, acked),
        ),
        _proof(
            "the records of each writer are in the order in which it sent them",
            lambda: _not_in_order(records, acked),
        ),
        _proof(
            "the follower saw these very lines in this order, without gap or duplicate",
            lambda: _not_seen(lines[:-1], seen),
        ),
    ]


def changes_of_writer(data: bytes) -> int:
    """How often the next line of the file is by another writer: how much they wrote at once."""
    writers = [record.get("_by") for line in data.splitlines() if (record := _object(line))]
    return sum(before != after for before, after in pairwise(writers))


def _proof(claim: str, contradictions: Callable[[], Iterable[str]]) -> Proof:
    found = next(iter(contradictions()), None)
    return Proof(claim, holds=found is None, detail=found or "")


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if is_object(value) else None


def _not_whole(lines: Sequence[bytes], records: Sequence[dict[str, Any] | None]) -> Iterator[str]:
    if lines[-1]:
        yield f"it ends with {len(lines[-1])} bytes that are no whole line"
    for line_number, record in enumerate(records):
        if record is None:
            yield f"line {line_number + 1} is no JSON object: {lines[line_number][:60]!r}"


def _stamps(each: Acked) -> list[str]:
    """The `_id` of each record of one command."""
    size = len(each.sent)
    if size == 1:
        return [each.key]
    return [f"{each.key}.{index}/{size}" for index in range(size)]


def _not_once(records: Sequence[dict[str, Any] | None], acked: Sequence[Acked]) -> Iterator[str]:
    there = Counter(str(record.get("_id")) for record in records if record is not None)
    wanted = Counter(stamp for each in acked for stamp in _stamps(each))
    for stamp, times in wanted.items():
        if times > 1:
            yield f"the record {stamp} was acknowledged to {times} commands"
        if there[stamp] != 1:
            yield f"the record {stamp} was acknowledged and is there {there[stamp]} times"
    for stamp in there.keys() - wanted.keys():
        yield f"the record {stamp} is there without an acknowledgement"


def _not_there(records: Sequence[dict[str, Any] | None], acked: Sequence[Acked]) -> Iterator[str]:
    for each in acked:
        first, last = Position.parse(each.first), Position.parse(each.last)
        if first.generation or last.line - first.line + 1 != len(each.sent):
            yield f"{each.key} has {len(each.sent)} records and was placed at {first} to {last}"
            continue
        for line_number, stamp, sent in zip(
            range(first.line, last.line + 1), _stamps(each), each.sent, strict=True
        ):
            record = records[line_number] if line_number < len(records) else None
            if record is None or record.get("_id") != stamp:
                yield f"the line at 0:{line_number} is not the record {stamp}"
            elif {key: record[key] for key in record if key not in RESERVED_KEYS} != sent:
                yield f"the record {stamp} at 0:{line_number} does not say what was sent"


def _not_in_order(
    records: Sequence[dict[str, Any] | None], acked: Sequence[Acked]
) -> Iterator[str]:
    lines = {
        str(record.get("_id")): line_number
        for line_number, record in enumerate(records)
        if record is not None
    }
    sent: dict[str, list[str]] = defaultdict(list)
    for each in acked:
        sent[each.writer] += _stamps(each)
    for writer, stamps in sent.items():
        # One that is missing has no place; that it is missing fails another proof.
        for before, after in pairwise(stamp for stamp in stamps if stamp in lines):
            if lines[before] >= lines[after]:
                yield f"{writer} sent {before} before {after}, and the file has them otherwise"


def _not_seen(lines: Sequence[bytes], seen: Sequence[Seen]) -> Iterator[str]:
    for line_number, (line, each) in enumerate(zip(lines, seen, strict=False)):
        if each.cursor != f"0:{line_number}":
            yield f"the record after line {line_number} came as {each.cursor}"
        if each.line.encode() != line:
            yield f"the line at 0:{line_number} came as {each.line[:60]!r}"
    if len(lines) != len(seen):
        yield f"the file has {len(lines)} lines and {len(seen)} were seen"
