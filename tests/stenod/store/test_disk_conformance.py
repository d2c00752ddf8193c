"""The conformance suite of disks, real and simulated."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steno_system as system
from steno_protocol import paths
from steno_system import _darwin
from stenod.store.disk import Disk
from stenod_cluster import disk as replicated_disk
from stenod_cluster import mirror
from support.disk_worlds import (
    DiskWorld,
    RealWorld,
    ReplicatedWorld,
    SimulatedWorld,
    close_handles_below,
)
from support.simulated_disk import SimulatedDisk


@pytest.fixture(
    params=[*("posix", "macos posix", "simulated"), "replicated posix", "replicated simulated"]
)
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DiskWorld]:
    engine, _, kind = request.param.rpartition(" ")
    below = RealWorld(tmp_path) if kind == "posix" else SimulatedWorld(SimulatedDisk())
    if engine == "macos":
        for name in ("WRONG_KIND", "copy_file_range", "fdatasync", "fsync"):
            monkeypatch.setattr(system, name, getattr(_darwin, name))
        yield below
    elif engine:
        # The names of this suite are not those of sessions.
        for module in (replicated_disk, mirror):
            monkeypatch.setattr(module, "is_replicated", _is_session_file)
        replicated = ReplicatedWorld(below)
        yield replicated
        replicated.check_other_host()
    else:
        yield below
    if kind == "posix":
        close_handles_below(tmp_path)


def _is_session_file(name: str) -> bool:
    return name.isprintable() and not name.startswith((".", paths.JOURNAL_MARK))


@pytest.fixture
def disk(world: DiskWorld) -> Disk:
    return world.disk


@pytest.fixture
def root(world: DiskWorld) -> Iterator[int]:
    handle = world.disk.open_root(world.path)
    yield handle
    world.disk.close(handle)


def appended(disk: Disk, root: int, name: str, data: bytes) -> int:
    handle = disk.open_append(root, name, create=True)
    disk.write(handle, data)
    return handle


def everything(disk: Disk, handle: int) -> bytes:
    return disk.read(handle, disk.stat(handle).size + 1, 0)


# --- folders -------------------------------------------------------------------------------------


def test_missing_root_is_an_error_unless_it_is_created(disk: Disk, world: DiskWorld) -> None:
    path = f"{world.path}/a/b/c"
    with pytest.raises(FileNotFoundError):
        disk.open_root(path)

    made = disk.open_root(path, create=True)

    assert disk.names(made) == []
    again = disk.open_root(path, create=True)
    assert disk.stat(again).inode == disk.stat(made).inode


def test_a_root_that_is_a_file_is_refused(disk: Disk, world: DiskWorld) -> None:
    world.put("file", b"")
    with pytest.raises(NotADirectoryError):
        disk.open_root(f"{world.path}/file")
    with pytest.raises(NotADirectoryError):
        disk.open_root(f"{world.path}/file", create=True)
    with pytest.raises(NotADirectoryError):
        disk.open_root(f"{world.path}/file/below", create=True)


def test_a_folder_is_made_once_and_opened_from_then_on(disk: Disk, root: int) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open_folder(root, "s1")

    first = disk.open_folder(root, "s1", create=True)
    second = disk.open_folder(root, "s1", create=True)
    third = disk.open_folder(root, "s1")

    inodes = {disk.stat(handle).inode for handle in (first, second, third)}
    assert len(inodes) == 1
    assert disk.names(root) == ["s1"]


@pytest.mark.parametrize("create", [False, True])
def test_a_folder_is_never_a_file_a_link_or_a_fifo(
    disk: Disk, root: int, world: DiskWorld, create: bool
) -> None:
    world.put("file", b"")
    world.put_folder("target")
    world.put_symlink("link")
    world.put_fifo("fifo")
    for name in ("file", "link", "fifo"):
        with pytest.raises(NotADirectoryError):
            disk.open_folder(root, name, create=create)


def test_a_folder_cannot_be_opened_below_a_file(disk: Disk, root: int) -> None:
    file = disk.open_new(root, "file")
    with pytest.raises(NotADirectoryError):
        disk.open_folder(file, "s1")
    with pytest.raises(NotADirectoryError):
        disk.names(file)


def test_names_include_foreign_files(disk: Disk, root: int, world: DiskWorld) -> None:
    disk.open_new(root, "ours")
    disk.open_folder(root, "folder", create=True)
    world.put("theirs", b"")
    world.put_fifo("fifo")
    world.put_symlink("link")
    assert sorted(disk.names(root)) == ["fifo", "folder", "link", "ours", "theirs"]


def test_a_name_need_not_be_unicode(disk: Disk, root: int) -> None:
    name = os.fsdecode(b"caf\xe9")
    disk.open_new(root, name)
    assert disk.names(root) == [name]
    assert disk.stat_name(root, name) is not None


NAMING: list[Callable[[Disk, int, str], object]] = [
    lambda disk, folder, name: disk.open_folder(folder, name),
    lambda disk, folder, name: disk.open_folder(folder, name, create=True),
    lambda disk, folder, name: disk.open_read(folder, name),
    lambda disk, folder, name: disk.open_append(folder, name, create=True),
    lambda disk, folder, name: disk.open_new(folder, name),
    lambda disk, folder, name: disk.stat_name(folder, name),
    lambda disk, folder, name: disk.link(folder, "there", name),
    lambda disk, folder, name: disk.rename(folder, "there", name),
    lambda disk, folder, name: disk.rename(folder, name, "there"),
    lambda disk, folder, name: disk.unlink(folder, name),
    lambda disk, folder, name: disk.move(folder, name, folder, "there"),
    lambda disk, folder, name: disk.move(folder, "there", folder, name),
    lambda disk, folder, name: disk.remove_folder(folder, name),
]


def test_a_name_that_leads_elsewhere_is_refused(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put("there", b"")

    for name in ("", ".", "..", "a/b", "/etc/passwd", "nul\0", "n" * 256):
        for naming in NAMING:
            with pytest.raises(OSError):
                naming(disk, root, name)

    assert disk.names(root) == ["there"]


# --- opening files -------------------------------------------------------------------------------


def test_a_missing_file_is_an_error_unless_it_is_to_be_made(disk: Disk, root: int) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open_read(root, "f")
    with pytest.raises(FileNotFoundError):
        disk.open_append(root, "f")
    assert disk.names(root) == []

    made = disk.open_append(root, "f", create=True)

    assert disk.stat(made).size == 0
    assert disk.names(root) == ["f"]


def test_existing_file_is_opened_with_its_contents(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put("f", b"there")
    handle = disk.open_append(root, "f", create=True)
    disk.write(handle, b" and more")
    assert world.content("f") == b"there and more"


@pytest.mark.parametrize("put", ["put_folder", "put_symlink", "put_fifo"])
def test_a_new_file_takes_no_name_that_anything_has(
    disk: Disk, root: int, world: DiskWorld, put: str
) -> None:
    disk.open_new(root, "file")
    getattr(world, put)("other")
    for name in ("file", "other"):
        with pytest.raises(FileExistsError):
            disk.open_new(root, name)


@pytest.mark.parametrize(
    ("put", "found"),
    [("put_folder", "a folder"), ("put_symlink", "a symbolic link"), ("put_fifo", "a FIFO")],
)
def test_irregular_file_is_refused_at_once_by_name(
    disk: Disk, root: int, world: DiskWorld, put: str, found: str
) -> None:
    world.put("target", b"what a link leads to")
    getattr(world, put)("odd")
    openings: list[Callable[[], int]] = [
        lambda: disk.open_read(root, "odd"),
        lambda: disk.open_append(root, "odd"),
        lambda: disk.open_append(root, "odd", create=True),
    ]
    for opening in openings:
        with pytest.raises(PermissionError, match=f"{found}.*odd"):
            opening()


# --- reading and writing -------------------------------------------------------------------------


def test_two_handles_of_a_file_append_behind_each_other(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    first = disk.open_append(root, "f", create=True)
    second = disk.open_append(root, "f")
    disk.write(first, b"one ")
    disk.write(second, b"two ")
    world.append("f", b"theirs ")
    disk.write(first, b"three")
    assert disk.read(second, 100, 0) == b"one two theirs three"


def test_bytes_are_overwritten_in_place_and_appends_still_go_to_the_end(
    disk: Disk, root: int
) -> None:
    handle = disk.open_new(root, "f")
    disk.write(handle, b"abcdef")

    disk.overwrite(handle, 2, b"CD")
    disk.overwrite(handle, 0, b"")
    disk.write(handle, b"g")

    assert everything(disk, handle) == b"abCDefg"


def test_overwrite_reaches_the_open_file_after_its_name_moved(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    handle = disk.open_new(root, "f")
    disk.write(handle, b"ours")
    world.put("f", b"theirs")

    disk.overwrite(handle, 0, b"OU")

    assert everything(disk, handle) == b"OUrs"
    assert world.content("f") == b"theirs"


def test_file_opened_for_reading_is_not_overwritten(disk: Disk, root: int) -> None:
    disk.write(disk.open_new(root, "f"), b"ours")
    handle = disk.open_read(root, "f")
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.overwrite(handle, 0, b"x")
    assert everything(disk, handle) == b"ours"


def test_to_hold_a_files_size_changes_nothing_that_is_seen(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    handle = disk.open_new(root, "f")
    disk.write(handle, b"ours ")
    world.append("f", b"theirs ")
    before = disk.stat(handle)

    disk.mark_size_dirty(handle)
    disk.fsync(handle)

    after = disk.stat(handle)
    assert msgspec.structs.replace(after, changed_s=before.changed_s) == before
    disk.write(handle, b"end")
    assert everything(disk, handle) == b"ours theirs end"


def test_a_reading_handle_does_not_write(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put("f", b"old")
    reader = disk.open_read(root, "f")
    with pytest.raises(OSError):
        disk.write(reader, b"new")
    with pytest.raises(OSError):
        disk.truncate(reader, 0)
    assert world.content("f") == b"old"


def test_every_handle_can_be_synced(disk: Disk, root: int) -> None:
    writer = disk.open_new(root, "f")
    reader = disk.open_read(root, "f")
    disk.write(writer, b"x")
    for handle in (writer, reader, root):
        disk.fdatasync(handle)
        disk.fsync(handle)
    assert everything(disk, reader) == b"x"


def test_a_closed_handle_is_refused(disk: Disk, root: int) -> None:
    handle = disk.open_new(root, "f")
    disk.close(handle)
    for use in (disk.close, disk.stat, disk.fdatasync, disk.lock):
        with pytest.raises(OSError):
            use(handle)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.integers(min_value=0, max_value=60),
            st.tuples(st.integers(0, 60), st.integers(0, 60)),
        ),
        max_size=12,
    )
)
def test_any_order_of_writes_cuts_and_copies_matches_a_model_in_memory(
    disk: Disk, root: int, world: DiskWorld, steps: list[bytes | int | tuple[int, int]]
) -> None:
    world.put("source", bytes(range(50)))
    source, handle = disk.open_read(root, "source"), disk.open_append(root, "f", create=True)
    # Through the disk: what another program cuts off a session's file, its recovery notices.
    disk.truncate(handle, 0)
    expected = b""
    for step in steps:
        match step:
            case bytes():
                expected += step
                assert disk.write(handle, step) == len(step)
            case int():
                expected = expected[:step].ljust(step, b"\0")
                disk.truncate(handle, step)
            case (offset, size):
                part = bytes(range(50))[offset : offset + size]
                expected += part
                assert disk.copy(source, handle, offset, size) == len(part)
    assert everything(disk, handle) == expected
    disk.close(source)
    disk.close(handle)


def test_a_scratch_file_has_its_bytes_and_no_name(disk: Disk, root: int) -> None:
    handle = disk.open_scratch([b"some ", b"", b"bytes"])
    assert disk.stat(handle).size == 10
    assert disk.read(handle, 100, 5) == b"bytes"
    assert disk.names(root) == []
    target = disk.open_new(root, "copy")
    assert disk.copy(handle, target, 5, 5) == 5
    assert everything(disk, target) == b"bytes"
    disk.close(handle)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        disk.read(handle, 1, 0)


# --- copies --------------------------------------------------------------------------------------


def test_a_copy_ends_where_its_source_ends(disk: Disk, root: int) -> None:
    source = disk.open_new(root, "source")
    disk.write(source, b"0123456789")
    target = disk.open_new(root, "target")

    assert disk.copy(source, target, 8, 100) == 2
    assert disk.copy(source, target, 10, 100) == 0
    assert disk.copy(source, target, 50, 100) == 0
    assert disk.copy(source, target, 0, 0) == 0

    assert everything(disk, target) == b"89"


def test_a_copy_needs_a_source_to_read_and_a_target_to_write(disk: Disk, root: int) -> None:
    disk.open_new(root, "f")
    reader, writer = disk.open_read(root, "f"), disk.open_append(root, "f")
    with pytest.raises(OSError):
        disk.copy(writer, reader, 0, 1)


# --- names and their targets ---------------------------------------------------------------------


def test_a_stat_of_a_name_says_none_when_it_is_not_there(disk: Disk, root: int) -> None:
    assert disk.stat_name(root, "f") is None
    handle = disk.open_new(root, "f")
    assert disk.stat_name(root, "f") == disk.stat(handle)


def test_a_stat_of_a_name_follows_no_link(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put("target", b"content")
    world.put_symlink("link")
    link, target = disk.stat_name(root, "link"), disk.stat_name(root, "target")
    assert link is not None
    assert target is not None
    assert link.inode != target.inode


def test_folder_has_one_device_and_inode_by_any_path(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    by_name = disk.stat(disk.open_folder(root, "s1", create=True))
    by_path = disk.stat(disk.open_root(f"{world.path}/s1"))
    assert (by_name.device, by_name.inode) == (by_path.device, by_path.inode)


def test_a_link_gives_a_file_a_second_name(disk: Disk, root: int) -> None:
    handle = disk.open_new(root, "context.jsonl")
    disk.write(handle, b"x")

    disk.link(root, "context.jsonl", "context_1.jsonl")

    assert disk.stat(handle).links == 2
    assert disk.stat_name(root, "context_1.jsonl") == disk.stat(handle)
    disk.unlink(root, "context.jsonl")
    assert disk.stat(handle).links == 1
    assert disk.names(root) == ["context_1.jsonl"]


def test_a_link_never_takes_a_name_that_is_taken(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put("f", b"f")
    world.put("taken", b"taken")
    world.put_symlink("link")
    for name in ("taken", "link", "f"):
        with pytest.raises(FileExistsError):
            disk.link(root, "f", name)
    with pytest.raises(FileNotFoundError):
        disk.link(root, "missing", "g")
    assert world.content("taken") == b"taken"


def test_rename_keeps_the_inode_and_handles_keep_the_replaced_file(disk: Disk, root: int) -> None:
    old = disk.open_new(root, "context.jsonl")
    disk.write(old, b"old")
    new = disk.open_new(root, "context.jsonl.new")
    disk.write(new, b"new")

    disk.rename(root, "context.jsonl.new", "context.jsonl")

    assert disk.names(root) == ["context.jsonl"]
    assert disk.stat_name(root, "context.jsonl") == disk.stat(new)
    assert disk.stat(new).links == 1
    assert disk.stat(old).links == 0
    disk.write(old, b" lives")
    assert everything(disk, old) == b"old lives"
    assert everything(disk, disk.open_read(root, "context.jsonl")) == b"new"


def test_a_rename_over_another_name_of_the_same_file_leaves_both(disk: Disk, root: int) -> None:
    disk.open_new(root, "a")
    disk.link(root, "a", "b")
    disk.rename(root, "a", "b")
    assert sorted(disk.names(root)) == ["a", "b"]


def test_a_rename_needs_its_file_and_replaces_no_folder(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    world.put("f", b"")
    world.put_folder("folder")
    with pytest.raises(FileNotFoundError):
        disk.rename(root, "missing", "f")
    with pytest.raises(IsADirectoryError):
        disk.rename(root, "f", "folder")
    assert sorted(disk.names(root)) == ["f", "folder"]


def test_an_unlinked_file_lives_on_in_its_handles(disk: Disk, root: int) -> None:
    handle = disk.open_new(root, "f")
    disk.write(handle, b"x")

    disk.unlink(root, "f")

    assert disk.names(root) == []
    assert disk.stat(handle).links == 0
    assert everything(disk, handle) == b"x"
    with pytest.raises(FileNotFoundError):
        disk.unlink(root, "f")


def test_a_folder_is_not_unlinked(disk: Disk, root: int, world: DiskWorld) -> None:
    world.put_folder("folder")
    with pytest.raises(IsADirectoryError):
        disk.unlink(root, "folder")


def test_a_file_that_another_program_replaced_has_another_inode(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    world.put("f", b"first")
    handle = disk.open_append(root, "f")

    world.put("f", b"second")

    found = disk.stat_name(root, "f")
    assert found is not None
    assert found.inode != disk.stat(handle).inode
    assert disk.stat(handle).links == 0


def test_a_symbolic_link_can_be_unlinked_and_its_target_stays(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    world.put("target", b"x")
    world.put_symlink("link")
    disk.unlink(root, "link")
    assert disk.names(root) == ["target"]


def test_a_link_into_another_folder_is_the_same_file(disk: Disk, root: int) -> None:
    other = disk.open_folder(root, "other", create=True)
    handle = disk.open_new(root, "f")
    disk.write(handle, b"x")

    disk.link(root, "f", "g", into=other)

    assert disk.stat_name(other, "g") == disk.stat(handle)
    assert disk.stat(handle).links == 2
    with pytest.raises(FileExistsError):
        disk.link(root, "f", "g", into=other)


def test_a_folder_moves_with_all_that_is_in_it(disk: Disk, root: int) -> None:
    source = disk.open_folder(root, "source", create=True)
    target = disk.open_folder(root, "target", create=True)
    moved = disk.open_folder(source, "s1", create=True)
    disk.open_new(moved, "f")

    disk.move(source, "s1", target, "s2")

    assert disk.names(source) == []
    assert disk.names(target) == ["s2"]
    again = disk.open_folder(target, "s2")
    assert disk.stat(again).inode == disk.stat(moved).inode
    assert disk.names(again) == ["f"]


def test_a_folder_moves_over_an_empty_folder_and_over_nothing_else(
    disk: Disk, root: int, world: DiskWorld
) -> None:
    source = disk.open_folder(root, "source", create=True)
    disk.open_new(disk.open_folder(source, "s1", create=True), "f")
    disk.open_folder(root, "empty", create=True)
    disk.open_new(disk.open_folder(root, "full", create=True), "g")
    world.put("file", b"")
    for name in ("full", "file"):
        with pytest.raises(OSError):
            disk.move(source, "s1", root, name)
    with pytest.raises(FileNotFoundError):
        disk.move(source, "missing", root, "s2")

    disk.move(source, "s1", root, "empty")

    assert disk.names(disk.open_folder(root, "empty")) == ["f"]
    assert disk.names(source) == []


def test_only_an_empty_folder_can_be_removed(disk: Disk, root: int, world: DiskWorld) -> None:
    folder = disk.open_folder(root, "s1", create=True)
    disk.open_new(folder, "f")
    world.put("file", b"")
    for name in ("s1", "file", "missing"):
        with pytest.raises(OSError):
            disk.remove_folder(root, name)
    disk.unlink(folder, "f")

    disk.remove_folder(root, "s1")

    assert disk.names(root) == ["file"]


# --- locks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_keeps_every_other_handle_out_until_it_is_closed(
    disk: Disk, root: int, kind: str
) -> None:
    if kind == "folder":
        first, second = (disk.open_folder(root, "s1", create=True) for _ in range(2))
    else:
        first, second = (disk.open_append(root, "lock", create=True) for _ in range(2))

    assert disk.lock(first)
    assert disk.lock(first)
    assert not disk.lock(second)

    disk.close(first)
    assert disk.lock(second)


def test_closing_a_handle_that_has_no_lock_frees_none(disk: Disk, root: int) -> None:
    first, second, third = (disk.open_append(root, "lock", create=True) for _ in range(3))
    assert disk.lock(first)
    disk.close(second)
    assert not disk.lock(third)


# --- several files at once -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 65, 150])
def test_files_that_are_synced_together_are_all_durable(
    disk: Disk, root: int, world: DiskWorld, count: int
) -> None:
    handles = [appended(disk, root, f"f{number}", b"x") for number in range(count)]
    assert disk.fdatasync_all(handles) == [None] * count


def test_a_sync_that_fails_is_reported_among_those_of_its_group(disk: Disk, root: int) -> None:
    handles = [appended(disk, root, f"f{number}", b"x") for number in range(5)]
    disk.close(handles[2])

    outcomes = disk.fdatasync_all(handles)

    assert len(outcomes) == len(handles)
    assert outcomes[2] is not None
    assert outcomes[2].errno == errno.EBADF


def test_a_name_is_had_by_a_file_of_a_number_and_a_size(disk: Disk, root: int) -> None:
    handle = appended(disk, root, "f", b"abc")
    inode = disk.stat(handle).inode
    assert disk.has(root, "f", inode, 3)
    assert not disk.has(root, "f", inode, 4)
    assert not disk.has(root, "g", inode, 3)
    disk.rename(root, "f", "g")
    assert disk.has(root, "g", inode, 3)
    disk.close(appended(disk, root, "f", b"abc"))
    assert not disk.has(root, "f", inode, 3)
