"""A daemon on a disk that syncs more slowly: `python -m bench.slow_disk EXTRA_MS [arguments]`."""

import sys
import threading
from collections.abc import Callable

from stenod import cli
from stenod.store.posix import PosixDisk


def main() -> None:
    """Run the daemon; each sync of a file or folder takes so many milliseconds more."""
    extra_s = float(sys.argv.pop(1)) / 1000
    if extra_s:
        PosixDisk.fdatasync = _slower(PosixDisk.fdatasync, extra_s)  # type: ignore[method-assign]
        PosixDisk.fsync = _slower(PosixDisk.fsync, extra_s)  # type: ignore[method-assign]
    sys.exit(cli.main())


def _slower(sync: Callable[[PosixDisk, int], None], extra_s: float) -> Callable[..., None]:
    def slow(disk: PosixDisk, handle: int) -> None:
        sync(disk, handle)
        threading.Event().wait(extra_s)

    return slow


if __name__ == "__main__":
    main()
