"""What a root remembers of streams is there after a power cut."""

import errno
import os
import stat
from pathlib import Path

import pytest

from steno_protocol import paths
from stenod.store import syncs
from stenod_cluster.membership import host_of
from stenod_cluster.trust import Known, Request, Trust


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, int]]:
    """The names in each folder when it was last synced, with the inodes that they lead to."""
    found: dict[int, dict[str, int]] = {}
    fsync = syncs.fsync

    def note(handle: int) -> None:
        fsync(handle)
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(handle) as entries:
                found[status.st_ino] = {entry.name: entry.inode() for entry in entries}

    monkeypatch.setattr(syncs, "fsync", note)
    return found


def names(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_ino for each in folder.iterdir()}


def test_an_accepted_stream_is_durable(tmp_path: Path, durable: dict[int, dict[str, int]]) -> None:
    trust = Trust(tmp_path)
    for last in (1, 2):
        trust.accept("STENO_a", Known("first", last))
        assert durable[tmp_path.stat().st_ino] == names(tmp_path)
    assert Trust(tmp_path).known("STENO_a") == Known("first", 2)


@pytest.mark.parametrize("is_old_copy", [True, False])
def test_a_stream_that_a_full_disk_did_not_take_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_old_copy: bool
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trust = Trust(tmp_path)
    trust.accept("STENO_a", Known("first", 1))
    newer = Known("first", 2, is_old_copy=is_old_copy)
    with monkeypatch.context() as full:
        full.setattr(syncs, "fsync", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                trust.accept("STENO_a", newer)
    # Of an old copy, a later look at it says nothing.
    trust.accept("STENO_a", Known("first", 2))
    assert Trust(tmp_path).known("STENO_a") == newer


def test_a_request_that_was_carried_out_does_not_come_back(
    tmp_path: Path, durable: dict[int, dict[str, int]]
) -> None:
    request = tmp_path / paths.CLUSTER_REQUEST
    request.write_text("again")
    request.chmod(0o600)
    trust = Trust(tmp_path)
    assert trust.request is Request.AGAIN
    trust.end_request()
    assert not durable[tmp_path.stat().st_ino]
    assert Trust(tmp_path).request is Request.NONE


def test_the_identity_of_a_root_is_durable(
    tmp_path: Path, durable: dict[int, dict[str, int]]
) -> None:
    host = host_of(tmp_path)
    assert durable[tmp_path.stat().st_ino] == names(tmp_path)
    assert host_of(tmp_path) == host


def test_an_identity_whose_writing_was_cut_short_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", end)
        with pytest.raises(KeyboardInterrupt):
            host_of(tmp_path)
    assert host_of(tmp_path) == host_of(tmp_path)
