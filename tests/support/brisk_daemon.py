"""`python -m support.brisk_daemon`: the daemon, whose rounds come as often as a test can wait."""

import sys

from steno_protocol import limits
from stenod.cli import main

if __name__ == "__main__":
    limits.HOUSEKEEPING_S = 0.05  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    sys.exit(main())
