"""`python -m support.daemon_that_dies_moving`: a daemon that kills itself at its first move.

What is published before a folder moves is in the journal by then. The environment's `PUBLISHED`
says how much of it: `come`, what is at the new place, or `all`.
"""

import os
import signal
import sys
from typing import Final

from stenod.cli import main
from stenod.store.posix import PosixDisk
from stenod_cluster.disk import ReplicatedDisk

PUBLISHED: Final = "STENO_TEST_PUBLISHED"


def die(*_: object) -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    PosixDisk.move = die  # type: ignore[method-assign]
    if os.environ[PUBLISHED] == "come":
        ReplicatedDisk._leave = die  # type: ignore[method-assign]
    sys.exit(main())
