"""`python -m e2e.counting_daemon`: a daemon that counts calls."""

import sys
from math import inf

from steno_protocol import limits
from stenod.cli import main
from stenod.net.transport import Transport
from support.call_counts import CallCounts

take_in = Transport._handle_burst


def counted(transport: Transport) -> None:
    """Take in a burst, then report its calls."""
    counts = CallCounts()
    counts.count(lambda: take_in(transport))
    daemons = sum("/stenod/" in file for file in counts.files)
    print("counted", counts.calls, len(counts.files), daemons, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # However slow the disk is: else the commit is another task's.
    limits.INLINE_SYNC_S = inf  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    Transport._handle_burst = counted  # type: ignore[method-assign]
    sys.exit(main())
