"""The log file: rotated, bounded, and one event a line."""

import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

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
