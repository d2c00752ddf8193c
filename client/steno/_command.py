"""The process of the command `steno`, with a quick start and end."""

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

_GC_OBJECTS: Final = 100_000
"""Objects between two runs of the garbage collector. A start makes a quarter of them; with the
usual 700 the collector visits all imported objects a dozen times, a tenth of the whole time."""


def main() -> NoReturn:
    """Run `steno`, flush its output, and end the process without a clean-up."""
    gc.set_threshold(_GC_OBJECTS)
    code = _run()
    # Only help and messages are left; a closed pipe is no error.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    # Connections and files are closed by now; a regular exit takes another tenth of the time.
    os._exit(code)


def _run() -> int:
    """Import the command and run it; an early interrupt shows no traceback, either."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        # Nothing has begun, and an import may convert an exception to another one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from steno.cli import main as run  # noqa: PLC0415  # the threshold is for this, too
    from steno.cli.exits import Exit  # noqa: PLC0415

    try:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
