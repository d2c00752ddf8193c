"""What can contain no match of a pattern, as its bytes alone show; pure.

Asking for a session and decoding it is nearly all of the time of a search, and most files and
records have no match. A word of
ASCII letters that every match contains is in the bytes of a record as it is in its texts, unless a
writer escaped letters, which none needs to: a text without the word and without such an escape
need not be decoded.
"""

import re
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z]+")

_NOT_PLAIN: Final = frozenset("\\[](){}|")
"""Characters with which a pattern may have matches that lack parts of it."""

_QUANTIFIED: Final = re.compile(r".[*?]", re.DOTALL)
"""What may be absent from a match."""

_CASELESS: Final = re.compile("[iksIKS]")
"""Letters that are equal to letters beyond ASCII where case is ignored."""

_LENGTH_MIN: Final = 3
"""Letters of a word: fewer are in every file, and in numbers that are written otherwise."""

_MADE_UP: Final = ("None", "NaN", "Infinity")
"""Words that a text may have without the bytes: how steno writes absent names and numbers."""

_LETTER: Final = re.compile(rb"\\u00[4-7]")
"""The beginning of an escaped ASCII letter."""

_LETTER_BYTES: Final = len(rb"\u004")


def needed_word(pattern: str, *, is_text: bool, ignore_case: bool) -> bytes | None:
    """Return a word that all texts contain in which a pattern is found; None if none is known.

    >>> needed_word("disk .* full", is_text=False, ignore_case=False)
    b'disk'
    >>> needed_word("(a|b)c", is_text=False, ignore_case=False) is None
    True

    Args:
        pattern: a regular expression.
        is_text: it is a plain text instead.
        ignore_case: letters of either case match; the word is in lower case then.
    """
    if not is_text:
        if _NOT_PLAIN & set(pattern):
            return None
        pattern = _QUANTIFIED.sub("\n", pattern)
    words: Iterable[str] = _WORD.findall(pattern)
    if ignore_case:
        words = [part.lower() for word in words for part in _CASELESS.split(word)]
    made_up = [each.lower() if ignore_case else each for each in _MADE_UP]
    useful = [
        word
        for word in words
        if len(word) >= _LENGTH_MIN and not any(word in each for each in made_up)
    ]
    return max(useful, key=len).encode() if useful else None


class Prefilter:
    """Tells which bytes can have a match.

    Args:
        word: as `needed_word` returns it.
        ignore_case: letters of either case match.
    """

    def __init__(self, word: bytes, *, ignore_case: bool) -> None:
        self._word = word
        self._ignores_case = ignore_case
        self._overlap = max(len(word), _LETTER_BYTES) - 1

    def may_match(self, data: bytes) -> bool:
        """Whether a text in these bytes of JSON may have a match."""
        if self._word in (data.lower() if self._ignores_case else data):
            return True
        return _LETTER.search(data) is not None

    def may_match_any(self, blocks: Iterable[bytes]) -> bool:
        """Whether a text in a file may have a match; its blocks are read until that is known."""
        end = b""
        for block in blocks:
            data = end + block
            if self.may_match(data):
                return True
            end = data[-self._overlap :]
        return False


def prefilter_of(pattern: str, *, is_text: bool, ignore_case: bool) -> Prefilter | None:
    """Return what tells where a pattern cannot match, or None if nothing can; see `needed_word`."""
    word = needed_word(pattern, is_text=is_text, ignore_case=ignore_case)
    return None if word is None else Prefilter(word, ignore_case=ignore_case)
