"""`python -m support.daemon_that_dies_moving`: a daemon that kills itself at its first move.

The environment's `PUBLISHED` says whether the journal has the move by then: `none` or `all` of it.
"""

import os
import signal
import sys
from typing import Final

from stenod.cli import main
from stenod.store.posix import PosixDisk
from stenod_cluster.names import Names

PUBLISHED: Final = "STENO_TEST_PUBLISHED"


def die(*_: object) -> None:
    """End as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    PosixDisk.move = die  # type: ignore[method-assign]
    if os.environ[PUBLISHED] == "none":
        Names._published = die  # type: ignore[assignment]
    sys.exit(main())
