"""Other processes that use an adapter of the same root."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any, Final

SPAWN: Final = multiprocessing.get_context("spawn")

_TEXTS: Final = 40
_KILLS: Final = 5


def run_apart(work: Callable[..., None], *given: Any) -> None:
    """Do something in a process of its own."""
    other = SPAWN.Process(target=work, args=given)
    other.start()
    other.join()
    assert other.exitcode == 0


def check_two_writers(
    work: Callable[[str, str, int], None],
    root: str,
    daemon: Callable[[], int],
    texts: Callable[[], list[str]],
) -> None:
    """Let two processes write while their daemon is killed; nothing is lost, and the order kept.

    Args:
        work: gets the root, a name, and how many texts it writes, `NAME-0` and so on.
        root: the root.
        daemon: returns the pid of the daemon.
        texts: returns what was written.
    """
    writers = [SPAWN.Process(target=work, args=(root, name, _TEXTS)) for name in "ab"]
    for writer in writers:
        writer.start()
    for killed in range(_KILLS):
        while len(texts()) < 12 * (killed + 1):
            pass
        os.kill(daemon(), signal.SIGKILL)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = texts()
    for name in "ab":
        assert [each for each in found if each[0] == name] == [f"{name}-{n}" for n in range(_TEXTS)]
