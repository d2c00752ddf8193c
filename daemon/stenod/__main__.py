"""`python -m stenod`: the same as the `stenod` command, and how clients start a daemon."""

import gc
import sys

from steno_protocol import limits


def main() -> int:
    """Run the command; returns its exit code."""
    # A client waits for the daemon, and imported modules are no garbage.
    gc.set_threshold(limits.GC_OBJECTS_MAX)
    from stenod.cli import main as run  # noqa: PLC0415  # the threshold is for this, too

    return run()


sys.exit(main())
