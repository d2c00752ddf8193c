"""`python -m support.telling_daemon`: a daemon that reports how many files it syncs together."""

import sys
from collections.abc import Sequence
from math import inf

from steno_protocol import limits
from stenod.cli import main
from stenod.store.posix import PosixDisk

sync_all = PosixDisk.fdatasync_all


def report(disk: PosixDisk, handles: Sequence[int]) -> list[OSError | None]:
    """Report it, then do it."""
    print("together", len(handles), file=sys.stderr, flush=True)
    return sync_all(disk, handles)


if __name__ == "__main__":
    # However slow the disk is: else sessions are synced in threads, each by itself.
    limits.INLINE_SYNC_S = inf  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    PosixDisk.fdatasync_all = report  # type: ignore[method-assign]
    sys.exit(main())
