"""What comes on stdin; the command may have begun with none."""

import sys
from argparse import Namespace
from typing import TextIO

from steno.cli.exits import WrongUsage


def text_or_stdin(options: Namespace, name: str) -> str:
    """The text of an argument, stdin for `-`; read once, however often it is asked for.

    Raises:
        WrongUsage: stdin is closed, or is no text.
    """
    text: str = getattr(options, name)
    if text == "-":
        text = _text(stdin())
        setattr(options, name, text)
    return text


def stdin() -> TextIO:
    """The stream itself.

    Raises:
        WrongUsage: it is closed.
    """
    if sys.stdin is None:
        raise WrongUsage("stdin is closed, and this command reads it: give it a file or a pipe")
    return sys.stdin


def is_typed() -> bool:
    """True when a person is likely to type what comes."""
    return sys.stdin is not None and sys.stdin.isatty()


def _text(stream: TextIO) -> str:
    try:
        text = stream.read()
        # In the locale C what cannot be decoded comes as surrogates instead of an error.
        text.encode()
    except UnicodeError:
        raise WrongUsage(
            f"stdin is no text in {stream.encoding}: convert it, with iconv for example"
        ) from None
    return text
