"""The promises about one session's folder, checked from its files alone."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sim.files import (
    Folder,
    Lines,
    Stamp,
    checkpoints_in,
    parse_stamp,
    record_of,
    stamp_of,
)
from sim.orders import Order
from sim.verdicts.mail import check_mail
from sim.verdicts.rewrites import expected_lines
from steno_protocol import commands, timeline_entries
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from support.happenings import check_facts

HEADER = {"type": "metadata", "protocol_version": "1.10"}


class Place(NamedTuple):
    """Where a command stands in a folder: its generation, first line and count of lines."""

    generation: int
    line: int
    count: int


def check_folder(
    name: str, folder: Folder, orders: Mapping[str, Order], *, has_foreign: bool = False
) -> str | None:
    """Check everything that steno promises of the files of one session that is no fork.

    Args:
        name: its name in messages.
        folder: its files.
        orders: every order by its key.
        has_foreign: another program appended lines to the context.

    Returns:
        The id of the D-Mail that waits at the end.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    check_files(name, folder, has_foreign=has_foreign)
    by_generation = {number: orders[each.key or ""] for number, each in folder.rewrites.items()}
    begun = {
        number: Position.parse(order.command.at).line
        for number, order in by_generation.items()
        if isinstance(order.command, commands.CompactCommit)
    }
    folder = replace(folder, begun=begun)
    if not has_foreign:
        _check_numbers(name, folder)
        _check_once(name, folder)
    for number, entry in folder.rewrites.items():
        _check_rewrite(name, folder, entry, by_generation[number])
    return check_mail(folder, orders)


def check_files(name: str, folder: Folder, *, has_foreign: bool = False) -> None:
    """Check what is promised of the files of any session, a fork too."""
    check_facts(folder.entries)
    _check_batches(name, folder.generations, has_foreign=has_foreign)
    check_wire(name, folder)


def places_of(folder: Folder) -> dict[str, Place]:
    """Where each command stands whole for the first time."""
    places: dict[str, Place] = {}
    files = [*enumerate(folder.generations), (0, folder.wire), (0, folder.stream)]
    for generation, lines in files:
        for number, line in enumerate(lines):
            stamp = stamp_of(line)
            if stamp.key and stamp.index == 0 and _is_whole(lines, number, stamp):
                places.setdefault(stamp.key, Place(generation, number, stamp.count))
    return places


def _is_whole(lines: Lines, number: int, stamp: Stamp) -> bool:
    """Whether a batch stands there from one of its lines to its last."""
    found = [stamp_of(line) for line in lines[number : number + stamp.count - stamp.index]]
    return found == _rest_of(stamp)


def _rest_of(stamp: Stamp) -> list[Stamp]:
    return [Stamp(stamp.key, part, stamp.count) for part in range(stamp.index, stamp.count)]


def _check_batches(name: str, generations: Sequence[Lines], *, has_foreign: bool) -> None:
    """Each line belongs to a command, each command is whole, and none is there twice.

    A compaction drops heads: only the end may be left of a batch of an earlier generation.
    """
    earlier = set[Stamp]()
    for lines in generations:
        seen = set[Stamp]()
        number = 0
        while number < len(lines):
            record = record_of(lines[number], has_foreign=has_foreign)
            stamp = parse_stamp(record.get("_id", ""))
            # Another program that writes behind a torn line of ours keeps it from being cut.
            if stamp is None or (has_foreign and not _is_whole(lines, number, stamp)):
                assert has_foreign, f"{name}: a line without a stamp: {lines[number]!r}"
                number += 1
                continue
            assert _is_whole(lines, number, stamp), f"{name}: a batch that is not whole: {stamp}"
            assert stamp.index == 0 or stamp in earlier or has_foreign, f"{name}: no head: {stamp}"
            assert stamp not in seen, f"{name}: {stamp} is there twice"
            seen.update(_rest_of(stamp))
            number += stamp.count - stamp.index
        earlier |= seen


def check_wire(name: str, folder: Folder) -> None:
    """One header, whole batches, each key once, and positions that never fall and all exist."""
    records = [json.loads(line) for line in folder.wire]
    assert not records or records[0] == HEADER, f"{name}: {records[0]}"
    assert not folder.wire or folder.wire[-1].endswith(b"\n")
    _check_batches(f"{name}: wire file", [folder.wire[1:]], has_foreign=False)
    joined = [Position.parse(record["_at"]) for record in records[1:]]
    assert joined == sorted(joined), f"{name}: the position in the context fell"
    for at in joined:
        assert at.generation < len(folder.generations), f"{name}: an event is joined to {at}"
        end = len(folder.generations[at.generation])
        assert at.line <= end, f"{name}: an event is joined to {at}, there are {end} lines"


def check_stream(name: str, folder: Folder) -> None:
    """Whole batches of whole lines, each key once."""
    assert not folder.stream or folder.stream[-1].endswith(b"\n")
    _check_batches(f"{name}: stream", [folder.stream], has_foreign=False)
    for line in folder.stream:
        assert set(record_of(line)) <= {"n", "part", "text", "_by", "_id"}, line


def _check_numbers(name: str, folder: Folder) -> None:
    """Each generation but the first was made by one rewrite; ids rise, and none is used twice."""
    numbers, count = sorted(folder.rewrites), len(folder.generations)
    assert numbers == list(range(1, count)), f"{name}: rewrites {numbers}, {count} generations"
    for lines in folder.generations:
        ids = [number for number, _ in checkpoints_in(lines)]
        assert ids == sorted(set(ids)), f"{name}: ids that do not rise: {ids}"
    used: dict[int, str] = {}
    for number, lines in enumerate(folder.generations):
        for checkpoint, line in checkpoints_in(lines):
            stamp = record_of(lines[line])["_id"]
            first = used.setdefault(checkpoint, stamp)
            assert first == stamp, f"{name}: generation {number} uses checkpoint {checkpoint} again"


def _check_rewrite(name: str, folder: Folder, entry: TimelineEntry, order: Order) -> None:
    """A rewrite made its generation out of the one before, line by line."""
    command = order.command
    assert isinstance(command, commands.Mutation)
    after, expected = folder.after(entry), expected_lines(folder, entry, command)
    assert len(after) == len(expected), f"{name}: {entry.kind} has {len(after)} lines"
    for line, wanted in zip(after, expected, strict=True):
        assert wanted in (None, line), f"{name}: {entry.kind} kept {line!r}, not {wanted!r}"
    kept = folder.before(entry)[: entry.kept]
    assert kept == list(after[: entry.kept]), f"{name}: {entry.kind} kept other lines than it says"


def _check_once(name: str, folder: Folder) -> None:
    """No command was applied again after a rewrite had removed its lines."""
    made = {number: entry.details["lines"] for number, entry in folder.rewrites.items()}
    applied = Counter(entry.key for entry in folder.entries if entry.key and entry.kind != "fork")
    for number, lines in enumerate([*folder.generations, folder.wire[1:], folder.stream]):
        stamps = map(stamp_of, lines[made.get(number, 0) :])
        applied.update(stamp.key for stamp in stamps if stamp.index == 0)
    twice = {key: times for key, times in applied.items() if times > 1}
    assert not twice, f"{name}: applied more than once: {twice}"


def check_compactions(name: str, folder: Folder, orders: Mapping[str, Order]) -> None:
    """Every compaction was begun in this session, not in one of the same id that was deleted."""
    compacting = [each for each in folder.entries if each.kind == timeline_entries.COMPACTING]
    begun = {each.details["at"] for each in compacting}
    for entry in folder.rewrites.values():
        command = orders[entry.key or ""].command
        is_ours = not isinstance(command, commands.CompactCommit) or command.at in begun
        assert is_ours, f"{name}: a compaction that was begun in another session"


def check_fork(
    name: str, folder: Folder, forked: TimelineEntry, folders: Mapping[str, Folder]
) -> None:
    """A fork is what its source was at an instant, and no event of it is later than that."""
    at = Position.parse(forked.details["at"])
    assert (len(folder.generations), len(folder.present)) == (at.generation + 1, at.line)
    late = [line for line in folder.wire[1:] if Position.parse(json.loads(line)["_at"]) > at]
    assert not late, f"{name}: events later than {at}: {late}"
    sources = [source for other, source in folders.items() if other != name]
    assert any(_is_cut_of(folder, each, at) for each in sources), f"{name} is a cut of no session"


def _is_cut_of(folder: Folder, source: Folder, at: Position) -> bool:
    following = source.wire[len(folder.wire) :][:1]
    return (
        source.generations[: at.generation] == folder.generations[: at.generation]
        and source.lines(at.generation)[: at.line] == folder.present
        and source.wire[: len(folder.wire)] == folder.wire
        # A batch of events is in a fork as a whole or not at all.
        and (not following or stamp_of(following[0]).index == 0)
    )
