"""What the library and the daemon say, in the words of the shell; pure.

Both are used by programs, too, and name arguments of Python and fields of messages there.
"""

import re
from typing import Final

from steno_protocol.positions import Position

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
