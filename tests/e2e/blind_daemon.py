"""`python -m e2e.blind_daemon`: a daemon that does not notice that its socket was removed."""

import sys

from stenod.cli import main
from stenod.daemon import Daemon


def see_nothing(self: Daemon) -> None:
    """Report nothing about the root and the socket."""


if __name__ == "__main__":
    Daemon._check_root = see_nothing  # type: ignore[method-assign]
    sys.exit(main())
