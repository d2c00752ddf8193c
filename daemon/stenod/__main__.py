"""`python -m stenod`, by which clients start a daemon."""

import gc
import sys

from steno_protocol import limits


def main() -> int:
    """Run the command; returns its exit code."""
    # A client waits for the daemon, and imported modules never become garbage.
    gc.set_threshold(limits.GC_OBJECTS_MAX)
    from stenod.cli import main as run  # noqa: PLC0415  # imported with the higher threshold

    return run()


sys.exit(main())
