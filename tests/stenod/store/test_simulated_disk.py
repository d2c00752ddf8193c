"""The simulated disk: what survives a power cut."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.simulated_disk import (
    MOMENTS,
    Effect,
    Moment,
    PowerCut,
    ProcessKilled,
    SimulatedDisk,
    Survival,
)

ROOT = "/disk"
FILE = "/disk/context.jsonl"
SEEDS = range(60)


def disk_with(content: bytes = b"", seed: int = 0, **options: bool) -> tuple[SimulatedDisk, int]:
    """A disk with one durable file, and a handle to append to it."""
    disk = SimulatedDisk(seed, **options)
    disk.plant(FILE, content)
    return disk, disk.open_append(disk.open_root(ROOT), "context.jsonl")


def outcomes(prepare: Callable[[int], SimulatedDisk]) -> set[bytes]:
    """The contents of the file after power cuts of many seeds."""
    found: set[bytes] = set()
    for seed in SEEDS:
        disk = prepare(seed)
        disk.crash()
        found.add(disk.content(FILE))
    return found


# --- bytes -------------------------------------------------------------------------------------


def test_unsynced_bytes_may_be_lost_kept_torn_or_nul() -> None:
    def prepare(seed: int) -> SimulatedDisk:
        disk, handle = disk_with(b"one\n", seed)
        disk.write(handle, b"two\n")
        return disk

    found = outcomes(prepare)

    assert {b"one\n", b"one\ntwo\n", b"one\nt", b"one\n\0\0\0\0"} <= found
    assert all(content.startswith(b"one\n") for content in found)


def test_an_unsynced_cut_may_be_undone_with_or_without_the_bytes() -> None:
    def prepare(seed: int) -> SimulatedDisk:
        disk, handle = disk_with(b"one\ntorn", seed)
        disk.truncate(handle, 4)
        return disk

    assert outcomes(prepare) == {b"one\n", b"one\ntorn", b"one\n\0\0\0\0"}


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    synced=st.lists(st.binary(min_size=1, max_size=40), max_size=4),
    unsynced=st.lists(st.binary(min_size=1, max_size=40), max_size=4),
    page_bytes=st.sampled_from([1, 7, 16, 4096]),
)
def test_synced_bytes_always_survive_and_nothing_is_invented(
    seed: int, synced: list[bytes], unsynced: list[bytes], page_bytes: int
) -> None:
    disk = SimulatedDisk(seed, page_bytes=page_bytes)
    disk.plant(FILE)
    handle = disk.open_append(disk.open_root(ROOT), "context.jsonl")
    for data in synced:
        disk.write(handle, data)
    disk.fdatasync(handle)
    for data in unsynced:
        disk.write(handle, data)

    disk.crash()

    safe, whole = b"".join(synced), b"".join(synced + unsynced)
    found = disk.content(FILE)
    assert found.startswith(safe)
    assert len(found) <= len(whole)
    assert all(byte in (0, whole[index]) for index, byte in enumerate(found))
    assert disk.durable(FILE) == found


@pytest.mark.parametrize("survival", Survival)
def test_how_a_power_cut_ends_can_be_chosen(survival: Survival) -> None:
    disk, handle = disk_with(b"one\n")
    disk.write(handle, b"two\n")
    disk.crash(survival)
    match survival:
        case Survival.LOST:
            assert disk.content(FILE) == b"one\n"
        case Survival.KEPT:
            assert disk.content(FILE) == b"one\ntwo\n"
        case Survival.TORN:
            assert b"one\ntwo\n".startswith(disk.content(FILE))
        case Survival.NULS:
            assert b"one\n\0\0\0\0".startswith(disk.content(FILE))
        case Survival.SHUFFLED:
            assert disk.content(FILE).startswith(b"one\n")


# --- names -------------------------------------------------------------------------------------


def renamed(seed: int, **options: bool) -> SimulatedDisk:
    """The end of a rewrite: old hard-linked, new renamed over it, the folder not yet synced."""
    disk, _ = disk_with(b"old", seed, **options)
    root = disk.open_root(ROOT)
    disk.foreign.replace("/disk/new", b"new")
    disk.sync_all()
    disk.link(root, "context.jsonl", "context_1.jsonl")
    disk.rename(root, "new", "context.jsonl")
    return disk


BEFORE = {"/disk/context.jsonl": b"old", "/disk/new": b"new"}
LINKED = {**BEFORE, "/disk/context_1.jsonl": b"old"}
AFTER = {"/disk/context.jsonl": b"new", "/disk/context_1.jsonl": b"old"}
REORDERED = {"/disk/context.jsonl": b"new"}


def trees(**options: bool) -> list[dict[str, bytes]]:
    found: list[dict[str, bytes]] = []
    for seed in SEEDS:
        disk = renamed(seed, **options)
        disk.crash()
        if disk.tree() not in found:
            found.append(disk.tree())
    return found


def test_unsynced_names_survive_as_a_prefix_of_the_changes() -> None:
    found = trees()
    assert all(tree in found for tree in (BEFORE, LINKED, AFTER))
    assert REORDERED not in found


def test_unsynced_names_may_survive_each_by_itself_when_asked_for() -> None:
    found = trees(names_in_order=False)
    assert all(tree in found for tree in (BEFORE, LINKED, AFTER, REORDERED))


def test_synced_names_always_survive() -> None:
    for seed in SEEDS:
        disk = renamed(seed, names_in_order=False)
        disk.fsync(disk.open_root(ROOT))
        disk.crash()
        assert disk.tree() == AFTER


def test_a_file_that_was_made_and_removed_again_may_come_back() -> None:
    found: set[bool] = set()
    for seed in SEEDS:
        disk, _ = disk_with(seed=seed)
        root = disk.open_root(ROOT)
        disk.open_new(root, "brief")
        disk.unlink(root, "brief")
        disk.crash()
        found.add("/disk/brief" in disk.tree())
    assert found == {False, True}


@pytest.mark.parametrize("synced", [None, "source", "target"])
def test_moved_folder_is_in_one_place_after_a_power_cut(
    synced: str | None,
) -> None:
    found: set[tuple[str, ...]] = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        disk.plant("/disk/source/s1/f", b"content")
        disk.foreign.make_folder("/disk/target")
        disk.sync_all()
        folders = {name: disk.open_root(f"/disk/{name}") for name in ("source", "target")}
        disk.move(folders["source"], "s1", folders["target"], "s2")
        if synced is not None:
            disk.fsync(folders[synced])
        disk.crash()
        found.add(tuple(disk.tree()))
    before, after = ("/disk/source/s1/f",), ("/disk/target/s2/f",)
    assert found == ({before, after} if synced is None else {after})


# --- deaths ------------------------------------------------------------------------------------


def test_process_death_loses_no_data_and_frees_locks_and_handles() -> None:
    disk, handle = disk_with(b"one\n")
    root = disk.open_root(ROOT)
    assert disk.lock(root)
    disk.write(handle, b"two\n")
    disk.open_new(root, "new")

    disk.kill()

    assert disk.tree() == {FILE: b"one\ntwo\n", "/disk/new": b""}
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.write(handle, b"three\n")
    assert disk.lock(disk.open_root(ROOT))
    disk.crash(Survival.LOST)
    assert disk.tree() == {FILE: b"one\n"}


def procedure(disk: SimulatedDisk) -> None:
    """Every kind of mutating call once."""
    root = disk.open_root("/disk/steno", create=True)
    folder = disk.open_folder(root, "s1", create=True)
    source = disk.open_append(folder, "source", create=True)
    disk.write(source, b"0123456789")
    disk.truncate(source, 8)
    disk.fdatasync(source)
    target = disk.open_new(folder, "target")
    disk.copy(source, target, 0, 8)
    disk.fsync(target)
    disk.link(folder, "source", "kept")
    disk.fsync(folder)
    disk.rename(folder, "target", "source")
    disk.unlink(folder, "kept")
    disk.close(target)
    disk.overwrite(disk.open_append(folder, "source"), 0, b"0")


def test_the_trace_has_every_mutating_call_and_no_other() -> None:
    disk = SimulatedDisk()
    procedure(disk)
    disk.names(disk.open_root("/disk/steno"))
    assert [call.method for call in disk.calls] == [
        "open_root", "open_folder", "open_append", "write", "truncate", "fdatasync", "open_new",
        "copy", "fsync", "link", "fsync", "rename", "unlink", "overwrite",
    ]  # fmt: skip
    assert disk.calls[3] == ("write", "source", "10 bytes")
    assert disk.calls[11] == ("rename", "target", "to source")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_can_die_at_every_call_before_within_and_after_it(moment: Moment) -> None:
    for call in range(14):
        disk = SimulatedDisk()
        disk.kill_at(call, moment)

        with pytest.raises(ProcessKilled):
            procedure(disk)

        assert disk.died
        assert len(disk.calls) == call + 1
        with pytest.raises(ProcessKilled):
            disk.open_root("/")
        disk.restart()
        disk.open_root("/")


def test_a_power_cut_after_a_sync_loses_nothing_and_before_it_may() -> None:
    durable: dict[Moment, bytes] = {}
    for moment in MOMENTS:
        disk, handle = disk_with(b"one\n")
        disk.write(handle, b"two\n")
        disk.crash_at(len(disk.calls), moment)
        with pytest.raises(PowerCut):
            disk.fdatasync(handle)
        disk.restart(Survival.LOST)
        durable[moment] = disk.content(FILE)
    assert durable == {"before": b"one\n", "within": b"one\n", "after": b"one\ntwo\n"}


def test_a_death_that_was_not_reached_is_no_test() -> None:
    disk, _ = disk_with()
    disk.crash_at(1000)
    with pytest.raises(AssertionError, match="no process died"):
        disk.restart()


# --- faults ------------------------------------------------------------------------------------


def test_a_disk_can_fail_at_every_call_once() -> None:
    for call in range(14):
        disk = SimulatedDisk()
        disk.fail_at(call, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            procedure(disk)
        assert len(disk.calls) == call + 1


def test_failed_sync_drops_pages_and_the_next_sync_succeeds() -> None:
    disk, handle = disk_with(b"one\n")
    disk.write(handle, b"two\n")
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fdatasync(handle)

    disk.fdatasync(handle)

    assert disk.read(handle, 100, 0) == b"one\ntwo\n"
    assert disk.durable(FILE) == b"one\n"
    disk.write(handle, b"three\n")
    disk.fdatasync(handle)
    disk.crash()
    assert disk.content(FILE) == b"one\n\0\0\0\0three\n"


def test_a_failed_sync_is_reported_once_to_every_open_handle_only() -> None:
    disk, handle = disk_with(b"one\n")
    folder = disk.open_root(ROOT)
    earlier = disk.open_read(folder, "context.jsonl")
    disk.write(handle, b"two\n")
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fdatasync(earlier)

    later = disk.open_read(folder, "context.jsonl")

    disk.fdatasync(later)
    disk.write(handle, b"three\n")
    with pytest.raises(OSError, match="Input/output error"):
        disk.fdatasync(handle)
    disk.fdatasync(handle)
    disk.fdatasync(earlier)
    assert disk.durable(FILE) == b"one\n\0\0\0\0three\n"


def test_a_cut_that_a_failed_sync_dropped_is_saved_by_holding_the_size() -> None:
    for is_held in (True, False):
        disk, handle = disk_with(b"one\ntwo\n")
        disk.fsync(handle)
        disk.truncate(handle, 4)
        disk.fail_next("fsync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.fsync(handle)
        if is_held:
            disk.mark_size_dirty(handle)
        disk.fsync(handle)
        assert disk.durable(FILE) == (b"one\n" if is_held else b"one\ntwo\n")


def test_pages_dropped_by_a_failed_sync_are_readable_until_memory_is_short() -> None:
    disk, handle = disk_with(b"one\n")
    disk.write(handle, b"two\n")
    disk.fail_next("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fsync(handle)
    disk.write(handle, b"three\n")

    disk.evict(FILE)

    assert disk.content(FILE) == b"one\n\0\0\0\0three\n"


def test_a_failed_sync_may_have_reached_the_medium_in_part_or_whole() -> None:
    found: dict[Effect, set[bytes | None]] = {effect: set() for effect in Effect}
    for effect in Effect:
        for seed in SEEDS:
            disk, handle = disk_with(seed=seed)
            disk.write(handle, b"ab")
            disk.fail_next("fdatasync", errno.EIO, effect=effect)
            with pytest.raises(OSError, match="Input/output error"):
                disk.fdatasync(handle)
            found[effect].add(disk.durable(FILE))
    assert found == {
        Effect.NONE: {b""},
        Effect.PART: {b"", b"a", b"ab"},
        Effect.WHOLE: {b"ab"},
    }


def test_faults_choose_their_calls_by_name_skip_and_times() -> None:
    disk, handle = disk_with()
    other = disk.open_new(disk.open_root(ROOT), "other")
    disk.fail_next("write", errno.EIO, name="context.jsonl", skip=1, times=2)
    results: list[str] = []
    for target in (other, handle, other, handle, handle, handle):
        try:
            disk.write(target, b"x")
            results.append("ok")
        except OSError:
            results.append("failed")
    assert results == ["ok", "ok", "ok", "failed", "failed", "ok"]


def test_a_full_disk_takes_a_part_then_nothing_until_there_is_room_again() -> None:
    disk, handle = disk_with(b"one\n")
    disk.free_bytes = 3

    assert disk.write(handle, b"two\n") == 3
    with pytest.raises(OSError, match="No space left"):
        disk.write(handle, b"\n")
    disk.fdatasync(handle)
    assert disk.durable(FILE) == b"one\ntwo"

    disk.truncate(handle, 4)
    assert disk.free_bytes == 3
    assert disk.write(handle, b"2\n") == 2


def test_an_unlinked_file_takes_room_until_its_last_handle_is_closed() -> None:
    disk, handle = disk_with(b"x" * 100)
    disk.free_bytes = 0
    disk.unlink(disk.open_root(ROOT), "context.jsonl")
    assert disk.free_bytes == 0
    disk.close(handle)
    assert disk.free_bytes == 100


# --- other programs ----------------------------------------------------------------------------


def test_another_program_appends_cuts_replaces_renames_and_deletes_uncounted() -> None:
    disk, handle = disk_with(b"one\n")
    before = len(disk.calls)

    disk.foreign.append(FILE, b"theirs\n")
    disk.write(handle, b"ours\n")
    assert disk.content(FILE) == b"one\ntheirs\nours\n"
    disk.foreign.truncate(FILE, 4)
    disk.foreign.overwrite(FILE, 0, b"ONE")
    assert disk.read(handle, 100, 0) == b"ONE\n"
    disk.foreign.rename(FILE, "context_1.jsonl")
    disk.foreign.replace(FILE, b"new")
    disk.write(handle, b"into the old\n")
    assert disk.content("/disk/context_1.jsonl") == b"ONE\ninto the old\n"
    disk.foreign.delete(FILE)

    assert list(disk.tree()) == ["/disk/context_1.jsonl"]
    assert len(disk.calls) == before + 2


def test_another_users_file_is_refused() -> None:
    disk, _ = disk_with()
    disk.foreign.put_of_another_user("/disk/theirs")
    with pytest.raises(PermissionError, match="another user"):
        disk.open_read(disk.open_root(ROOT), "theirs")
