"""Daemons that the tests of one process left behind, with the test that started each."""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from steno_protocol import limits

_RUN: Final = "STENO_TEST_PROCESS"
"""The variable by which a daemon is known as one of the tests of this process."""


_TEST: Final = b"PYTEST_CURRENT_TEST="
"""The variable in which pytest names the test that runs."""


class LeftBehind(NamedTuple):
    """A daemon or reader that still runs: its process, its command line and its test."""

    pid: int
    command: str
    test: str


def mark_children() -> None:
    """Mark all processes that are started from now on as those of this process."""
    os.environ[_RUN] = str(os.getpid())


def end_left_behind(wait_s: float = limits.DRAIN_TIMEOUT_S) -> list[LeftBehind]:
    """Wait for daemons that are ending, kill those that are not, and return those."""
    left: list[LeftBehind] = []
    for found in _running():
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(found.pid)
            # Readable once the process has ended.
            if not select.select([handle], [], [], wait_s)[0]:
                left.append(found)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
    return left


def _running() -> list[LeftBehind]:
    mine = f"{_RUN}={os.getpid()}".encode()
    found: list[LeftBehind] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if mine in variables and b"stenod" in words:
                test = next((each for each in variables if each.startswith(_TEST)), _TEST)
                command = b" ".join(words).decode(errors="replace").strip()
                started_by = test.removeprefix(_TEST).decode(errors="replace")
                found.append(LeftBehind(int(folder.name), command, started_by))
    return found
