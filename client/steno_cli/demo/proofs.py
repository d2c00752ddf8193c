"""What several writers of one session were told, and whether its file agrees; pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from steno.values import decode_object
from steno_present.wording import count, number
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS


@dataclass(frozen=True, slots=True)
class Acked:
    """One acknowledged append: its writer, its key, its position, and the record as sent."""

    writer: str
    key: str
    cursor: str
    duplicate: bool
    sent: dict[str, Any]


class Seen(msgspec.Struct, frozen=True):
    """One record of the follower: its cursor and its bytes."""

    cursor: str
    record: msgspec.Raw


def prove(data: bytes, acked: Sequence[Acked], seen: Sequence[Seen]) -> dict[str, str]:
    """The claims of the demo, each with its first contradiction in the file; empty if it holds.

    Args:
        data: the bytes of `context.jsonl`.
        acked: every acknowledgement, those of one writer in the order of its turns.
        seen: the records of the follower, in order.
    """
    *lines, rest = data.split(b"\n")
    records = [decode_object(line) for line in lines]
    contradictions = {
        f"the file is {count(len(lines), 'line')}, each one a whole JSON object": _not_whole(
            rest, lines, records
        ),
        f"each of the {number(len(acked))} acknowledged records is in it exactly once": _not_once(
            records, acked
        ),
        "each is at the position of its acknowledgement, as it was sent, in the order of its"
        " writer": _not_there(records, acked),
        "the follower saw these very lines in this order, without gap or duplicate": _not_seen(
            lines, seen
        ),
    }
    return {claim: next(found, "") for claim, found in contradictions.items()}


def changes_of_writer(data: bytes) -> int:
    """How often the next line of the file has another writer: a measure of concurrency."""
    writers = [record.get("_by") for line in data.splitlines() if (record := decode_object(line))]
    return sum(before != after for before, after in pairwise(writers))


Records = Sequence[dict[str, Any] | None]
"""The lines of the file as objects, None for damaged ones."""


def _not_whole(rest: bytes, lines: Sequence[bytes], records: Records) -> Iterator[str]:
    if rest:
        yield f"it ends with {len(rest)} bytes that are no whole line"
    for line_number, record in enumerate(records):
        if record is None:
            yield f"line {line_number + 1} is no JSON object: {lines[line_number][:60]!r}"


def _not_once(records: Records, acked: Sequence[Acked]) -> Iterator[str]:
    there = Counter(str(record.get("_id")) for record in records if record is not None)
    wanted = Counter(each.key for each in acked)
    for key, times in wanted.items():
        if times > 1:
            yield f"the record {key} was acknowledged to {times} commands"
        if there[key] != 1:
            yield f"the record {key} was acknowledged and is there {there[key]} times"
    for key in there.keys() - wanted.keys():
        yield f"the record {key} is there without an acknowledgement"


def _not_there(records: Records, acked: Sequence[Acked]) -> Iterator[str]:
    lines = {f"0:{line_number}": record for line_number, record in enumerate(records)}
    last: dict[str, Position] = {}
    for each in acked:
        record = lines.get(each.cursor)
        if record is None or record.get("_id") != each.key:
            yield f"the line at {each.cursor} is not the record {each.key}"
        elif {key: record[key] for key in record if key not in RESERVED_KEYS} != each.sent:
            yield f"the record {each.key} at {each.cursor} has not the content that was sent"
        position = Position.parse(each.cursor)
        if position <= last.get(each.writer, Position(0, -1)):
            yield f"{each.key} is at {position}, before an earlier record of {each.writer}"
        last[each.writer] = position


def _not_seen(lines: Sequence[bytes], seen: Sequence[Seen]) -> Iterator[str]:
    for line_number, (line, each) in enumerate(zip(lines, seen, strict=False)):
        if each.cursor != f"0:{line_number}":
            yield f"the record after line {line_number} came as {each.cursor}"
        if bytes(each.record) != line:
            yield f"the line at 0:{line_number} came as {bytes(each.record)[:60]!r}"
    if len(lines) != len(seen):
        yield f"the file has {len(lines)} lines and {len(seen)} were seen"
