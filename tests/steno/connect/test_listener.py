"""The number of a handle that libzmq reported, which it may have closed since."""

import os
import socket
from pathlib import Path

import pytest

from steno._connect.connection import _listener_of


def test_the_user_of_a_listener_is_known(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(root / "socket"))
        server.listen()
        client.connect(str(root / "socket"))
        assert _listener_of(client.fileno()) == os.geteuid()
        client.send(b"still open")


def test_a_number_that_is_a_pipe_by_now_is_neither_copied_nor_closed() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError):
        _listener_of(writing)
    os.write(writing, b"x")
    os.close(writing)
    assert os.read(reading, 2) == b"x"
    os.set_blocking(reading, False)
    # The end of the file: no copy of the other end is left.
    assert os.read(reading, 1) == b""
    os.close(reading)
