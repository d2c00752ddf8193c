"""The process of the command `steno`: its garbage is hardly looked for, and it ends at once."""

import gc
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

_GC_OBJECTS: Final = 100_000
"""Objects between two looks for cycles. A start makes a quarter of them; with the usual 700 it
looks at all that was imported a dozen times, which takes a tenth of the whole time."""


def main() -> NoReturn:
    """Run `steno`; what it said is flushed, and nothing of the process is tidied up."""
    gc.set_threshold(_GC_OBJECTS)
    from steno.cli import main as run  # noqa: PLC0415  # the threshold is for this, too

    code = run()
    # What is left is help and talk; whoever closed the other end wants none of it.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    # Connections and files are closed by now; to take the interpreter apart is a tenth, too.
    os._exit(code)
