"""Opening a session: make what is there durable, settle what a crash left open, then believe it.

`inspect` reads a session and repairs nothing; `open_session` opens it for its one writer and puts
right what only a crash can have left: a rewrite that did not take place, a torn tail.
"""

from collections.abc import Callable

import msgspec

from steno_protocol import limits, places
from steno_protocol.context import ContextCounters
from steno_protocol.errors import Corrupt, Held, NotFound
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.replies import Happening, Mail
from stenod.core import dmail, timeline
from stenod.core.found import applied_in
from stenod.core.keys import KeyTable
from stenod.core.lines import is_object
from stenod.core.machine import Machine
from stenod.core.mark import Mark, encode_mark
from stenod.core.replay import Replay
from stenod.core.speculation import Speculation
from stenod.core.wire_machine import WireMachine
from stenod.mending import FileEnd, fingerprint
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.jsonl import JsonlLog


class Opening(msgspec.Struct, frozen=True):
    """How a session is to be opened.

    Attributes:
        session: its id, for messages.
        path: its folder's path, for messages and answers.
        now: Unix time in seconds.
        incarnation: the id that a new session gets.
        create: make the session if there is none.
        stamp: whether a new session's lines bear `_id`.
        shared: other programs write in this folder too, so a fresh half line may be theirs.
        by: the client that asks.
        proven: the length that was durable when a sync of this file failed in this process.
    """

    session: str
    path: str
    now: float
    incarnation: str
    create: bool = False
    stamp: bool = True
    shared: bool = False
    by: str | None = None
    proven: int | None = None


class OpenHow(msgspec.Struct, frozen=True):
    """How a session's files are to be opened.

    Attributes:
        create: make the session if there is none.
        stamp: whether a new session's lines bear `_id`.
        by: the client that asks.
        proven: the length that was durable when a sync failed, or None.
    """

    create: bool = False
    stamp: bool = True
    by: str | None = None
    proven: int | None = None


class Opened(msgspec.Struct, frozen=True):
    """A session that is open for its writer."""

    log: JsonlLog
    machine: Speculation
    incarnation: str
    created: bool


class Inspection(msgspec.Struct, frozen=True):
    """What a session's files say, read without changing them.

    Attributes:
        size: bytes that a reader may be given: whole batches of whole lines.
        head: the position there.
    """

    size: int
    head: Position
    counters: ContextCounters
    incarnation: str
    stamp: bool


def open_session(disk: Disk, folder: int, opening: Opening) -> Opened:
    """Open a session for its writer; takes over the folder's handle, and closes it on failure.

    Raises:
        Held: another daemon has the folder open.
        NotFound: there is no session, and none is to be made.
        Corrupt: its present generation is gone; nothing was changed.
        Busy: another program seems to be in the middle of a line.
        OSError: the disk failed; nothing is known to have changed.
    """
    context: int | None = None
    try:
        if not disk.lock(folder):
            raise Held(
                f"another daemon has {opening.path} open: stop it, or use its root",
                session=opening.session,
            )
        _check_present(disk, folder, opening)
        entries = _settle_timeline(disk, folder)
        context = _open_context(disk, folder, opening)
        return _open_files(disk, folder, context, opening, entries)
    except BaseException:
        for handle in (context, folder):
            if handle is not None:
                disk.close(handle)
        raise


def inspect(disk: Disk, folder: int, handle: int) -> Inspection:
    """Read what a session's files say; `handle` is its open `context.jsonl`. Nothing is repaired.

    The file is synced first, so that nothing is shown that a power cut could take back.
    """
    disk.fdatasync(handle)
    generation = present_generation(disk, folder)
    end = FileEnd(disk, folder, handle, places.CONTEXT, generation, session="", path="")
    mark = end.mark()
    size = end.readable_size(mark)
    replay = end.replay(mark, size)
    entries = timeline.decode(jsonl.read_file(disk, folder, places.TIMELINE))
    _raise_to_floor(replay, entries, generation)
    return Inspection(
        size=size,
        head=Position(generation, replay.lines),
        counters=replay.counters,
        incarnation=_incarnation(entries) or "",
        stamp=_stamp(entries),
    )


def pending_mail(disk: Disk, folder: int) -> Mail | None:
    """The D-Mail that waits in a session; nothing is repaired."""
    entries = timeline.decode(jsonl.read_file(disk, folder, places.TIMELINE))
    return dmail.pending(entries, present_generation(disk, folder))


def readable_size(disk: Disk, folder: int, handle: int, name: str, generation: int) -> int:
    """Bytes of a session's file that a reader may be given, without reading all of it.

    The file is synced first, so that nothing is shown that a power cut could take back.
    """
    disk.fdatasync(handle)
    end = FileEnd(disk, folder, handle, name, generation, session="", path="")
    return end.readable_size(end.mark())


def mark_of(log: JsonlLog, machine: Speculation) -> bytes:
    """The mark of an open session at its durable head."""
    size = log.synced
    tail_start = max(0, size - limits.FINGERPRINT_BYTES)
    tail = log.read(log.generation, tail_start, size - tail_start)
    return encode_mark(
        generation=log.generation,
        inode=log.stat().inode,
        size=size,
        crc=timeline.fingerprint(size, tail)[1],
        lines=machine.head.line,
        counters=machine.counters,
        milestones=machine.milestones,
    )


def _check_present(disk: Disk, folder: int, opening: Opening) -> None:
    """Leave a session whose present generation is gone as it is: nothing of it can be judged.

    Raises:
        Corrupt: it is.
    """
    is_there = disk.stat_name(folder, places.CONTEXT) is not None
    if not is_there and jsonl.past_generations(disk, folder):
        raise Corrupt(
            f"{opening.path} has older generations and no {places.CONTEXT}: move the newest"
            f" context_N.jsonl to {places.CONTEXT} to go on from it",
            session=opening.session,
        )


def _open_context(disk: Disk, folder: int, opening: Opening) -> int:
    try:
        return disk.open_append(folder, places.CONTEXT)
    except FileNotFoundError:
        pass
    if not opening.create:
        raise NotFound("there is no such session: open it first", session=opening.session)
    return disk.open_append(folder, places.CONTEXT, create=True)


def _open_files(
    disk: Disk, folder: int, context: int, opening: Opening, entries: list[Happening]
) -> Opened:
    generation = present_generation(disk, folder)
    end = FileEnd(disk, folder, context, places.CONTEXT, generation, opening.session, opening.path)
    size, replay = _believe(end, opening, entries)
    created = not entries and replay.lines == 0
    if _incarnation(entries) is None:
        first = _first_entry(opening, generation, created=created)
        jsonl.tell(disk, folder, timeline.encode(first))
        entries = [*entries, first]
    _raise_to_floor(replay, entries, generation)
    log = JsonlLog(disk, folder, opening.path, context, generation, size)
    first_lines = timeline.first_lines_of(entries, generation)
    machine = Machine(
        opening.session,
        Position(generation, replay.lines),
        replay.counters,
        _recent_keys(log, opening, replay.lines, first_lines),
        stamp=_stamp(entries),
    )
    machine.milestones = replay.milestones
    machine.checkpoint_floor = timeline.checkpoint_floor(entries, generation)
    machine.unreserved_id = timeline.unreserved_id(entries, generation)
    machine.mail = dmail.pending(entries, generation)
    machine.delivered = dmail.delivered_last(entries)
    return Opened(log, machine, _incarnation(entries) or "", created)


def open_wire(
    disk: Disk,
    folder: int,
    opening: Opening,
    *,
    stamp: bool,
    context_head: Callable[[], Position],
) -> Opened:
    """Open the wire file of a session whose context is open, and so locked, in this process.

    Takes over the folder's handle, and closes it on failure. A file that is not there is made.

    Raises:
        Busy: another program seems to be in the middle of a line.
        OSError: the disk failed; nothing is known to have changed.
    """
    handle: int | None = None
    try:
        handle = disk.open_append(folder, places.WIRE, create=True)
        entries = timeline.decode(jsonl.read_file(disk, folder, places.TIMELINE))
        end = FileEnd(disk, folder, handle, places.WIRE, 0, opening.session, opening.path)
        size, replay = _believe(end, opening, entries)
        log = JsonlLog(disk, folder, opening.path, handle, 0, size, name=places.WIRE)
        machine = WireMachine(
            opening.session,
            Position(0, replay.lines),
            _recent_keys(log, opening, replay.lines, 0),
            stamp=stamp,
            context_head=context_head,
        )
        return Opened(log, machine, _incarnation(entries) or "", created=False)
    except BaseException:
        for opened in (handle, folder):
            if opened is not None:
                disk.close(opened)
        raise


def _raise_to_floor(replay: Replay, entries: list[Happening], generation: int) -> None:
    """The next checkpoint's id is at least the one that the last rewrite left free."""
    floor = timeline.checkpoint_floor(entries, generation)
    replay.counters.n_checkpoints = max(replay.counters.n_checkpoints, floor)


def _believe(end: FileEnd, opening: Opening, entries: list[Happening]) -> tuple[int, Replay]:
    """Make a file durable, mend its end, and read what it says: its size and the replay of it."""
    mark = end.mark()
    is_fresh = end.is_fresh(opening.now, shared=opening.shared)
    if is_fresh:
        end.check_settled(mark)
    end.make_durable(_proven(end, opening, mark, entries), shared=opening.shared)
    if is_fresh:
        end.check_settled(mark)
    size = end.mend(mark, opening.now, entries)
    return size, end.replay(mark, size)


def _proven(end: FileEnd, opening: Opening, mark: Mark | None, entries: list[Happening]) -> int:
    """The length that some sync is known to have made durable."""
    if mark is not None:
        return mark.bytes
    if opening.proven is not None:
        return opening.proven
    # A file that was never ours has no acknowledged byte, and what others wrote is theirs to sync,
    # as long as no sync of ours failed.
    return max(0, end.size - limits.UNPROVEN_BYTES_MAX) if entries else end.size


def _settle_timeline(disk: Disk, folder: int) -> list[Happening]:
    """Repair the timeline's own tail, and take back a rewrite that did not take place."""
    jsonl.remove(disk, folder, places.REWRITE)
    _mend_timeline(disk, folder)
    _unlink_twin(disk, folder)
    data = jsonl.read_file(disk, folder, places.TIMELINE)
    last = timeline.in_doubt(data)
    if last is None or _took_place(disk, folder, last):
        return timeline.decode(data)
    voided = Happening(kind=timeline.VOIDED, generation=last.generation, key=last.key)
    line = timeline.encode(voided)
    jsonl.tell(disk, folder, line)
    return timeline.decode(data + line)


def _mend_timeline(disk: Disk, folder: int) -> None:
    """Cut what is torn, and make durable what is left before it is believed.

    Every line is synced before the next, so only the last can be torn or unproven. Damage before a
    whole line is old: it stays where it is.
    """
    data = jsonl.read_file(disk, folder, places.TIMELINE)
    lines = split_lines(data)
    while lines and not (lines[-1].endswith(b"\n") and is_object(lines[-1])):
        lines.pop()
    keep = sum(map(len, lines))
    if not data:
        return
    if keep < len(data):
        jsonl.quarantine(disk, folder, places.TIMELINE, keep, data[keep:])
    handle = disk.open_append(folder, places.TIMELINE)
    try:
        if keep < len(data):
            disk.truncate(handle, keep)
        if lines:
            disk.overwrite(folder, places.TIMELINE, keep - len(lines[-1]), lines[-1])
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _unlink_twin(disk: Disk, folder: int) -> None:
    """Take back the second name that a rewrite gave the present file before it was cut short."""
    past = jsonl.past_generations(disk, folder)
    if past and _is_present(disk, folder, past[-1]):
        disk.unlink(folder, places.generation_file(past[-1] + 1))
        disk.fsync(folder)


def _took_place(disk: Disk, folder: int, rewrite: Happening) -> bool:
    """Whether the last rewrite's rename happened.

    Then the old file has its number, and what followed it begins with the new one; both may have
    grown since, by other programs. A rotation by another program has other bytes.
    """
    followed = places.generation_file(rewrite.generation + 1)
    if disk.stat_name(folder, followed) is None:
        followed = places.CONTEXT
    old = timeline.fingerprint_of(rewrite, "old")
    new = timeline.fingerprint_of(rewrite, "new")
    rotated = places.generation_file(rewrite.generation)
    return _begins_with(disk, folder, rotated, old) and _begins_with(disk, folder, followed, new)


def _begins_with(disk: Disk, folder: int, name: str, expected: timeline.Fingerprint | None) -> bool:
    try:
        handle = disk.open_read(folder, name)
    except FileNotFoundError:
        return False
    try:
        if expected is None:
            return True
        size = expected[0]
        return disk.stat(handle).size >= size and fingerprint(disk, handle, size) == expected
    finally:
        disk.close(handle)


def _is_present(disk: Disk, folder: int, generation: int) -> bool:
    """True when a past generation's file is the very file that is the present one."""
    old = disk.stat_name(folder, places.generation_file(generation + 1))
    present = disk.stat_name(folder, places.CONTEXT)
    return old is not None and present is not None and old.inode == present.inode


def present_generation(disk: Disk, folder: int) -> int:
    """The generation that `context.jsonl` is."""
    past = jsonl.past_generations(disk, folder)
    if past and _is_present(disk, folder, past[-1]):
        past.pop()
    return past[-1] + 1 if past else 0


def _recent_keys(log: JsonlLog, opening: Opening, lines: int, first_lines: int) -> KeyTable:
    """The keys of the last lines that were appended to this generation itself."""
    table = KeyTable(opened_ms=int(opening.now * 1000))
    start = max(0, log.size - limits.BLOCK_BYTES)
    data = log.read(log.generation, start, log.size - start)
    if start:
        data = data[data.find(b"\n") + 1 :]
    found = split_lines(data)
    first = lines - len(found)
    for key, applied in applied_in(found, log.generation, first):
        if applied.first.line >= first_lines:
            table.add(key, applied)
    return table


def _first_entry(opening: Opening, generation: int, *, created: bool) -> Happening:
    return Happening(
        kind="created" if created else "adopted",
        generation=generation,
        at=opening.now,
        by=opening.by,
        details={"incarnation": opening.incarnation, "stamp": opening.stamp},
    )


def _incarnation(entries: list[Happening]) -> str | None:
    for entry in entries:
        value = entry.details.get("incarnation")
        if isinstance(value, str):
            return value
    return None


def _stamp(entries: list[Happening]) -> bool:
    return all(entry.details.get("stamp", True) is not False for entry in entries)
