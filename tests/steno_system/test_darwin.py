"""The calls of macOS, where they can run on Linux."""

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from steno_system import _darwin


def test_a_sync_flushes_the_drive_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "fcntl", lambda *given: called.append(given))
    monkeypatch.setattr(os, "fsync", lambda handle: pytest.fail("a plain sync"))
    _darwin.fsync(7)
    assert called == [(7, 51)]


@pytest.mark.parametrize(("number", "is_plain"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_only_a_file_system_without_the_full_sync_gets_a_plain_one(
    monkeypatch: pytest.MonkeyPatch, number: int, is_plain: bool
) -> None:
    plain: list[int] = []

    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", plain.append)
    if is_plain:
        _darwin.fsync(7)
    else:
        with pytest.raises(OSError, match="refused"):
            _darwin.fsync(7)
    assert plain == [7] * is_plain


def test_the_socket_of_the_relay_has_a_short_path_and_leaves_nothing(tmp_path: Path) -> None:
    made = _darwin.relay_socket(tmp_path / ("long" * 40), 8)
    assert len(made.path) < 104
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(made.path)
    os.close(made.listening)
    made.close()
    assert not Path(made.folder).exists()
