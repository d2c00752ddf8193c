"""`python -m support.telling_daemon`: a daemon that tells of the files it syncs together."""

import sys
from collections.abc import Sequence
from math import inf

from steno_protocol import limits
from stenod.cli import main
from stenod.store.whole_sync import WholeSync

sync = WholeSync.sync


def tell(whole: WholeSync, tails: Sequence[tuple[int, int]]) -> bool:
    """Tell from where on each was not durable, then do it."""
    print("together from", sorted(start for _, start in tails), file=sys.stderr, flush=True)
    return sync(whole, tails)


if __name__ == "__main__":
    # However slow the disk is: else sessions are synced in threads, each by itself.
    limits.INLINE_SYNC_S = inf  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    WholeSync.sync = tell  # type: ignore[method-assign]
    sys.exit(main())
