"""Messages in the words of the shell: their printed commands reach the command's daemon."""

import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from steno_protocol import paths
from steno_protocol.positions import Position

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


def own_command(root: Path, *words: str) -> list[str]:
    """The words that run this very command on a root, in a process of its own."""
    # -P: a module in the working folder must not replace one of ours.
    return [sys.executable, "-P", "-m", "steno_cli", "--root", str(root), *words]


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


PHRASES: Final = {
    "open it without exclusive": "leave --exclusive out",
    "choose another with root=, --root or STENO_HOME": "choose another with --root or STENO_HOME",
    "(checkpoint, update_token_count, write_system_prompt)": (
        "(`steno checkpoint`, `steno usage`, `steno prompt`)"
    ),
    "send that one first, or leave after_key out": "send that one first",
    "which compact_begin reserved": "which the compaction reserved",
}
"""Phrases with the names of another interface, and the same for a shell."""

_DENIED: Final = re.compile(r"the disk failed: \[Errno (?:1|13|30)\] ([^:]+): ")
"""A refusal of the file system: its disk is in order."""

_OVERTAKEN: Final = re.compile(
    r"another writer was faster: (\d+:\d+) was expected and the session ends at (\d+:\d+);"
)


def in_shell_words(message: str) -> str:
    """A message with the words that a reader of the command knows.

    >>> in_shell_words("the disk failed: [Errno 13] Permission denied: 'state.json.new'; nothing")
    "it cannot be written (Permission denied): 'state.json.new'; nothing"
    """
    for phrase, words in PHRASES.items():
        message = message.replace(phrase, words)
    message = _DENIED.sub(lambda found: f"it cannot be written ({found[1]}): ", message)
    return _OVERTAKEN.sub(_beyond_the_end, message)


def _beyond_the_end(found: re.Match[str]) -> str:
    """An expected position that no writer has reached yet is no sign of another writer."""
    expected, head = found[1], found[2]
    if Position.parse(expected) <= Position.parse(head):
        return found[0]
    return f"{expected} was expected and the session ends before it, at {head};"
