"""The syncs of the process: overlapping ones share one verdict.

Every sync of the daemon is a call of this module, whoever makes it and for whatever file: an error
that one of them consumed would be a success of another one otherwise.
"""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

import msgspec

import steno_system as system
from steno_protocol.limits import COMMIT_THREADS_MAX

T = TypeVar("T")


def fsync(handle: int) -> None:
    """Make a file, or a folder's names, durable."""
    _process.run(os.fstat(handle).st_dev, system.fsync, handle)


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fsync(handle)
    finally:
        os.close(handle)


def fdatasync(handle: int) -> None:
    """Make a file's content and size durable."""
    _process.run(os.fstat(handle).st_dev, system.fdatasync, handle)


def fdatasync_all(handles: Sequence[int], threads: ThreadPoolExecutor) -> list[OSError | None]:
    """Make several files durable at the same time, in threads.

    Returns:
        The error of each file; of all files if an overlapping sync failed.
    """
    outcomes: list[OSError | None] = []

    def sync(handles: Sequence[int]) -> None:
        outcomes.extend(_fdatasync_in_threads(handles, threads))
        _raise_first(outcomes)

    try:
        _process.run(_device_of(handles), sync, handles)
    except OSError as error:
        return [error if each is None else each for each in outcomes or [None] * len(handles)]
    return outcomes


def are_none_running() -> bool:
    """Returns whether no sync of the process is running."""
    return _process.is_empty()


class _Sync(msgspec.Struct, eq=False):
    """One call of `Overlap.run`.

    Attributes:
        device: the device of the files.
        overlapping: the syncs of this device that were running when this one returned.
        has_failed: an overlapping sync failed.
    """

    device: int
    overlapping: "frozenset[_Sync]" = frozenset()
    has_failed: bool = False


class Overlap:
    """The running syncs of all threads of one daemon; overlapping syncs share one verdict.

    When a disk fails a flush, the file system reports the error to one of the syncs that wait for
    the flush. An overlapping sync can return success though its bytes are lost: on ext4 and XFS
    over a disk that fails flushes, 2 to 5 of 100 files that were synced at the same time were
    reported durable and were not. Syncs that ran one after another were always reported correctly.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: set[_Sync] = set()
        self._waiting: set[_Sync] = set()

    def is_empty(self) -> bool:
        """Returns whether no sync is running."""
        return not self._running

    def run(self, device: int, sync: Callable[[T], None], target: T) -> None:
        """Call `sync(target)`, and return once its success is certain.

        Success is certain when all overlapping syncs of the same device have returned, so the call
        waits for them. It does not wait for syncs that begin after its own sync has returned.

        Args:
            device: number of the device of the files.
            sync: makes one file or several files durable.
            target: the argument of `sync`: the file or files.

        Raises:
            OSError: the sync or an overlapping sync failed; none of the bytes is known to be
                durable.
        """
        current = _Sync(device)
        with self._lock:
            self._running.add(current)
        try:
            sync(target)
        except BaseException:
            self._end(current, has_failed=True)
            raise
        self._end(current, has_failed=False)
        if current.has_failed:
            raise OSError(errno.EIO, "an overlapping sync of the same disk failed")

    def _end(self, current: _Sync, *, has_failed: bool) -> None:
        with self._lock:
            self._running.remove(current)
            if not (self._running or self._waiting):
                return
            others = frozenset(sync for sync in self._running if sync.device == current.device)
            if has_failed:
                for sync in others:
                    sync.has_failed = True
                for sync in self._waiting:
                    sync.has_failed |= current in sync.overlapping
            if self._waiting:
                self._changed.notify_all()
            if has_failed or current.has_failed or not others:
                return
            current.overlapping = others
            self._waiting.add(current)
            while not current.overlapping.isdisjoint(self._running) and not current.has_failed:
                self._changed.wait()
            self._waiting.discard(current)


def _fdatasync(handle: int) -> OSError | None:
    try:
        system.fdatasync(handle)
    except OSError as error:
        return error
    return None


def _device_of(handles: Sequence[int]) -> int:
    """Returns the device of the first open file; the files of one group are on one device.

    A group on several devices would share one verdict too, which is stricter than needed.
    """
    for handle in handles:
        with suppress(OSError):
            return os.fstat(handle).st_dev
    return 0


def _raise_first(outcomes: Sequence[OSError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def _fdatasync_in_threads(
    handles: Sequence[int], threads: ThreadPoolExecutor
) -> list[OSError | None]:
    """Sync each file once, in the caller's thread and in threads of the pool.

    Exactly once, because the kernel reports an error to one sync: a second one would succeed.
    """
    waiting = deque(enumerate(handles))
    ended: SimpleQueue[tuple[int, OSError | None]] = SimpleQueue()

    def sync_waiting() -> None:
        with suppress(IndexError):
            while True:
                number, handle = waiting.popleft()
                ended.put((number, _fdatasync(handle)))

    # If the system has no more threads, the present ones do the work.
    with suppress(RuntimeError):
        for _ in range(min(len(handles), COMMIT_THREADS_MAX) - 1):
            threads.submit(sync_waiting)
    sync_waiting()
    outcomes = dict(ended.get() for _ in handles)
    return [outcomes[number] for number in range(len(handles))]


_process: Final = Overlap()
