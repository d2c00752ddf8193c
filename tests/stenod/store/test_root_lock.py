"""The lock of a root, with a note written in place."""

import errno
import os
from pathlib import Path

import pytest

from steno_protocol import limits, paths
from steno_protocol.errors import Held
from stenod.store.lock import RootLock

NOTE = b'{"pid":1,"version":"0","root":"/r","endpoint":"ipc:///r/stenod.sock"}'


def test_a_note_is_read_and_then_taken_away(tmp_path: Path) -> None:
    lock = RootLock(tmp_path)
    lock.write_note(NOTE)
    note = paths.decode_lock_note((tmp_path / paths.LOCK).read_bytes())
    assert note is not None
    assert note.pid == 1
    with pytest.raises(Held, match="pid 1, version 0, listens at ipc:///r/stenod"):
        RootLock(tmp_path)
    lock.release()
    assert paths.decode_lock_note((tmp_path / paths.LOCK).read_bytes()) is None


def test_a_torn_note_of_the_holder_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RootLock(tmp_path)
    lock.write_note(NOTE[:20])
    monkeypatch.setattr("stenod.store.lock.time.sleep", lambda _: lock.write_note(NOTE))
    with pytest.raises(Held, match="pid 1, version 0"):
        RootLock(tmp_path)
    lock.release()


def test_the_holder_of_a_root_with_a_long_path_is_named(tmp_path: Path) -> None:
    lock = RootLock(tmp_path)
    lock.write_note(NOTE.replace(b"/r", b"/" + b"r" * limits.LOCK_NOTE_BYTES))
    with pytest.raises(Held, match="pid 1, version 0"):
        RootLock(tmp_path)
    lock.release()


def test_a_note_is_written_where_the_last_one_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RootLock(tmp_path)
    first.write_note(NOTE)
    first.release()
    sizes = list[int]()
    ftruncate = os.ftruncate

    def watched(handle: int, size: int) -> None:
        sizes.append(size)
        ftruncate(handle, size)

    monkeypatch.setattr(os, "ftruncate", watched)
    second = RootLock(tmp_path)
    second.write_note(NOTE)
    second.release()
    # A file that was ever shorter has given its block back, and a full disk has no other.
    assert set(sizes) == {limits.LOCK_NOTE_BYTES}


def test_a_longer_note_than_usual_leaves_nothing_of_itself(tmp_path: Path) -> None:
    lock = RootLock(tmp_path)
    lock.write_note(NOTE.replace(b"/r", b"/" + b"r" * limits.LOCK_NOTE_BYTES))
    lock.write_note(NOTE)
    assert (tmp_path / paths.LOCK).read_bytes() == NOTE.ljust(limits.LOCK_NOTE_BYTES)
    lock.release()


@pytest.mark.parametrize("error", [errno.ENOSPC, None])
def test_a_note_without_room_names_the_file_and_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    def full(_: int, data: bytes, __: int) -> int:
        if error is not None:
            raise OSError(error, os.strerror(error))
        return len(data) - 1

    lock = RootLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=paths.LOCK) as refused:
            lock.write_note(NOTE)
        assert refused.value.errno == errno.ENOSPC
        lock.release()
    RootLock(tmp_path).release()


def test_a_lock_knows_whether_its_path_still_leads_to_it(tmp_path: Path) -> None:
    root, moved = tmp_path / "root", tmp_path / "moved"
    root.mkdir()
    lock = RootLock(root)
    assert lock.is_in_place
    root.rename(moved)
    assert not lock.is_in_place
    root.mkdir()
    assert not lock.is_in_place
    other = RootLock(root)
    assert other.is_in_place
    assert not lock.is_in_place
    other.release()
    (root / paths.LOCK).unlink()
    root.rmdir()
    moved.rename(root)
    assert lock.is_in_place
    (root / paths.LOCK).unlink()
    assert not lock.is_in_place
    root_file = tmp_path / "root"
    root_file.rmdir()
    root_file.touch()
    assert not lock.is_in_place


def test_a_disk_that_does_not_answer_takes_no_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lock = RootLock(tmp_path)
    monkeypatch.setattr(Path, "lstat", broken)
    assert lock.is_in_place
    lock.release()
