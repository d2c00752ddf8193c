"""The log file: rotated, bounded, and one event a line."""

import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

from steno_protocol.errors import Unauthorized
from stenod.runtime.log_file import LogFile


def _events(handler: LogFile, count: int) -> None:
    for number in range(count):
        handler.emit(logging.makeLogRecord({"msg": f"{number:05} " + "x" * 93}))


def test_log_that_cannot_be_rotated_continues_in_its_file_and_is_bounded(root: Path) -> None:
    log = root / "stenod.log"
    (root / "stenod.log.2" / "in the way").mkdir(parents=True)
    handler = LogFile(log)
    handler.bytes_max, handler.files_max = 1000, 2
    _events(handler, 10)
    (root / "stenod.log.1").mkdir()
    _events(handler, 15)
    assert log.stat().st_size == 2500, "no event is lost meanwhile"
    _events(handler, 10)
    assert log.stat().st_size == 500
    (root / "stenod.log.1").rmdir()
    (root / "stenod.log.2" / "in the way").rmdir()
    (root / "stenod.log.2").rmdir()
    _events(handler, 10)
    handler.close()
    assert sorted(path.name for path in root.glob("stenod.log*")) == ["stenod.log", "stenod.log.1"]


def test_event_after_a_torn_write_is_on_its_own_line(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with closing(LogFile(root / "stenod.log")) as handler:
        _events(handler, 1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda file, data: write(file, data[:7]))
            _events(handler, 1)
        _events(handler, 2)
    whole, torn, *behind = (root / "stenod.log").read_text().splitlines()
    assert whole.startswith(torn)
    assert len(torn) == 7
    assert behind == [whole, whole.replace("00000", "00001")]


def test_log_moves_with_its_root(root: Path) -> None:
    old, new = root / "old", root / "new"
    old.mkdir()
    handler = LogFile(old / "stenod.log")
    old.rename(new)
    old.mkdir()
    (new / "stenod.log").unlink()
    _events(handler, 1)
    handler.close()
    assert (new / "stenod.log").stat().st_size == 100
    assert list(old.iterdir()) == []


def test_link_in_place_of_the_log_is_not_followed(root: Path) -> None:
    log, target = root / "stenod.log", root / "precious"
    target.touch()
    log.symlink_to(target)
    handles = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(Unauthorized, match="is a symbolic link, and has to be a regular file"):
        LogFile(log)
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    log.unlink()
    with closing(LogFile(log)) as handler:
        log.rename(root / "aside")
        log.symlink_to(target)
        _events(handler, 2)
    assert target.stat().st_size == 0
    assert (root / "aside").stat().st_size == 200, "no event is lost meanwhile"


def test_log_may_be_a_device_behind_a_link(root: Path) -> None:
    (root / "stenod.log").symlink_to(os.devnull)
    with closing(LogFile(root / "stenod.log")) as handler:
        _events(handler, 1)
    assert (root / "stenod.log").is_symlink()


def test_log_may_lie_in_a_folder_of_all_users_and_is_private(root: Path) -> None:
    root.chmod(0o777)
    with closing(LogFile(root / "stenod.log")) as handler:
        _events(handler, 1)
    assert (root / "stenod.log").stat().st_mode & 0o777 == 0o600
