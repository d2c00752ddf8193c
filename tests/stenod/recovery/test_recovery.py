"""Openings after an accident."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from steno_protocol import limits, paths
from steno_protocol.context import ContextCounters
from steno_protocol.errors import Busy, Corrupt
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.recovery_point import encode_recovery_point
from stenod.recovery.recovery_points import save_recovery_point
from stenod.store.handles import write_all
from stenod.store.names import read_file
from stenod.store.posix import PosixDisk
from support.disk_worlds import RealWorld, SimulatedWorld, close_handles_below
from support.lines import (
    append,
    checkpoint,
    clear,
    foreign,
    prompt,
    stamped,
    usage,
    user,
    uuid7,
)
from support.simulated_disk import PowerCut, SimulatedDisk, Survival
from support.stored_session import NOW_S, StoredSession, apply, find_key


class CountingDisk(PosixDisk):
    """The real disk with a count of the bytes read."""

    read_bytes = 0

    def read(self, handle: int, size: int, offset: int) -> bytes:
        data = super().read(handle, size, offset)
        self.read_bytes += len(data)
        return data


ONE = b"".join(stamped("k1", ["one"]))
BATCH = b"".join(stamped("k2", ["two", "three", "four"]))
LAST = b"".join(stamped("k3", ["five", "six"]))
LOG = ONE + LAST
WHOLE = [0, len(ONE), len(LOG)]
ENTRY = timeline.encode(TimelineEntry(kind="forked", generation=0, why="to try another way"))


@pytest.fixture
def world() -> SimulatedWorld:
    """The real disk passes the same suite as this one: `test_disk_conformance`."""
    return SimulatedWorld(SimulatedDisk())


@pytest.fixture
def session(world: SimulatedWorld) -> StoredSession:
    return StoredSession(world.disk, world.path)


def created(session: StoredSession, **how: bool) -> None:
    session.open(**how).log.close()


def simulated(seed: int = 0, **options: bool) -> tuple[SimulatedDisk, StoredSession]:
    disk = SimulatedDisk(seed, **options)
    disk.foreign.make_folder("/disk/demo")
    disk.sync_all()
    return disk, StoredSession(disk, "/disk/demo")


def whole_before(size: int) -> int:
    return max(whole for whole in WHOLE if whole <= size)


def repairs(session: StoredSession) -> list[dict[str, object]]:
    return [entry.details for entry in session.timeline() if entry.kind == "repaired"]


# --- opening -------------------------------------------------------------------------------------


def test_a_session_of_another_program_can_be_adopted_to_stay_without_stamps(
    world: SimulatedWorld, session: StoredSession
) -> None:
    world.put(paths.CONTEXT, foreign("theirs"))

    opened = session.open(stamp=False)
    apply(opened, append("k1"), b'{"role":"user","content":"ours"}')
    opened.log.close()

    assert session.file() == foreign("theirs") + b'{"role":"user","content":"ours"}\n'
    assert not session.open(stamp=True).machine.stamp


def test_session_without_its_present_generation_is_left_unchanged() -> None:
    disk, session = simulated()
    opened = session.open()
    for number in range(3):
        apply(opened, append(f"k{number}"), user("x"))
        apply(opened, clear(f"c{number}"))
    opened.log.close()
    disk.foreign.delete(f"{session.path}/{paths.CONTEXT}")
    before = disk.tree()

    for _ in range(2):
        with pytest.raises(Corrupt, match="context_N"):
            session.open()

    assert disk.tree() == before


def test_a_file_that_came_to_harm_takes_back_no_rewrite_but_the_last() -> None:
    disk, session = simulated()
    opened = session.open()
    for number in range(3):
        apply(opened, append(f"k{number}"), user("x"))
        apply(opened, clear(f"c{number}"))
    opened.log.close()
    disk.foreign.delete(f"{session.path}/context_3.jsonl")

    for _ in range(3):
        session.open().log.close()

    kinds = [entry.key for entry in session.timeline() if entry.kind == "cleared"]
    assert kinds == ["c0", "c1"]


# --- torn tails ----------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
def test_a_log_cut_at_any_byte_opens_with_exactly_its_whole_batches(
    world: SimulatedWorld, marked: bool
) -> None:
    for cut in range(len(LOG) + 1):
        session = _session_in(world, f"cut-{cut}")
        opened = session.open()
        if marked:
            save_recovery_point(opened)
        opened.log.append(LOG[:cut])
        opened.log.close()

        again = session.open()

        keep = whole_before(cut)
        assert session.file() == LOG[:keep]
        assert again.machine.head == Position(0, LOG.count(b"\n", 0, keep))
        assert session.quarantined() == ([LOG[keep:cut]] if cut > keep else [])
        assert [entry["offset"] for entry in repairs(session)] == ([keep] if cut > keep else [])
        again.log.close()


def _session_in(world: SimulatedWorld, name: str) -> StoredSession:
    world.put_folder(name)
    return StoredSession(world.disk, f"{world.path}/{name}")


def test_quarantine_keeps_no_more_than_its_limit(
    world: SimulatedWorld, session: StoredSession
) -> None:
    created(session)
    for number in range(limits.QUARANTINE_FILES_MAX + 3):
        world.append(paths.CONTEXT, b'{"half %d' % number)
        session.open().log.close()

    kept = session.quarantined()
    assert len(kept) == limits.QUARANTINE_FILES_MAX
    assert b'{"half %d' % (limits.QUARANTINE_FILES_MAX + 2) in kept


def test_damage_in_the_middle_is_left_where_it_is(
    world: SimulatedWorld, session: StoredSession
) -> None:
    created(session)
    data = ONE + b'{"role":"user",\n' + BATCH
    world.append(paths.CONTEXT, data)

    opened = session.open()

    assert session.file() == data
    assert opened.machine.head == Position(0, 5)
    assert not session.quarantined()


# --- a folder that others write too --------------------------------------------------------------


@pytest.mark.parametrize("with_mark", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("half", [b'{"role":"us', foreign("theirs")[:-1]], ids=["half", "unended"])
def test_a_half_line_in_a_shared_folder_is_left_until_it_stood_still(
    world: SimulatedWorld, session: StoredSession, half: bytes, with_mark: bool
) -> None:
    opened = session.open(shared=True)
    apply(opened, append("k1"), user("one"))
    if with_mark:
        save_recovery_point(opened)
    opened.log.close()
    world.append(paths.CONTEXT, half)
    before = session.file()

    for _ in range(2):
        with pytest.raises(Busy, match="writing a line"):
            session.open(shared=True, now_s=NOW_S)
        assert session.file() == before

    # Looking at it must not make it look fresh: it is repaired once it is old enough.
    session.open(shared=True, now_s=NOW_S + limits.FOREIGN_SETTLE_S + 1)
    assert session.file() in (ONE, ONE + half + b"\n")


# --- the mark ------------------------------------------------------------------------------------


def commands(session: StoredSession) -> None:
    opened = session.open()
    apply(opened, prompt("p", "be kind"))
    apply(opened, append("k1"), user("one"))
    apply(opened, usage("u", 70))
    apply(opened, checkpoint("c", add_user_message=True))
    save_recovery_point(opened)
    apply(opened, append("k2"), user("two"), user("three"))
    opened.log.close()


def _rename_mark(session: StoredSession, make: Callable[[bytes], bytes]) -> None:
    folder = session.disk.open_root(session.path)
    mark = make(read_file(session.disk, folder, paths.MARK))
    session.disk.unlink(folder, paths.MARK)
    handle = session.disk.open_new(folder, paths.MARK)
    write_all(session.disk, handle, mark)
    session.disk.close(handle)
    session.disk.close(folder)


def lying_mark(size: int) -> Callable[[bytes], bytes]:
    counters = ContextCounters(token_count=999)
    mark = encode_recovery_point(
        generation=0, inode=5, size=size, crc=1, lines=1, counters=counters
    )
    return lambda _: mark


@pytest.mark.parametrize(
    "make",
    [
        lambda mark: b"",
        lambda mark: mark[:20],
        lambda mark: mark.replace(b'"lines":5', b'"lines":3'),
        lambda mark: bytes(len(mark)),
        lying_mark(10),
        lying_mark(10**9),
        lying_mark(-5),
    ],
    ids=["empty", "cut", "changed", "nul", "short", "long", "negative"],
)
def test_a_mark_that_is_wrong_changes_nothing_but_speed(
    session: StoredSession, make: Callable[[bytes], bytes]
) -> None:
    commands(session)
    _rename_mark(session, make)

    opened = session.open()

    assert opened.machine.head == Position(0, 7)
    assert opened.machine.counters.token_count == 70
    assert opened.machine.counters.n_checkpoints == 1
    assert opened.machine.counters.has_system_prompt


def test_damage_before_the_mark_is_corruption_and_stays(
    world: SimulatedWorld, session: StoredSession
) -> None:
    opened = session.open()
    opened.log.append(ONE + b"{broken\n" + BATCH)
    opened.log.close()
    opened = session.open()
    save_recovery_point(opened)
    opened.log.close()
    world.append(paths.CONTEXT, LAST[:-1])

    session.open()

    assert session.file() == ONE + b"{broken\n" + BATCH


def test_a_session_of_10_mb_with_a_mark_is_opened_without_reading_it(tmp_path: Path) -> None:
    world = RealWorld(tmp_path)
    session = StoredSession(world.disk, world.path)
    opened = session.open()
    block = b"".join(stamped("k", ["x" * 180])) * 50
    opened.log.append(block * (10_000_000 // len(block)))
    opened.log.close()
    opened = session.open()
    save_recovery_point(opened)
    head = opened.machine.head
    opened.log.close()
    counting = CountingDisk()

    opened = StoredSession(counting, world.path).open()

    assert opened.machine.head == head
    # The keys of the last MiB and the proof of the recovery point are read, not all 10 MB.
    assert counting.read_bytes < 2 * limits.MIB
    close_handles_below(tmp_path)


# --- durability ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "ours"])
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "same-process"])
def test_lines_left_in_the_page_cache_by_a_failed_sync_are_rewritten_first(
    restarted: bool, shared: bool
) -> None:
    disk, session = simulated()
    opened = session.open(shared=shared)
    apply(opened, append("k1"), user("one"))
    opened.log.append(BATCH)
    disk.fail_next("fdatasync", 5)
    with pytest.raises(OSError, match="context"):
        opened.log.sync()
    proven = None if restarted else opened.log.synced
    disk.kill()

    assert session.open(proven=proven, shared=shared).machine.head == Position(0, 4)

    disk.crash(Survival.LOST)
    assert session.open().machine.head == Position(0, 4)


@pytest.mark.parametrize("survival", Survival)
def test_an_interrupted_repair_loses_no_byte_and_is_recorded(
    survival: Survival,
) -> None:
    disk, session = simulated()
    created(session)
    disk.plant("/disk/demo/context.jsonl", ONE + BATCH[:-3])
    rehearsal = disk.clone()
    StoredSession(rehearsal, session.path).open()
    first = len(disk.calls)
    for call in range(first, len(rehearsal.calls)):
        for moment in ("before", "within", "after"):
            broken = disk.clone()
            broken.reseed(call)
            broken.crash_at(call, moment)
            again = StoredSession(broken, session.path)
            try:
                again.open()
            except PowerCut:
                broken.restart(survival)
            else:
                broken.heal()
                broken.crash(survival)
            again.open()

            assert again.file() == ONE
            assert BATCH[:-3] in again.quarantined()
            repaired = [(entry["offset"], entry["kept_in"]) for entry in repairs(again)]
            assert {offset for offset, _ in repaired} == {len(ONE)}
            # Only a cut that itself was torn is another damage.
            assert len(repaired) == len(set(repaired))


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"", BATCH[:-3], b"\0\0\0", foreign("theirs")[:-1], b"{broken\n"])
def test_inspection_changes_no_byte_and_matches_an_opening(
    world: SimulatedWorld, session: StoredSession, tail: bytes
) -> None:
    commands(session)
    world.append(paths.CONTEXT, tail)
    before = session.tree()

    found = session.inspect()

    assert session.tree() == before
    assert found.head == Position(0, 7)
    assert found.incarnation == "first"
    assert found.counters.token_count == 70
    assert session.file()[: found.size].count(b"\n") == 7


# --- the timeline's own tail ---------------------------------------------------------------------


def test_a_torn_timeline_is_cut_and_kept(world: SimulatedWorld, session: StoredSession) -> None:
    created(session)
    world.append(paths.TIMELINE, b'{"kind":"rev')

    opened = session.open()

    assert opened.incarnation == "first"
    assert session.quarantined() == [b'{"kind":"rev']
    assert [entry.kind for entry in session.timeline()] == ["created"]


@pytest.mark.parametrize("left", [1, 12, len(ENTRY) - 1])
def test_line_behind_an_uncut_half_line_is_readable(left: int) -> None:
    disk, session = simulated()
    opened = session.open()
    disk.shorten_next("write", left)
    disk.fail_next("write", errno.ENOSPC, name=paths.TIMELINE, skip=1)
    disk.fail_next("truncate", errno.EIO, name=paths.TIMELINE)
    before = session.file(paths.TIMELINE)
    with pytest.raises(OSError, match="Input/output"):
        opened.log.append_timeline(ENTRY)
    assert session.file(paths.TIMELINE) == before + ENTRY[:left]

    opened.log.append_timeline(ENTRY)
    opened.log.append_timeline(ENTRY)

    lines = session.file(paths.TIMELINE).splitlines(keepends=True)
    assert lines[0] == before
    assert lines[-2:] == [ENTRY, ENTRY]
    opened.log.close()
    session.open()
    assert session.file(paths.TIMELINE).splitlines(keepends=True) == lines


def test_old_damage_in_a_timeline_costs_no_later_entry(
    world: SimulatedWorld, session: StoredSession
) -> None:
    created(session)
    world.append(paths.TIMELINE, b"{broken\n")
    opened = session.open()
    apply(opened, append("k1"), user("one"))
    opened.log.close()
    rewritten = session.open()
    apply(rewritten, clear("c"))
    rewritten.log.close()
    folder = session.disk.open_root(session.path)
    whole = read_file(session.disk, folder, paths.TIMELINE)
    world.put(paths.TIMELINE, whole.replace(b"}\n", b"}\n{broken\n", 1))

    opened = session.open()

    assert find_key(opened, "c") is not None
    assert not find_key(opened, uuid7(1, 1))
