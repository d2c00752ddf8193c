"""`steno logs`: the daemon's log."""

import os
import time
from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import BinaryIO

from steno.local import open_regular, start_command
from steno_cli.arguments import argument, command, flag, whole_number
from steno_cli.command_limits import LOG_POLL_S
from steno_cli.connection import root_in_use
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_protocol import paths
from steno_protocol.errors import NotFound


@command(
    "logs", "",
    argument("-n", "--lines", metavar="N", type=whole_number, help="the last N lines only"),
    flag("-f", "--follow", help="print new entries as they are written"),
    example="steno logs -20\nsteno logs -n 20 -f",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print the log or its end, and with -f each new entry."""
    path = root_in_use(options) / paths.LOG
    with _open(path) as log:
        for line in log if options.lines is None else deque(log, options.lines):
            _print(output, line)
        if options.follow:
            _follow(path, log, output)
    return Exit.DONE


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise NotFound(
            f"there is no log at {path}: no daemon ever ran there, or the log was removed;"
            f" check --root, or start one with `{start_command(str(path.parent))}`"
        ) from None


def _follow(path: Path, log: BinaryIO, output: Output) -> None:
    """Print new entries until a signal, or until nobody reads them.

    A rotated log is read to its end before the new one.
    """
    try:
        while output.has_reader:
            output.flush()
            time.sleep(LOG_POLL_S)
            # Checked before the read, so that the last entries before a rotation are printed.
            is_replaced = _is_replaced(path, log)
            for line in log:
                _print(output, line)
            if is_replaced:
                log.close()
                log = open_regular(path)
    finally:
        log.close()


def _is_replaced(path: Path, log: BinaryIO) -> bool:
    try:
        return path.stat().st_ino != os.fstat(log.fileno()).st_ino
    except FileNotFoundError:
        return False


def _print(output: Output, line: bytes) -> None:
    if output.as_json:
        output.document({"line": line.decode(errors="replace").rstrip("\n")})
    else:
        output.raw(line)
