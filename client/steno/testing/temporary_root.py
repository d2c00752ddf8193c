"""A temporary root with a daemon of its own."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from steno.local import holder_of, is_free
from steno_protocol import limits, paths

_SHORT: Final = "/tmp"  # noqa: S108  # the folder in it is made with a new name and mode 0700


@contextmanager
def private_root() -> Generator[Path]:
    """Make a temporary root, whose daemon ends with the block.

    The path is short enough for the daemon's socket. The first client of the root starts the
    daemon. At the end of the block the daemon is killed, and the root is removed.
    """
    usual = tempfile.gettempdir()
    is_short = len(os.fsencode(usual)) <= limits.SOCKET_PATH_BYTES_MAX // 2
    folder = Path(tempfile.mkdtemp(prefix="steno-", dir=usual if is_short else _SHORT)).resolve()
    (folder / paths.CONFIG).write_text(
        f"[life]\nidle_exit_s = {limits.PRIVATE_ROOT_IDLE_EXIT_S:g}\n", encoding="utf-8"
    )
    try:
        yield folder
    finally:
        _end_daemon(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _end_daemon(root: Path) -> None:
    """Kill the daemon of a root, one that a client is just starting included."""
    deadline = time.monotonic() + limits.SPAWN_TIMEOUT_S
    while not is_free(root) and time.monotonic() < deadline:
        holder = holder_of(root)
        if holder is not None:
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        time.sleep(limits.START_LOCK_POLL_S)
