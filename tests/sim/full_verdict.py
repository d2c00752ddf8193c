"""What must be true of events, compactions and D-Mails when a daemon and its clients are done."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

from sim.agents import Agent, Fate, Order, Reading, Watcher
from sim.files import Files, checkpoints_in
from sim.full_agents import Again, FullAgent, Look
from sim.mail_verdict import check_mail
from sim.rewrites import expected_lines
from sim.verdict import REWRITE_KINDS
from sim.whole_verdict import Folder, folders_of, keys_told, stamp_of
from steno._sansio.wire_events import WireReader
from steno_protocol import commands, paths, timeline_entries
from steno_protocol.errors import (
    Busy,
    Conflict,
    Expired,
    NotFound,
    Outcome,
    ShuttingDown,
    StorageFailed,
    Unreachable,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, MailReport
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from support.happenings import check_facts
from support.simulated_disk import SimulatedDisk

HEADER = {"type": "metadata", "protocol_version": "1.10"}


def judge_all(disk: SimulatedDisk, agents: Sequence[FullAgent], *, is_sure: bool) -> None:
    """Check what `whole_verdict` leaves out.

    Args:
        disk: what became of it.
        agents: what they asked for and were told.
        is_sure: nothing failed that could take back what was acknowledged as `written`.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    everywhere = folders_of(disk.tree())
    folders = {
        path: folder
        for path, folder in everywhere.items()
        # What a failure or a death cut short just before its session was deleted is never mended.
        if not path.startswith(paths.TRASH)
    }
    orders = [order for agent in agents for order in agent.orders]
    by_key = {order.key: order for order in orders}
    repeated = {copy.order.key for agent in agents for copy in agent.copies}
    waiting: dict[str, str | None] = {}
    for path, folder in folders.items():
        entries = timeline.decode(folder.happenings)
        check_facts(entries)
        forked = next((entry for entry in entries if entry.kind == "forked"), None)
        _check_wire(path, folder)
        if forked is not None:
            _check_fork(path, folder, forked, everywhere)
            continue
        waiting[path] = _check_rewrites(path, folder, entries, by_key)
        _check_once(path, folder, entries)
        _check_replaced(entries, by_key)
        # What was sent again to a session that was made again is applied there once more.
        if _was_never_deleted(path, everywhere):
            _check_places(folder, orders)
    for order in orders:
        _check_order(order, everywhere)
    for agent in agents:
        _check_agent(agent, everywhere, waiting, by_key, is_sure=is_sure)
        for reading in agent.readings:
            _check_reading(reading, everywhere, repeated)


# --- one folder ----------------------------------------------------------------------------------


def _check_wire(path: str, folder: Folder) -> None:
    """One header, whole batches, each key once, and places that never fall and are all there."""
    records = [json.loads(line) for line in folder.wire]
    if records:
        assert records[0] == HEADER, f"{path}: {records[0]}"
    assert not folder.wire or folder.wire[-1].endswith(b"\n")
    keys = [stamp_of(line) for line in folder.wire[1:]]
    assert all(key for key, _, _ in keys), f"{path}: an event of nobody"
    assert len(set(keys)) == len(keys), f"{path}: an event is there twice"
    for number, (key, index, count) in enumerate(keys):
        around = keys[number - index : number - index + count] if index <= number else []
        wanted = [(key, each, count) for each in range(count)]
        assert around == wanted, f"{path}: a batch of events that is not whole: {around}"
    found = [Position.parse(record["_at"]) for record in records[1:]]
    assert found == sorted(found), f"{path}: the place in the context fell"
    for at in found:
        assert at.generation < len(folder.generations), f"{path}: an event is joined to {at}"
        end = len(folder.generations[at.generation])
        assert at.line <= end, f"{path}: an event is joined to {at}, there are {end} lines"


def _check_rewrites(
    path: str, folder: Folder, entries: Sequence[TimelineEntry], by_key: Mapping[str, Order]
) -> str | None:
    """Each rewrite made its generation out of the one before; returns the mail that waits."""
    rewrites = {entry.generation: entry for entry in entries if entry.kind in REWRITE_KINDS}
    count = len(folder.generations)
    assert sorted(rewrites) == list(range(1, count)), f"{path}: {sorted(rewrites)} of {count}"
    orders = {number: by_key[entry.key or ""] for number, entry in rewrites.items()}
    begun = {
        number: Position.parse(order.command.at).line
        for number, order in orders.items()
        if isinstance(order.command, commands.CompactCommit)
    }
    files = Files(folder.generations, rewrites, begun)
    for lines in folder.generations:
        ids = [number for number, _ in checkpoints_in(lines)]
        assert ids == sorted(set(ids)), f"{path}: ids that do not rise: {ids}"
    for number, entry in rewrites.items():
        _check_rewrite(path, files, entry, orders[number], entries)
    return check_mail(files, entries, ())


def _check_rewrite(
    path: str, files: Files, entry: TimelineEntry, order: Order, entries: Sequence[TimelineEntry]
) -> None:
    command = order.command
    assert isinstance(command, commands.Mutation)
    if isinstance(command, commands.CompactCommit):
        told = {each.details["at"] for each in entries if each.kind == timeline_entries.COMPACTING}
        assert command.at in told, f"{path}: a compaction that was begun in another session"
    after = files.generations[entry.generation][: entry.details["lines"]]
    expected = expected_lines(files, entry, command)
    assert len(after) == len(expected), f"{path}: {entry.kind} has {len(after)} lines"
    for line, wanted in zip(after, expected, strict=True):
        assert wanted in (None, line), f"{path}: {entry.kind} kept {line!r}, not {wanted!r}"
    kept = files.before(entry)[: entry.kept]
    assert kept == after[: entry.kept], f"{path}: {entry.kind} kept other lines than it says"


def _check_once(path: str, folder: Folder, entries: Sequence[TimelineEntry]) -> None:
    """No command was applied again after a rewrite had removed what it wrote."""
    made = {
        entry.generation: entry.details["lines"] for entry in entries if entry.kind in REWRITE_KINDS
    }
    applied = Counter(entry.key for entry in entries if entry.key and entry.kind != "fork")
    for number, lines in enumerate(folder.generations):
        stamps = map(stamp_of, lines[made.get(number, 0) :])
        applied.update(key for key, index, _ in stamps if index == 0)
    applied.update(key for key, index, _ in map(stamp_of, folder.wire[1:]) if index == 0)
    twice = {key: times for key, times in applied.items() if times > 1}
    assert not twice, f"{path}: applied more than once: {twice}"


def _check_replaced(entries: Sequence[TimelineEntry], by_key: Mapping[str, Order]) -> None:
    """A mail takes the place of another only if its sender said so."""
    for entry in entries:
        if entry.kind == "sent":
            command = by_key[entry.key or ""].command
            assert isinstance(command, commands.SendDmail)
            replaced = entry.details.get("replaces")
            assert replaced in (None, command.replaces), f"{entry.key} replaced {replaced}"


def _check_fork(
    path: str, folder: Folder, forked: TimelineEntry, folders: Mapping[str, Folder]
) -> None:
    """A fork is what its source was at an instant, and no event of it is later than that."""
    at = Position.parse(forked.details["at"])
    assert len(folder.generations) == at.generation + 1
    assert len(folder.present) == at.line
    late = [line for line in folder.wire[1:] if Position.parse(json.loads(line)["_at"]) > at]
    assert not late, f"{path}: events later than {at}: {late}"
    assert any(_is_cut_of(folder, other, at) for name, other in folders.items() if name != path), (
        f"{path} is a cut of no session"
    )


def _is_cut_of(folder: Folder, source: Folder, at: Position) -> bool:
    past = folder.generations[: at.generation]
    return (
        source.generations[: at.generation] == past
        and source.lines(at.generation)[: at.line] == folder.present
        and source.wire[: len(folder.wire)] == folder.wire
        and _ends_there(folder, source)
    )


def _ends_there(folder: Folder, source: Folder) -> bool:
    """A batch of events is in a fork as a whole or not at all."""
    following = source.wire[len(folder.wire) :][:1]
    return not following or stamp_of(following[0])[1] == 0


def _check_places(folder: Folder, orders: Sequence[Order]) -> None:
    """An event is joined to the context as it was: behind all that its agent had done before."""
    joined = {
        key: Position.parse(json.loads(line)["_at"])
        for line in folder.wire[1:]
        if (key := stamp_of(line)[0])
    }
    told = keys_told(folder)
    for order in orders:
        before = order.after
        if before is None or not {order.key, before.key} <= told:
            continue
        ack = before.answers[0]
        if order.key in joined:
            head = Position.parse(ack.head)
            at = joined[order.key]
            assert at >= head, f"{order.key} is joined to {at}, and {before.key} made {head}"
        elif before.key in joined and (answers := _acks(order)):
            head, at = Position.parse(answers[0].head), joined[before.key]
            assert at <= head, f"{before.key} is joined to {at}, before {order.key} at {head}"


# --- what was asked for --------------------------------------------------------------------------


def _check_order(order: Order, folders: Mapping[str, Folder]) -> None:
    match order.command:
        case commands.SendDmail() if order.fate is Fate.DONE:
            _check_sent(order, folders)
        case commands.CompactCommit() if order.fate is Fate.REFUSED:
            _check_refused(order, order.command, folders)
        case _:
            pass


def _check_sent(order: Order, folders: Mapping[str, Folder]) -> None:
    """The mail is in a timeline, as its ack says."""
    found = [
        (entry["details"]["checkpoint_id"], entry["details"]["head"])
        for folder in folders.values()
        for entry in folder.timeline
        if entry["kind"] == "sent" and entry["key"] == order.key
    ]
    for ack in order.answers:
        told = ack.checkpoint_id, ack.head
        assert told in found, f"{order.key} was sent as {told}, and the timelines tell {found}"


def _check_refused(
    order: Order, command: commands.CompactCommit, folders: Mapping[str, Folder]
) -> None:
    """A compaction is refused only because of a rewrite, or because its session was deleted."""
    error = order.error
    assert error is not None
    is_of_the_moment = isinstance(error, (*_OF_THE_MOMENT, Expired, StorageFailed))
    if is_of_the_moment or not _was_never_deleted(order.session, folders):
        return
    assert isinstance(error, Conflict), f"{order.key}: {error!r}"
    present = len(folders[order.session].generations) - 1
    at = Position.parse(command.at)
    assert at.generation < present, f"{order.key}: {error!r}, but nothing was rewritten"


def _was_never_deleted(session: str, folders: Mapping[str, Folder]) -> bool:
    """True for a session that is there and was made once."""
    deleted = (_deleted_id(path) for path in folders if path.startswith(paths.TRASH))
    return session in folders and session not in deleted


def _deleted_id(path: str) -> str:
    """The id of a session in the trash, which may have come there with one above it."""
    # .trash/<when>.<key>.<id, with ~ for />[/<what lay below it>]
    name, _, below = path.removeprefix(f"{paths.TRASH}/").partition("/")
    above = name.split(".", 2)[2].replace("~", "/")
    return f"{above}/{below}" if below else above


def _check_agent(
    agent: FullAgent,
    folders: Mapping[str, Folder],
    waiting: Mapping[str, str | None],
    by_key: Mapping[str, Order],
    *,
    is_sure: bool,
) -> None:
    for look in agent.looks:
        _check_look(look, waiting, by_key)
    for watcher in agent.watchers:
        _check_told(agent, watcher, waiting)
    for copy in agent.copies:
        _check_copy(copy, folders, is_sure=is_sure)


def _check_look(look: Look, waiting: Mapping[str, str | None], by_key: Mapping[str, Order]) -> None:
    if (error := look.pending.error) is not None:
        assert not look.is_last or isinstance(error, NotFound), repr(error)
        return
    report = look.pending.reply
    assert isinstance(report, MailReport)
    found = report.mail
    if look.is_last:
        told = None if found is None else found.id
        assert told == waiting[look.session], f"{told} is told, {waiting[look.session]} waits"
    if found is None:
        return
    assert found.id not in look.gone, f"{found.id} waits, and was delivered"
    command = by_key[found.id].command
    assert isinstance(command, commands.SendDmail)
    assert (command.session, command.message) == (look.session, found.message)
    assert command.checkpoint_id == found.checkpoint_id


def _check_told(agent: Agent, watcher: Watcher, waiting: Mapping[str, str | None]) -> None:
    """Whoever follows to the end knows which mail waits."""
    follower, event = watcher.follower, watcher.mail
    if follower.error is not None:
        return
    if follower.file == "wire":
        assert event is None, f"{agent.name} was told of {event} beside the wire file"
        return
    mail = waiting[follower.session]
    if mail is not None:
        assert event is not None, f"{agent.name} was not told of {mail}"
        assert (event.state, event.id) == ("sent", mail), f"{agent.name}: {event}, {mail} waits"
    elif event is not None and watcher.mail_name == follower.name:
        assert event.state != "sent", f"{event.id} is gone, which {agent.name} was not told"


def _check_reading(reading: Reading, folders: Mapping[str, Folder], repeated: Set[str]) -> None:
    """What was known to be done before a reading began is read, if it was not withdrawn."""
    if not reading.lines or not _was_never_deleted(reading.session, folders):
        return
    folder, number = folders[reading.session], reading.lines[0][0].generation
    is_wire = isinstance(reading.reader, WireReader)
    found = folder.wire if is_wire else folder.lines(number)
    for order in reading.done_before:
        ack = order.answers[0]
        # What was withdrawn, and then sent again, may have come to the same place later.
        is_certain = ack.durability == "synced" or order.key not in repeated
        if isinstance(order.command, commands.AppendWire) is not is_wire or not is_certain:
            continue
        first = Position.parse(ack.first)
        is_there = first.line < len(found) and stamp_of(found[first.line])[0] == order.key
        assert first.generation != number or not is_there or first.line < len(reading.lines), (
            f"{order.key} at {first} was done, and then {len(reading.lines)} lines were read"
        )


def _check_copy(copy: Again, folders: Mapping[str, Folder], *, is_sure: bool) -> None:
    """A command that is sent again after its answer gets that answer again."""
    order = copy.order
    first = order.answers[0]
    is_certain = is_sure or first.durability == "synced"
    if not (is_certain and _was_never_deleted(order.session, folders)):
        return
    if (error := copy.pending.error) is not None:
        is_open = error.outcome is Outcome.UNKNOWN or isinstance(error, _OF_THE_MOMENT)
        assert is_open, f"{order.key} was acked, and now {error!r}"
        return
    ack = copy.pending.reply
    assert isinstance(ack, Ack)
    assert ack.duplicate, f"{order.key} was applied again: {ack}"
    told = (ack.first, ack.last, ack.head, ack.checkpoint_id)
    assert told == (first.first, first.last, first.head, first.checkpoint_id), f"{order.key}"


def _acks(order: Order) -> list[Any]:
    return [answer for answer in order.answers if isinstance(answer, Ack)]


_OF_THE_MOMENT = (Busy, ShuttingDown, Unreachable)
"""Refusals that tell nothing of what the command did when it was sent first."""
