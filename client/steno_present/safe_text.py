"""Texts that cannot control what shows them; pure.

A record comes from strangers. Neutralised are the control characters of C0 and C1, DEL, the marks
of text direction, characters without width, and tag characters: the first ones control a terminal,
and the others show a reader something else than what a model or a shell reads.
"""

import re
from typing import Final

_CONTROLLING: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # without width, or marks of direction
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff"  # tags and further selectors of variants
)
_UNPRINTABLE: Final = re.compile(f"[{_CONTROLLING}]")
_ASCII_CONTROLS: Final = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
"""What `_UNPRINTABLE` finds in ASCII."""
_UNPRINTABLE_BUT_COLOURS: Final = re.compile(rf"(\x1b\[[0-9;]{{0,40}}m)|[{_CONTROLLING}]")

_ANSI: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, moves of the cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and strings: titles, links
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-~]"
)


def printable(text: str, *, one_line: bool = False) -> str:
    r"""A text with escapes for the characters that could control a terminal or mislead a reader.

    >>> printable("a\x1b[2Jb\u202ec")
    'a\\x1b[2Jb\\u202ec'
    """
    shown = text if is_plain(text) else _UNPRINTABLE.sub(lambda found: _escape(found[0]), text)
    return shown.replace("\n", " ").replace("\t", " ") if one_line else shown


def coloured(text: str) -> str:
    """As `printable`, of a text that this program has coloured: the colours stay."""
    return _UNPRINTABLE_BUT_COLOURS.sub(lambda found: found[1] or _escape(found[0]), text)


def printable_json(document: str) -> str:
    r"""A JSON document with JSON's own escapes, so that its meaning stays the same.

    >>> printable_json('"\u202e\x7f"')
    '"\\u202e\\u007f"'
    """
    if is_plain(document):
        return document
    return _UNPRINTABLE.sub(lambda found: _json_escape(found[0]), document)


def without_ansi(text: str) -> str:
    r"""A text without the sequences that colour it or move the cursor of a terminal.

    >>> without_ansi("\x1b[1;32mok\x1b[0m")
    'ok'
    """
    return _ANSI.sub("", text) if "\x1b" in text or "\x9b" in text else text


def is_plain(text: str) -> bool:
    """Whether a text is ASCII without control characters, but for tabs and line feeds.

    It takes an eighth of the search for characters to escape.
    """
    return text.isascii() and len(text.encode().translate(None, _ASCII_CONTROLS)) == len(text)


def _escape(character: str) -> str:
    code = ord(character)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _json_escape(character: str) -> str:
    if character == "\r":
        # Outside of a string, where alone JSON may have it, it is a space.
        return " "
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
