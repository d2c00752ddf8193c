"""The process of the command `steno`, which starts and ends fast."""

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

_GC_OBJECTS: Final = 100_000
"""Objects between two collections of garbage. A start allocates a quarter of them; with the default
of 700 the collections during the imports take a tenth of the whole time."""


def main() -> NoReturn:
    """Run `steno`, flush its output, and end the process without cleaning up."""
    gc.set_threshold(_GC_OBJECTS)
    code = _run()
    # Only help and messages are left, and their reader may have closed the pipe.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    # Connections and files are closed; the finalization of the interpreter takes another tenth.
    os._exit(code)


def _run() -> int:
    """Import the command and run it; an early interrupt prints no traceback."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        # Nothing has begun. During an import, an exception may change into another one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from steno_cli.entry import main as run  # noqa: PLC0415  # after the threshold was set
    from steno_cli.exits import Exit  # noqa: PLC0415

    try:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
