"""Several files synced by one call: when that is believed, and when each is synced by itself."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from steno_protocol import limits
from steno_protocol.limits import MIB
from stenod.store import whole_sync
from stenod.store.jsonl import JsonlLog
from stenod.store.posix import PosixDisk
from stenod.store.whole_sync import WholeSync
from support.disk_worlds import close_handles_below

Tails = list[tuple[int, int]]

FEW = b"MemTotal: 9 kB\nDirty:              4000 kB\nWriteback:            96 kB\nMapped: 9999 kB\n"
MANY = FEW.replace(b"96 kB", b"97 kB")
"""Exactly as much unwritten as is waited for, and a little more."""


class Counted(WholeSync):
    """The real thing, with its one call counted and made to fail or to take time.

    Attributes:
        calls: how often it was called.
        fails: it fails from now on.
        takes_s: how long it takes.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.calls = 0
        self.fails = False
        self.takes_s = 0.0
        self.now = 1000.0

    def monotonic(self) -> float:
        """As the one of `time`."""
        return self.now

    def _write_out(self) -> None:
        self.calls += 1
        self.now += self.takes_s
        if self.fails:
            raise OSError(errno.EIO, "bad")
        super()._write_out()


class PlayedKernel:
    """A kernel that says of each file how much of it is unwritten, and how much under way.

    The real one may write any file at any time, as when others ask it to sync theirs.

    Attributes:
        asked: from where on it was asked for each file.
    """

    def __init__(self, unwritten: int, under_way: int) -> None:
        self._counts = unwritten, under_way
        self.asked: list[int] = []

    def syncfs(self, _: int) -> int:
        return 0

    def syscall(self, *arguments: Any) -> int:
        _, _, part, counts, _ = arguments
        self.asked.append(part[0])
        counts[1], counts[2] = self._counts
        return 0


@pytest.fixture
def meminfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel says of the machine's memory, played by hand: little is unwritten."""
    played = tmp_path / "meminfo"
    played.write_bytes(FEW)
    monkeypatch.setattr(whole_sync, "_MEMORY", str(played))
    return played


@pytest.fixture
def whole(tmp_path: Path, meminfo: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """That of a file system on which it is believed."""
    whole = Counted(tmp_path.parent)
    monkeypatch.setattr(whole_sync, "time", whole)
    probe = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT)
    try:
        if not whole._is_believed or not whole._is_written(probe, 0):
            pytest.skip("temporary files are neither on ext4 nor on XFS")
    except OSError as error:
        pytest.skip(f"the kernel does not tell what is unwritten of a file: {error}")
    finally:
        os.close(probe)
    return whole


@pytest.fixture
def disk(whole: Counted, tmp_path: Path) -> Iterator[PosixDisk]:
    """The disk of that file system."""
    yield PosixDisk(whole)
    close_handles_below(tmp_path)


@pytest.fixture
def tails(disk: PosixDisk, tmp_path: Path) -> Tails:
    """Four files, to each of which something was appended."""
    root = disk.open_root(str(tmp_path))
    tails = [(disk.open_new(root, f"f{number}"), 0) for number in range(4)]
    dirty(tails)
    return tails


def dirty(tails: Tails) -> None:
    for handle, _ in tails:
        os.write(handle, b"x" * 600)


def test_files_are_durable_by_one_call(whole: Counted, tails: Tails) -> None:
    while all(whole._is_written(*tail) for tail in tails):
        # Somebody else had it written meanwhile.
        dirty(tails)
    assert whole.sync(tails)
    assert all(whole._is_written(*tail) for tail in tails)
    assert whole.calls == 1


def test_few_files_are_synced_by_themselves(whole: Counted, disk: PosixDisk, tails: Tails) -> None:
    few = tails[: limits.WHOLE_SYNC_FILES_MIN - 1]
    assert disk.fdatasync_all(few) == [None] * len(few)
    assert all(whole._is_written(*tail) for tail in few)
    assert not whole.calls
    assert whole.sync(tails[: len(few) + 1])


@pytest.mark.parametrize("fails", [False, True])
def test_the_cache_of_the_disk_is_flushed_behind_it(
    whole: Counted, tails: Tails, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    order: list[str] = []
    library = whole._library

    class Kernel(PlayedKernel):
        def syncfs(self, handle: int) -> int:
            order.append("syncfs")
            return int(library.syncfs(handle))

    def flush(handle: int) -> None:
        assert handle == whole._handle
        order.append("flush")
        if fails:
            raise OSError(errno.EIO, "bad")

    monkeypatch.setattr(whole, "_library", Kernel(0, 0))
    monkeypatch.setattr(os, "fdatasync", flush)
    assert whole.sync(tails) is not fails
    assert order == ["syncfs", "flush"]
    # An error of the flush is one that is told once, too.
    assert whole.sync(tails) is not fails
    assert len(order) == (2 if fails else 4)


def test_while_much_is_unwritten_each_file_is_synced_by_itself(
    whole: Counted, disk: PosixDisk, tails: Tails, meminfo: Path
) -> None:
    meminfo.write_bytes(MANY)
    assert disk.fdatasync_all(tails) == [None] * 4
    assert all(whole._is_written(*tail) for tail in tails)
    assert not whole.calls


@pytest.mark.parametrize("told", [None, b"", b"MemTotal: 9 kB\n", b"\nDirty: much kB\n"])
def test_where_nobody_tells_how_much_is_unwritten_each_is_synced_by_itself(
    whole: Counted, tails: Tails, meminfo: Path, told: bytes | None
) -> None:
    if told is None:
        meminfo.unlink()
    else:
        meminfo.write_bytes(told)
    assert not whole.sync(tails)
    assert not whole.calls


def test_the_kernel_of_this_machine_tells_how_much_is_unwritten() -> None:
    assert 0 <= whole_sync._unwritten_bytes() < float("inf")


def test_after_an_error_the_group_fails_and_one_call_is_never_believed_again(
    whole: Counted, disk: PosixDisk, tails: Tails, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.fails = True
    failing = tails[1][0]
    asked = syncs_of_each(monkeypatch, failing)
    outcomes = disk.fdatasync_all(tails)
    assert [outcome is None for outcome in outcomes] == [False] * 4
    whole.fails = False
    dirty(tails)
    # The error may have been about a file that is synced only now, and is told once.
    outcomes = disk.fdatasync_all(tails)
    assert [outcome is None for outcome in outcomes] == [False] * 4
    assert whole.calls == 1
    assert len(asked) == 2


def syncs_of_each(monkeypatch: pytest.MonkeyPatch, failing: int) -> list[Sequence[int]]:
    """Have the syncs of one file fail; gives the files of each time when all were synced."""
    asked: list[Sequence[int]] = []

    def sync(handles: Sequence[int]) -> list[OSError | None]:
        asked.append(handles)
        return [OSError(errno.EIO, "bad") if handle == failing else None for handle in handles]

    monkeypatch.setattr("stenod.store.kernel_syncs.fdatasync_all", sync)
    return asked


def test_what_the_kernel_put_off_is_synced_file_by_file(
    whole: Counted, disk: PosixDisk, tails: Tails, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(whole, "_library", PlayedKernel(1, 0))
        assert disk.fdatasync_all(tails) == [None] * 4
    assert all(whole._is_written(*tail) for tail in tails)
    # That is no error, and the next call may well do what it says.
    assert whole.sync(tails)


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (0, 1)])
def test_a_file_is_durable_when_nothing_of_it_is_unwritten_or_under_way(
    whole: Counted, tails: Tails, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int]
) -> None:
    monkeypatch.setattr(whole, "_library", PlayedKernel(*counts))
    assert whole.sync(tails) == (counts == (0, 0))


def test_what_the_kernel_refuses_is_an_error(
    whole: Counted, tails: Tails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_handle", -1)
    assert not whole.sync(tails)
    assert not whole.sync(tails)
    assert whole.calls == 1


def test_only_what_was_appended_is_asked_for(
    whole: Counted, tails: Tails, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = PlayedKernel(0, 0)
    monkeypatch.setattr(whole, "_library", kernel)
    starts = [0, 600, 5 * MIB, 7]
    assert whole.sync([(handle, start) for (handle, _), start in zip(tails, starts, strict=True)])
    assert kernel.asked == starts


def test_after_one_that_was_slow_there_is_none_for_a_while(whole: Counted, tails: Tails) -> None:
    whole.takes_s = limits.WHOLE_SYNC_S_MAX * 1.01
    assert whole.sync(tails)
    whole.takes_s = 0.0
    whole.now += limits.WHOLE_SYNC_PAUSE_S * 0.99
    assert not whole.sync(tails)
    whole.now += limits.WHOLE_SYNC_PAUSE_S * 0.02
    assert whole.sync(tails)
    assert whole.sync(tails)
    assert whole.calls == 3


def test_files_elsewhere_are_synced_by_themselves(whole: Counted, tails: Tails) -> None:
    elsewhere = os.open("/proc/self/status", os.O_RDONLY)
    try:
        assert not whole.sync([*tails, (elsewhere, 0)])
    finally:
        os.close(elsewhere)
    assert not whole.calls
    assert whole.sync(tails)


def test_a_closed_handle_fails_its_group(whole: Counted, disk: PosixDisk, tails: Tails) -> None:
    disk.close(tails[1][0])
    outcomes = disk.fdatasync_all(tails)
    assert [outcome is None for outcome in outcomes] == [False] * 4
    assert not whole.calls
    assert whole.sync([tails[0], *tails[2:]])


def test_a_file_system_that_is_not_known_is_not_synced_as_a_whole(
    tails: Tails, meminfo: Path
) -> None:
    unknown = Counted(Path("/proc/self"))
    assert not unknown.sync([(os.open("/proc/self/status", os.O_RDONLY), 0)] * 4)
    assert not unknown.calls


def test_its_handle_goes_with_it(tmp_path: Path) -> None:
    def held() -> int:
        found = 0
        for link in Path("/proc/self/fd").iterdir():
            # The handle of this very list is gone by then.
            with suppress(FileNotFoundError):
                found += link.readlink() == tmp_path
        return found

    whole = WholeSync(str(tmp_path))
    assert held() == 1
    del whole
    assert held() == 0


def test_a_log_reports_its_durable_length(
    disk: PosixDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [log_in(disk, tmp_path / name) for name in ("a", "b")]
    asked: list[Tails] = []
    sync = disk.fdatasync_all

    def record(tails: Tails) -> list[OSError | None]:
        asked.append(tails)
        return sync(tails)

    monkeypatch.setattr(disk, "fdatasync_all", record)
    logs[0].append(b'{"n":1}\n')
    JsonlLog.sync_all(logs)
    logs[0].append(b'{"n":2}\n')
    logs[1].append(b'{"n":3}\n')
    logs[1].append(b'{"n":4}\n')
    JsonlLog.sync_all(logs)
    assert [[start for _, start in tails] for tails in asked] == [[0, 0], [8, 0]]
    assert [log.synced for log in logs] == [16, 16]


def log_in(disk: PosixDisk, folder: Path) -> JsonlLog:
    folder.mkdir()
    opened = disk.open_root(str(folder))
    handle = disk.open_append(opened, "context.jsonl", create=True)
    return JsonlLog(disk, opened, str(folder), handle, generation=0, size=0)
