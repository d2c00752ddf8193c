"""The standard input of a command, as text or as lines; it may be closed."""

import os
import select
import stat
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TextIO

from steno_cli.exits import WrongUsage
from steno_protocol import limits
from steno_protocol.errors import BadRequest, TooLarge

_READ_BYTES: Final = 1 << 18
"""Bytes of one read: a pipe holds 64 KiB, and a file is read with few calls."""


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


class InputLine(NamedTuple):
    """A line of stdin without its end, with its number from 1."""

    number: int
    text: bytes


class InputLines:
    """The lines of stdin, each as soon as it is complete; blank lines are skipped.

    The memory in use is that of one read and one record, whatever the length of the input.

    Attributes:
        is_at_end: there is no further line.
        taken_bytes: bytes of the lines that were taken, blank ones included.
    """

    def __init__(self, stream: TextIO) -> None:
        self._descriptor = stream.fileno()
        self._rest = bytearray()
        self._lines: deque[bytes] = deque()
        self._has_ended = False
        self._number = 0
        self.taken_bytes: int = 0

    @property
    def is_at_end(self) -> bool:
        """True once every line was taken."""
        return self._has_ended and not self._lines and not self._rest

    @property
    def total_bytes(self) -> int | None:
        """The length of a regular file, from the position at the start; None for other inputs."""
        status = os.fstat(self._descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def take(self, *, wait: bool) -> InputLine | None:
        """Take the next line.

        Args:
            wait: wait for a line of a slow producer.

        Returns:
            None at the end, or without `wait` if no whole line has arrived.

        Raises:
            TooLarge: the line is longer than a record may be.
        """
        while True:
            while self._lines:
                line = self._taken(self._lines.popleft())
                if line is not None:
                    return line
            if self._has_ended:
                last, self._rest = bytes(self._rest), bytearray()
                return self._taken(last) if last else None
            if not wait and not select.select([self._descriptor], [], [], 0)[0]:
                return None
            self._read()

    def put_back(self, line: InputLine) -> None:
        """Let the last line be taken once more."""
        self._number = line.number - 1
        self.taken_bytes -= len(line.text) + 1
        self._lines.appendleft(line.text + b"\n")

    def peek(self) -> bytes:
        """The next line that is not blank, which stays; empty at the end.

        Raises:
            TooLarge: the line is longer than a record may be.
        """
        unseen: Iterable[bytes] = self._lines
        while True:
            for line in unseen:
                if line.strip():
                    return line
            if self._has_ended:
                return bytes(self._rest)
            unseen = self._read()

    def take_all(self) -> bytes:
        """Take everything that is left, blank lines included.

        Raises:
            TooLarge: it is more than a record may be.
        """
        blocks = [*self._lines, bytes(self._rest)]
        size = sum(map(len, blocks))
        self._lines, self._rest = deque(), bytearray()
        while not self._has_ended:
            blocks.append(self._read_block())
            size += len(blocks[-1])
            if size > limits.RECORD_BYTES_MAX:
                raise TooLarge(
                    f"stdin holds a text of more than {limits.RECORD_BYTES_MAX} bytes, the most of"
                    " one record: append it in parts, or store it elsewhere and refer to it"
                )
        return b"".join(blocks)

    def _read(self) -> list[bytes]:
        """Read once more; returns the lines that are whole now."""
        block = self._read_block()
        ended, newline, rest = block.rpartition(b"\n")
        if not newline:
            self._rest += block
            if len(self._rest) > limits.RECORD_BYTES_MAX:
                raise self._too_large()
            return []
        lines = [line + b"\n" for line in bytes(self._rest + ended).split(b"\n")]
        self._rest = bytearray(rest)
        self._lines += lines
        return lines

    def _read_block(self) -> bytes:
        select.select([self._descriptor], [], [])
        block = os.read(self._descriptor, _READ_BYTES)
        self._has_ended = not block
        return block

    def _taken(self, line: bytes) -> InputLine | None:
        self._number += 1
        self.taken_bytes += len(line)
        text = line.rstrip(b"\r\n")
        if len(text) > limits.RECORD_BYTES_MAX:
            self._number -= 1
            raise self._too_large()
        return InputLine(self._number, text) if text.strip() else None

    @property
    def next_number(self) -> int:
        """The number of the line after the last taken one."""
        return self._number + 1

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"line {self.next_number} of stdin is longer than {limits.RECORD_BYTES_MAX} bytes:"
            " split it, or store the large part elsewhere and refer to it"
        )


def json_batch(lines: InputLines, remedy: str = "send several batches") -> list[bytes]:
    """The records of one batch; an endless stdin is read no further than a batch can hold.

    Args:
        lines: of stdin.
        remedy: what to do if they are more than a batch.

    Raises:
        BadRequest: there is none.
        TooLarge: they are more than a batch.
    """
    batch: list[bytes] = []
    size = 0
    while (line := lines.take(wait=True)) is not None:
        batch.append(line.text)
        size += len(line.text)
        if len(batch) > limits.BATCH_RECORDS_MAX or size > limits.BATCH_BYTES_MAX:
            raise TooLarge(
                f"stdin holds more than a batch, which is {limits.BATCH_RECORDS_MAX} records and"
                f" {limits.BATCH_BYTES_MAX} bytes at most: {remedy}"
            )
    if not batch:
        raise BadRequest(
            "stdin held no record, and nothing was appended: give one JSON object a line"
        )
    return batch
