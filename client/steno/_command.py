"""The process of the command `steno`: its garbage is hardly looked for, and it ends at once."""

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

_GC_OBJECTS: Final = 100_000
"""Objects between two looks for cycles. A start makes a quarter of them; with the usual 700 it
looks at all that was imported a dozen times, which takes a tenth of the whole time."""


def main() -> NoReturn:
    """Run `steno`; what it said is flushed, and nothing of the process is tidied up."""
    gc.set_threshold(_GC_OBJECTS)
    code = _run()
    # Only help and messages are left; a reader that closed the other end wants none of it.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    # Connections and files are closed by now; to take the interpreter apart is a tenth, too.
    os._exit(code)


def _run() -> int:
    """Import the command and run it; an early interrupt shows no traceback either."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        # Nothing has begun. In the middle of an import, an exception may come out as another one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from steno.cli import main as run  # noqa: PLC0415  # the threshold is for this, too
    from steno.cli.exits import Exit  # noqa: PLC0415

    try:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
