"""`python -m support.telling_daemon`: a daemon that reports each sync of a session's file."""

import os
import sys
from math import inf
from pathlib import Path

from steno_protocol import limits
from stenod.cli import main

fdatasync = os.fdatasync


def report(handle: int) -> None:
    """Do it, then report it."""
    fdatasync(handle)
    print("synced", Path(f"/proc/self/fd/{handle}").readlink(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    # However slow the disk is: else sessions are synced in threads.
    limits.INLINE_SYNC_S = inf  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    os.fdatasync = report
    sys.exit(main())
