"""The standard input of a command, as text or as lines; it may be closed."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import BinaryIO, TextIO

from steno.cli.exits import WrongUsage
from steno_protocol import limits
from steno_protocol.errors import TooLarge


def text_or_stdin(options: Namespace, name: str) -> str:
    """The text of an argument, or of stdin for `-`, which is read once.

    Raises:
        WrongUsage: stdin is closed, or is no text.
    """
    text: str = getattr(options, name)
    if text == "-":
        text = _text(stdin())
        setattr(options, name, text)
    return text


def stdin() -> TextIO:
    """The stream.

    Raises:
        WrongUsage: stdin is closed.
    """
    if sys.stdin is None:
        raise WrongUsage("stdin is closed, and this command reads it: give it a file or a pipe")
    return sys.stdin


def is_typed() -> bool:
    """True if stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def _text(stream: TextIO) -> str:
    try:
        text = stream.read()
        # In the locale C, undecodable bytes become surrogates instead of an error.
        text.encode()
    except UnicodeError:
        raise WrongUsage(
            f"stdin is no text in {stream.encoding}: convert it, with iconv for example"
        ) from None
    return text


def json_batch(lines: Iterator[tuple[int, bytes]]) -> list[bytes]:
    """The records of one batch; an endless stdin is read no further than a batch can hold."""
    batch: list[bytes] = []
    size = 0
    for _, line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) > limits.BATCH_RECORDS_MAX or size > limits.BATCH_BYTES_MAX:
            raise TooLarge(
                f"stdin holds more than a batch, which is {limits.BATCH_RECORDS_MAX} records and"
                f" {limits.BATCH_BYTES_MAX} bytes at most: send several batches"
            )
    return batch


def json_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines without their ends, with their numbers from 1; blank lines are skipped."""
    line_number = 0
    while line := stream.readline(limits.RECORD_BYTES_MAX + 2):
        line_number += 1
        if not line.endswith(b"\n") and len(line) > limits.RECORD_BYTES_MAX:
            raise TooLarge(
                f"line {line_number} of stdin is longer than {limits.RECORD_BYTES_MAX} bytes:"
                " split it, or store the large part elsewhere and refer to it"
            )
        if line.strip():
            yield line_number, line.rstrip(b"\r\n")
