"""`python -m e2e.older_daemon`: a daemon that speaks an older protocol version."""

import sys

from stenod.api import status
from stenod.cli import main

if __name__ == "__main__":
    status.PROTOCOL_VERSION = 1  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    sys.exit(main())
