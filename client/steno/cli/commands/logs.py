"""The subcommand `logs`: the daemon's log from its file, whether the daemon runs or not."""

import os
import time
from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import BinaryIO

from steno._connect.safe_open import open_regular
from steno._connect.target import start_command
from steno.cli.command_limits import LOG_POLL_S
from steno.cli.connection import root_in_use
from steno.cli.exits import Exit
from steno.cli.render.output import Output
from steno_protocol import paths
from steno_protocol.errors import NotFound


def logs(options: Namespace, output: Output) -> int:
    """Print the log, or its end, and with -f what is added."""
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
    """Print what is added, for ever; a rotated log is read to its end, then the new one."""
    try:
        while True:
            output.flush()
            time.sleep(LOG_POLL_S)
            # Looked at first: what was written before it was replaced is then still read.
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
