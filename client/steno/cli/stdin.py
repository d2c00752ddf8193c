"""The standard input of a command, which may be closed."""

import sys
from argparse import Namespace
from typing import TextIO

from steno.cli.exits import WrongUsage


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
