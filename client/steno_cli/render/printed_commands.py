"""Printed commands that reach the daemon of the command that prints them."""

import re
import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Final

from steno_protocol import paths

_DESTINATION: Final = ("root", "socket", "endpoint", "key_file")
"""The options that say which daemon is meant."""

_CALL: Final = re.compile(
    r"`(steno (?!help |completion |cluster config|cluster try)[^`]+)`(?! on (?:its|that) machine)"
)
"""A printed command that needs a daemon, unless its text says that it runs on another machine."""

_NAMED: Final = re.compile(r" --(?:root|socket|endpoint)\b")
"""A part of a command that names its destination already."""

_LOCAL: Final = re.compile(r"steno (?:config|demo|doctor|import|keys|logs|restart|service|start)\b")
"""The commands that refuse a daemon on another machine: they use the files of its root."""


def given_words(options: Namespace, names: Iterable[str]) -> list[str]:
    """The options among `names` that the user gave, as words of a command line."""
    words: list[str] = []
    for name in names:
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value}"]
    return words


def destination(options: Namespace) -> list[str]:
    """The given options that say which daemon is meant, as words of a command line."""
    return given_words(options, _DESTINATION)


def with_destination(text: str, words: Sequence[str]) -> str:
    """`text` with the words of a destination in each command between backticks.

    >>> with_destination("`steno delete demo` removes it", ["--root", "a b"])
    "`steno delete demo --root 'a b'` removes it"
    >>> with_destination("`steno append ID < FILE`, or `steno help append`", ["--root", "a"])
    '`steno append ID --root a < FILE`, or `steno help append`'
    >>> with_destination("`steno restart`, then `steno status`", ["--endpoint", "tcp://h:1"])
    '`steno restart`, then `steno status --endpoint tcp://h:1`'
    """
    is_remote = any(map(paths.is_remote, words))

    def addressed(found: re.Match[str]) -> str:
        call = found[1]
        if _NAMED.search(call) or (is_remote and _LOCAL.match(call)):
            return found[0]
        command, redirection, file = call.partition(" <")
        return f"`{command} {shlex.join(words)}{redirection}{file}`"

    return _CALL.sub(addressed, text)
