"""Syncs that overlap share one verdict: threads here stand for the daemon's."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from stenod.store.posix import PosixDisk
from stenod.store.syncs import Overlap

WAIT_S = 10
DEVICE, OTHER = 1, 2


class Syncs:
    """Syncs in threads, which end when the test lets them."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.overlap = Overlap()
        self._pool = pool

    def begin(
        self, error: OSError | None = None, device: int = DEVICE
    ) -> tuple[Callable[[], None], "Future[None]"]:
        """Begin a sync; returns the event that ends it, and its verdict."""
        has_begun, may_end = threading.Event(), threading.Event()

        def sync(_: None) -> None:
            has_begun.set()
            assert may_end.wait(WAIT_S)
            if error is not None:
                raise error

        verdict = self._pool.submit(self.overlap.run, device, sync, None)
        assert has_begun.wait(WAIT_S)
        return may_end.set, verdict


@pytest.fixture
def syncs() -> "Syncs":
    return Syncs(ThreadPoolExecutor(4))


def test_sync_that_returned_first_fails_with_a_later_failure_that_overlapped_it(
    syncs: Syncs,
) -> None:
    end_first, first = syncs.begin()
    end_second, second = syncs.begin(OSError(errno.EIO, "flush failed"))
    end_first()
    assert not first.done()
    end_second()
    assert isinstance(second.exception(WAIT_S), OSError)
    assert isinstance(first.exception(WAIT_S), OSError)


def test_sync_that_is_under_way_fails_when_another_fails(syncs: Syncs) -> None:
    end_first, first = syncs.begin()
    end_second, _ = syncs.begin(OSError(errno.EIO, "flush failed"))
    end_second()
    end_first()
    assert isinstance(first.exception(WAIT_S), OSError)


def test_sync_waits_for_none_that_began_after_its_end(syncs: Syncs) -> None:
    end_first, first = syncs.begin()
    end_second, second = syncs.begin()
    end_first()
    while not syncs.overlap._waiting:
        assert not first.done()
    end_third, third = syncs.begin(OSError(errno.EIO, "flush failed"))
    end_second()
    assert first.exception(WAIT_S) is None
    end_third()
    assert isinstance(second.exception(WAIT_S), OSError)
    assert isinstance(third.exception(WAIT_S), OSError)
    assert syncs.overlap.is_empty()


def test_sync_of_another_device_has_its_own_verdict(syncs: Syncs) -> None:
    end_first, first = syncs.begin(device=OTHER)
    end_second, _ = syncs.begin(OSError(errno.EIO, "flush failed"))
    end_first()
    assert first.exception(WAIT_S) is None
    end_second()


def test_disk_holds_a_commit_until_an_overlapping_rewrite_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: Syncs
) -> None:
    overlap = Overlap()
    monkeypatch.setattr("stenod.store.syncs._process", overlap)
    disk = PosixDisk()
    root = disk.open_root(str(tmp_path))
    commit, rewrite = disk.open_new(root, "commit"), disk.open_new(root, "rewrite")
    syncs.overlap = overlap
    device = disk.stat(rewrite).device
    end_rewrite, _ = syncs.begin(OSError(errno.EIO, "flush failed"), device)
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(disk.fdatasync, commit)
        while not overlap._waiting:
            assert not verdict.done()
        end_rewrite()
        assert isinstance(verdict.exception(WAIT_S), OSError)
