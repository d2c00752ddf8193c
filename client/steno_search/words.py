"""The searchable words of a text; pure.

FTS5 takes a run of letters and digits as one word. Chinese, Japanese and Korean are written without
spaces, or with endings that belong to no word: there, each character is made a word of its own, and
a query finds characters that follow each other.
"""

import re
from typing import Final

JOINT: Final = "\x1f"
"""Stands around a character that is a word of its own. Texts lose theirs."""

BEGIN: Final = "\x01"
END: Final = "\x02"
"""Stand around a found word while it is marked. Texts lose theirs."""

_SINGLE: Final = re.compile(
    "["
    "\u3040-\u30ff"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\uac00-\ud7af"  # Hangul
    "\U00020000-\U0003ffff"  # rarer Chinese characters
    "]"
)
_OWN: Final = re.compile("[\x00\x01\x02\x1f]")


def separated(text: str) -> str:
    """A text in which every word is one for FTS5; `joined` gives the text back.

    The result is valid UTF-8 without NUL, whatever the text has.
    """
    if text.isascii():
        return _OWN.sub(" ", text) if _OWN.search(text) else text
    sound = _OWN.sub(" ", text.encode("utf-8", "replace").decode())
    return _SINGLE.sub(f"{JOINT}\\g<0>{JOINT}", sound)


def joined(text: str) -> str:
    """A separated text as it was."""
    return text.replace(JOINT, "")
