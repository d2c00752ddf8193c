"""A daemon on a slow disk: `python -m bench.slow_disk EXTRA_MS [arguments]`."""

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from stenod import cli
from stenod.store.posix import PosixDisk

T = TypeVar("T")
U = TypeVar("U")


def main() -> None:
    """Run the daemon; each sync of a file or folder takes so many milliseconds more."""
    extra_s = float(sys.argv.pop(1)) / 1000
    if extra_s:
        PosixDisk.fdatasync = _slower(PosixDisk.fdatasync, extra_s)  # type: ignore[method-assign]
        PosixDisk.fdatasync_all = _slower(PosixDisk.fdatasync_all, extra_s)  # type: ignore[method-assign]
        PosixDisk.fsync = _slower(PosixDisk.fsync, extra_s)  # type: ignore[method-assign]
    sys.exit(cli.main())


def _slower(sync: Callable[[PosixDisk, T], U], extra_s: float) -> Callable[[PosixDisk, T], U]:
    def slow(disk: PosixDisk, what: T) -> U:
        outcome = sync(disk, what)
        threading.Event().wait(extra_s)
        return outcome

    return slow


if __name__ == "__main__":
    main()
