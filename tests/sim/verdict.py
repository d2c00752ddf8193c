"""What must be true of a session's files after everything, told from the bytes alone.

It reads the files as any JSON program would, and shares no code with the daemon but the decoding of
the timeline's entries.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from sim.clients import Fate, Follower, Order, is_mail, is_prompt, is_rewrite
from sim.files import Files, Lines, checkpoints_in
from sim.files import record_of as _record
from sim.mail_verdict import check_mail, check_told
from sim.rewrites import expected_lines
from steno_protocol.commands import CompactCommit, Mutation
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail
from steno_protocol.timeline_entries import TimelineEntry
from support.happenings import check_facts

_STAMP = re.compile(r"([A-Za-z0-9_-]+)(?:\.(\d+)/(\d+))?")

REWRITE_KINDS = ("reverted", "cleared", "prompted", "restored", "compacted", "delivered")


def check(
    generations: Sequence[Lines],
    happenings: Sequence[TimelineEntry],
    orders: Sequence[Order],
    followers: Sequence[Follower],
    *,
    waiting: Mail | None,
    has_foreign: bool,
) -> None:
    """Check everything that steno promises of one session.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    check_facts(happenings)
    rewrites = [entry for entry in happenings if entry.kind in REWRITE_KINDS]
    batches = _batches(generations, rewrites, has_foreign=has_foreign)
    for order in orders:
        _check_answers(order)
        if is_mail(order):
            continue
        if is_rewrite(order):
            _check_rewrite(order, rewrites)
        elif not (is_prompt(order) and any(entry.key == order.key for entry in rewrites)):
            _check_records(order, generations, batches)
    commands = {order.key: order.command for order in orders}
    begun = {
        entry.generation: Position.parse(command.at).line
        for entry in rewrites
        if isinstance(command := commands[entry.key or ""], CompactCommit)
    }
    files = Files(generations, {entry.generation: entry for entry in rewrites}, begun)
    _check_generations(files, commands, has_foreign=has_foreign)
    told = check_mail(files, happenings, orders)
    assert told == (waiting.id if waiting is not None else None)
    for follower in followers:
        check_told(follower, told)
    for follower in followers:
        for position, data in follower.seen.items():
            found = generations[position.generation][position.line]
            assert found == data, f"a follower saw {data!r} at {position}, the file has {found!r}"


def _batches(
    generations: Sequence[Lines], rewrites: Sequence[TimelineEntry], *, has_foreign: bool
) -> list[dict[str, tuple[int, int]]]:
    """For each file the first line and the size of every command in it."""
    compactions = {entry.key for entry in rewrites if entry.kind == "compacted"}
    found: list[dict[str, tuple[int, int]]] = []
    earlier = set[str]()
    for lines in generations:
        batches: dict[str, tuple[int, int]] = {}
        for key, first, size in _batches_in(lines, earlier, has_foreign=has_foreign):
            # A compaction's token count is a line of its own.
            assert key not in batches or key in compactions, f"{key} is there twice"
            batches[key] = first, size
        found.append(batches)
        earlier |= batches.keys()
    return found


def _batches_in(
    lines: Lines, earlier: set[str], *, has_foreign: bool
) -> Iterator[tuple[str, int, int]]:
    """Key, first line and size of every command in a file: each is whole.

    Only its end may be left of one that was whole `earlier`: a compaction drops heads.
    """
    number = 0
    while number < len(lines):
        match = _STAMP.fullmatch(
            str(_record(lines[number], has_foreign=has_foreign).get("_id", ""))
        )
        # Another program that writes behind a torn line of ours keeps it from being cut.
        if match is None or (has_foreign and not _is_whole(lines[number:], match)):
            assert has_foreign, f"a line of nobody: {lines[number]!r}"
            number += 1
            continue
        key, first, size = match[1], int(match[2] or 0), int(match[3] or 1)
        expected = [key] if size == 1 else [f"{key}.{part}/{size}" for part in range(first, size)]
        found = [_record(line).get("_id") for line in lines[number : number + size - first]]
        assert found == expected, f"a batch that is not whole: {found} instead of {expected}"
        assert first == 0 or key in earlier or has_foreign, f"{key} lost its head"
        if first == 0:
            yield key, number, size
        number += size - first


def _is_whole(lines: Lines, match: re.Match[str]) -> bool:
    key, first, size = match[1], int(match[2] or 0), int(match[3] or 1)
    if size == 1:
        return True
    expected = [f"{key}.{part}/{size}" for part in range(first, size)]
    found = [_record(line, has_foreign=True).get("_id") for line in lines[: size - first]]
    return found == expected


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


def _check_rewrite(order: Order, rewrites: Sequence[TimelineEntry]) -> None:
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
        public = {key: value for key, value in record.items() if not key.startswith("_")}
        assert public == _record(given)
        assert record.get("_by") == order.command.by
    if ack.checkpoint_id is not None:
        assert _record(lines[0])["id"] == ack.checkpoint_id


def _check_generations(
    files: Files, commands: Mapping[str, Mutation], *, has_foreign: bool
) -> None:
    """Each rewrite made its generation out of the one before, line by line."""
    if not has_foreign:
        numbers = sorted(files.rewrites)
        count = len(files.generations)
        assert numbers == list(range(1, count)), f"{numbers}, {count} files"
        for lines in files.generations:
            ids = [number for number, _ in checkpoints_in(lines)]
            assert ids == sorted(set(ids)), f"ids that do not rise: {ids}"
    for entry in files.rewrites.values():
        after = files.generations[entry.generation][: entry.details["lines"]]
        before = files.before(entry)
        expected = expected_lines(files, entry, commands[entry.key or ""])
        found = [line for line, wanted in zip(after, expected, strict=True) if wanted != line]
        made = [line for line, wanted in zip(after, expected, strict=True) if wanted is None]
        assert found == made, f"{entry.kind} kept other lines"
        if entry.kept:
            assert list(before[: entry.kept]) == list(after[: entry.kept])
