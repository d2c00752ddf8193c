"""Calls of `steno` in the process of the tests, with the streams and environment of their own.

Most of the time of a short command in a fork is the fork. A call from an event loop or another
thread is a fork of `warm_command`, and so must one be that starts a reader, which ends with its
process.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from unittest.mock import patch

import sniffio

from steno_cli import readable
from steno_cli.entry import main
from support.warm_command import exchanged, pipes, stream

_SIGNALS: Final = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
"""What some commands handle by themselves, to the end of their process."""

_RENDER_S_MAX: Final = 60.0


def is_possible() -> bool:
    """Whether a command can have this thread, for its signals and its event loop."""
    if threading.current_thread() is not threading.main_thread():
        return False
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return True
    return False


def run(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end, as `subprocess.run` does; an exception is that of a bug."""
    theirs, (feed, *read) = pipes()
    said: list[bytes] = []
    until = time.monotonic() + timeout
    reading = threading.Thread(target=lambda: said.extend(exchanged(feed, stdin, read, until)))
    reading.start()
    try:
        with _as_its_process(arguments, environment, theirs):
            code = main(arguments)
    finally:
        reading.join()
    return subprocess.CompletedProcess(list(arguments), code, *said)


@contextmanager
def _as_its_process(
    arguments: Sequence[str], environment: Mapping[str, str], handles: Sequence[int]
) -> Iterator[None]:
    """Give a command what its process would have, and take it back."""
    usual = sys.__stdin__, sys.__stdout__, sys.__stderr__
    streams = [stream(*each) for each in zip(handles, usual, strict=True)]
    handlers = {each: signal.getsignal(each) for each in _SIGNALS}
    named = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
    try:
        with (
            patch.dict(os.environ, environment, clear=True),
            patch.multiple(sys, argv=["steno", *arguments], **named),
            # Python looks for it once a process.
            patch.object(tempfile, "tempdir", None),
            # Its alarm would also end what the tests do behind the text.
            patch.object(readable, "RENDER_S_MAX", _RENDER_S_MAX),
        ):
            time.tzset()
            yield
    finally:
        time.tzset()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in streams:
            # As at the end of a process: the reader may have gone.
            with suppress(OSError, ValueError):
                each.close()
