"""The real disk: modes, owners, copies by the kernel, full disks."""

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno_system as system
from steno_protocol import limits
from stenod.store.posix import PosixDisk
from support.disk_worlds import close_handles_below


@pytest.fixture
def disk() -> PosixDisk:
    return PosixDisk()


@pytest.fixture
def root(disk: PosixDisk, tmp_path: Path) -> Iterator[int]:
    yield disk.open_root(str(tmp_path))
    close_handles_below(tmp_path)


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_are_private_to_their_owner(disk: PosixDisk, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        root = disk.open_root(str(tmp_path / "a" / "b"), create=True)
        folder = disk.open_folder(root, "s", create=True)
        disk.open_new(folder, "new")
        disk.open_append(folder, "append", create=True)
    finally:
        os.umask(before)
    for part in ("a", "a/b", "a/b/s"):
        assert mode(tmp_path / part) == 0o700
    for part in ("new", "append"):
        assert mode(tmp_path / "a/b/s" / part) == 0o600


def test_no_handle_is_inherited_by_another_program(disk: PosixDisk, root: int) -> None:
    folder = disk.open_folder(root, "s", create=True)
    handles = [root, folder, disk.open_new(folder, "f"), disk.open_read(folder, "f")]
    assert not any(os.get_inheritable(handle) for handle in handles)


def test_a_refused_file_leaves_no_handle_open(disk: PosixDisk, root: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = open_handles()
    for opening in (disk.open_read, disk.open_append):
        with pytest.raises(PermissionError, match="a FIFO"):
            opening(root, "fifo")
    assert open_handles() == before


def test_a_listing_is_whole_beside_another_one_by_the_same_handle(
    disk: PosixDisk, root: int
) -> None:
    names = {f"f{number}" for number in range(3)}
    for name in names:
        disk.open_new(root, name)
    with os.scandir(root) as other:
        # The kernel hands out such a folder in one piece: the handle stands at its end now.
        next(other)
        assert set(disk.names(root)) == names


def test_a_file_of_another_user_is_refused_and_its_owner_named(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.close(disk.open_new(root, "f"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    handles_before = open_handles()

    for opening in (disk.open_read, disk.open_append):
        with pytest.raises(PermissionError, match=f"user {owner}"):
            opening(root, "f")

    assert open_handles() == handles_before


def test_a_link_as_the_last_part_of_a_root_is_followed(disk: PosixDisk, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    linked = disk.stat(disk.open_root(str(tmp_path / "link"), create=True))
    assert linked.inode == (tmp_path / "real").stat().st_ino


@pytest.mark.parametrize("why", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_that_cannot_copy_is_replaced_by_reading_and_writing(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(system, "copy_file_range", refuse)
    source, target = disk.open_new(root, "source"), disk.open_new(root, "target")
    disk.write(source, b"0123456789" * 1000)

    assert disk.copy(source, target, 5, 20_000) == 9_995

    assert disk.read(target, 20_000, 0) == (b"0123456789" * 1000)[5:]


def test_an_unexpected_copy_error_is_raised(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(system, "copy_file_range", fail)
    source, target = disk.open_new(root, "source"), disk.open_new(root, "target")
    disk.write(source, b"x")

    with pytest.raises(OSError, match="Input/output error"):
        disk.copy(source, target, 0, 1)

    disk.write(target, b"still ")
    disk.truncate(target, 0)
    disk.write(target, b"appends")
    assert disk.read(target, 100, 0) == b"appends"


def test_copy_onto_a_full_disk_is_short_and_the_next_fails(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_some = os.copy_file_range
    room = [4]

    def copy(source: int, target: int, size: int, **offsets: int) -> int:
        count = min(size, room[0])
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= count
        return copy_some(source, target, count, **offsets)

    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source, target = disk.open_new(root, "source"), disk.open_new(root, "target")
    disk.write(source, b"0123456789")
    monkeypatch.setattr(system, "copy_file_range", copy)
    monkeypatch.setattr(os, "write", write)

    assert disk.copy(source, target, 0, 10) == 4
    with pytest.raises(OSError, match="No space left"):
        disk.copy(source, target, 4, 6)

    assert disk.read(target, 100, 0) == b"0123"


def test_every_folder_that_is_made_is_synced_into_its_parent(
    disk: PosixDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def record(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        sync(handle)

    monkeypatch.setattr(system, "fsync", record)
    root = disk.open_root(str(tmp_path / "a" / "b"), create=True)
    disk.open_folder(root, "s1", create=True)
    disk.open_folder(root, "s1", create=True)
    disk.close(root)

    assert synced == [str(tmp_path), str(tmp_path / "a"), *[str(tmp_path / "a" / "b")] * 2]


LIMITED = """
import resource, signal, sys
from stenod.store.posix import PosixDisk
disk = PosixDisk()
root = disk.open_root(sys.argv[1])
source = disk.open_new(root, "source")
disk.write(source, b"s" * 1000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
target = disk.open_new(root, "target")
print(disk.write(target, b"t" * 600), disk.write(target, b"t" * 600), end=" ")
try:
    disk.write(target, b"t")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def test_a_write_that_has_room_for_a_part_says_how_much_went_in(tmp_path: Path) -> None:
    # A file size limit is the full disk that needs no privilege: short first, then the error.
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True, text=True, timeout=30, check=True, env=_same_path(),
    )  # fmt: skip
    assert done.stdout.split() == ["600", "400", "OSError", str(errno.EFBIG)]


def _same_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


# --- several files at once ---------------------------------------------------------------------


def test_files_are_synced_one_by_one_when_there_is_no_thread(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    handles = [disk.open_new(root, f"f{number}") for number in range(5)]
    synced: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(system, "fdatasync", synced.append)
    assert disk.fdatasync_all(handles) == [None] * 5
    assert synced == handles


def test_files_are_synced_at_the_same_time(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [disk.open_new(root, f"f{number}") for number in range(limits.COMMIT_THREADS_MAX)]
    together = threading.Barrier(len(handles))
    monkeypatch.setattr(system, "fdatasync", lambda _: together.wait(30))
    assert disk.fdatasync_all(handles) == [None] * len(handles)


def test_an_error_that_is_reported_once_is_not_lost_when_threads_run_out(
    disk: PosixDisk, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()
    failed = set[int]()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def fail_once(handle: int) -> None:
        if handle not in failed:
            failed.add(handle)
            raise OSError(errno.EIO, "lost")

    handles = [disk.open_new(root, f"f{number}") for number in range(20)]
    monkeypatch.setattr(threading.Thread, "start", start_one)
    monkeypatch.setattr(system, "fdatasync", fail_once)
    assert all(isinstance(outcome, OSError) for outcome in disk.fdatasync_all(handles))
    assert len(failed) == 20
