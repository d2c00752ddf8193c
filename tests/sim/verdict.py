"""What must be true of a session's files after everything, told from the bytes alone.

It reads the files as any JSON program would, and shares no code with the daemon but the decoding of
the timeline's entries.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sim.clients import Fate, Follower, Order, is_prompt, is_rewrite
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Happening

_STAMP = re.compile(r"([A-Za-z0-9_-]+)(?:\.(\d+)/(\d+))?")

REWRITE_KINDS = ("reverted", "cleared", "prompted", "restored")

Lines = Sequence[bytes]


def check(
    generations: Sequence[Lines],
    happenings: Sequence[Happening],
    orders: Sequence[Order],
    followers: Sequence[Follower],
    *,
    has_foreign: bool,
) -> None:
    """Check everything that steno promises of one session.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    batches = [dict(_batches(lines, has_foreign=has_foreign)) for lines in generations]
    rewrites = [entry for entry in happenings if entry.kind in REWRITE_KINDS]
    for order in orders:
        _check_answers(order)
        if is_rewrite(order):
            _check_rewrite(order, rewrites)
        elif not (is_prompt(order) and any(entry.key == order.key for entry in rewrites)):
            _check_records(order, generations, batches)
    _check_generations(generations, rewrites, has_foreign=has_foreign)
    for follower in followers:
        for position, data in follower.seen.items():
            found = generations[position.generation][position.line]
            assert found == data, f"a follower saw {data!r} at {position}, the file has {found!r}"


def _batches(lines: Lines, *, has_foreign: bool) -> Iterator[tuple[str, tuple[int, int]]]:
    """Key, first line and size of every command in a file; each is whole, and there once."""
    seen = set[str]()
    number = 0
    while number < len(lines):
        record = _record(lines[number], has_foreign=has_foreign)
        match = _STAMP.fullmatch(str(record.get("_id", "")))
        # Another program that writes behind a torn line of ours keeps it from being cut.
        if match is None or (has_foreign and not _is_whole(lines[number:], match)):
            assert has_foreign, f"a line of nobody: {lines[number]!r}"
            number += 1
            continue
        key, size = match[1], int(match[3] or 1)
        expected = [key] if size == 1 else [f"{key}.{part}/{size}" for part in range(size)]
        found = [_record(line).get("_id") for line in lines[number : number + size]]
        assert found == expected, f"a batch that is not whole: {found} instead of {expected}"
        assert key not in seen, f"{key} is there twice"
        seen.add(key)
        yield key, (number, size)
        number += size


def _is_whole(lines: Lines, match: re.Match[str]) -> bool:
    key, size = match[1], int(match[3] or 1)
    if size == 1:
        return True
    expected = [f"{key}.{part}/{size}" for part in range(size)]
    return [_record(line, has_foreign=True).get("_id") for line in lines[:size]] == expected


def _record(line: bytes, *, has_foreign: bool = False) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        assert has_foreign, f"a line that is not JSON: {line!r}"
        return {}
    assert isinstance(record, dict)
    return record


def _check_answers(order: Order) -> None:
    assert order.fate is not Fate.OPEN, f"{order.key} was never answered"
    told = {(ack.first, ack.last, ack.head, ack.checkpoint_id, ack.rotated) for ack in order.acks}
    assert len(told) <= 1, f"{order.key} was answered differently: {told}"
    fresh = [ack for ack in order.acks if not ack.duplicate]
    assert len(fresh) <= 1, f"{order.key} was applied {len(fresh)} times"
    expect = order.command.expect
    for ack in fresh:
        if expect is not None and not ack.rotated:
            assert ack.overtaken or ack.first == expect, f"{order.key} broke its expectation"


def _check_rewrite(order: Order, rewrites: Sequence[Happening]) -> None:
    entries = [entry for entry in rewrites if entry.key == order.key]
    if order.fate is Fate.REFUSED:
        assert not entries, f"{order.key} was refused and happened"
        return
    assert len(entries) == 1, f"{order.key} happened {len(entries)} times"
    for ack in order.acks:
        head = Position.parse(ack.head)
        assert head.generation == entries[0].generation
        assert head.line == entries[0].details["lines"]


def _check_records(
    order: Order, generations: Sequence[Lines], batches: Sequence[dict[str, tuple[int, int]]]
) -> None:
    places = [
        (generation, *found[order.key])
        for generation, found in enumerate(batches)
        if order.key in found
    ]
    if order.fate is Fate.REFUSED:
        assert not places, f"{order.key} was refused and is at {places}"
    if order.fate is not Fate.DONE:
        return
    assert places, f"{order.key} was acked and is nowhere"
    ack = order.acks[0]
    generation, line, size = places[0]
    told = (ack.first, ack.head)
    assert told == (f"{generation}:{line}", f"{generation}:{line + size}"), f"{order.key}: {told}"
    _check_content(order, ack, generations[generation][line : line + size])


def _check_content(order: Order, ack: Ack, lines: Lines) -> None:
    for line, given in zip(lines, order.records, strict=bool(order.records)):
        record = _record(line)
        assert {key: record[key] for key in ("role", "content")} == _record(given)
        assert record.get("_by") == order.command.by
    if ack.checkpoint_id is not None:
        assert _record(lines[0])["id"] == ack.checkpoint_id


def _check_generations(
    generations: Sequence[Lines], rewrites: Sequence[Happening], *, has_foreign: bool
) -> None:
    """Each rewrite made its generation out of the one before, line by line."""
    if not has_foreign:
        numbers = [entry.generation for entry in rewrites]
        assert numbers == list(range(1, len(generations))), f"{numbers}, {len(generations)} files"
    for entry in rewrites:
        before, after = generations[entry.generation - 1], generations[entry.generation]
        # What another program appended while the file was being rewritten stays where it wrote it.
        before = before[: entry.details["old_lines"]]
        count = entry.details["lines"]
        expected = _rewritten(entry, before, generations)
        if entry.kind == "prompted":
            assert _record(after[0])["role"] == "_system_prompt"
            assert list(after[1:count]) == expected, "the prompt changed other lines"
        else:
            assert list(after[:count]) == expected, f"{entry.kind} kept other lines"
        if entry.kept:
            assert before[: entry.kept] == after[: entry.kept]


def _rewritten(entry: Happening, before: Lines, generations: Sequence[Lines]) -> list[bytes]:
    match entry.kind:
        case "reverted":
            wanted = entry.details["checkpoint_id"]
            ids = [_record(line, has_foreign=True).get("id") for line in before]
            return list(before[: ids.index(wanted)])
        case "cleared":
            return []
        case "prompted":
            has_prompt = (
                bool(before)
                and _record(before[0], has_foreign=True).get("role") == "_system_prompt"
            )
            return list(before[1:] if has_prompt else before)
        case _:
            return [line for line in generations[entry.details["from"]] if line.endswith(b"\n")]
