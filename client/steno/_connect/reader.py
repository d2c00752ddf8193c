"""A reader of a root that this process must not, or cannot, write: a child that serves reads.

It is `stenod --reader`: it takes no lock, changes no file of the root, listens at a private address
of this user, and ends with this process.
"""

import atexit
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

import steno_system as system
from steno._connect.lock_holder import holder_of
from steno._connect.probe import StartFailed
from steno_protocol import limits

_SAID_BYTES_MAX: Final = 4096


class Reader(msgspec.Struct, frozen=True):
    """A running reader.

    Attributes:
        root: the root that it reads.
        endpoint: its address.
        pid: its process.
    """

    root: Path
    endpoint: str
    pid: int


_readers: dict[Path, Reader] = {}
"""The readers of this process, each with the root that it reads."""


def why_read_only(root: Path) -> str | None:
    """The reason to read a root without its daemon; None if its daemon serves this user.

    A root of another user is never served to this one, because whoever owns it could pretend to be
    its daemon. A root of this user that cannot be written has no daemon, unless one runs where the
    same file system is writable.
    """
    try:
        owner = root.stat().st_uid
    except OSError:
        return None
    if owner != system.own_user():
        return f"{root} belongs to user {owner}"
    if os.access(root, os.W_OK):
        return None
    return None if holder_of(root) is not None else f"{root} cannot be written"


def running_reader(root: Path) -> Reader | None:
    """The reader of a root that this process has started."""
    return _readers.get(root)


def start_reader(root: Path) -> Reader:
    """Start a reader of a root, which ends with this process.

    Raises:
        StartFailed: the root cannot be read.
    """
    command = [sys.executable, "-P", "-m", "stenod", "--reader", "--root", str(root)]
    with os.fdopen(system.anonymous_file(), "w+b") as talk:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=talk,
            # Ctrl-C is for this process, which ends the reader when it has ended its own work.
            start_new_session=True,
        )
        atexit.register(_end, child)
        endpoint = _first_line(child)
        if not endpoint:
            _end(child)
            talk.seek(0)
            said = talk.read(_SAID_BYTES_MAX).decode(errors="replace").strip()
            raise StartFailed(f"{root} cannot be read: {said or 'its reader did not start'}")
    reader = _readers[root] = Reader(root, endpoint, child.pid)
    return reader


def _first_line(child: "subprocess.Popen[bytes]") -> str:
    assert child.stdout is not None
    handle, line = child.stdout.fileno(), b""
    until = time.monotonic() + limits.SPAWN_TIMEOUT_S
    while not line.endswith(b"\n"):
        left_s = until - time.monotonic()
        if left_s <= 0 or not select.select([handle], [], [], left_s)[0]:
            return ""
        more = os.read(handle, _SAID_BYTES_MAX)
        if not more:
            return ""
        line += more
    return line.decode().strip()


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a reader: it ends with its standard input, and removes the folder of its address."""
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    try:
        child.wait(limits.DRAIN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
