r"""The copy of a text that is searched, and the places of its characters in the text; pure.

    "\x1b[31msk-proj\\u002da1"    "sk-proj-a1"

Colour codes and characters without a width are left out, and what stands for another character
(`\n`, `\u003d`, `%3D`, `&quot;`) is that character. Three more copies keep the commands of a
terminal, their last letters, or their last digits: each may be a part of a secret. Another one has
no line breaks inside of words: a terminal cuts a long key at its width.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""

_SEQUENCE: Final = r"\[[0-?]{0,64}[ -/]{0,8}[@-~]"
_NO_WIDTH: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f"
)
_TERMINAL: Final = (
    rf"(?<=\x1b)(?:{_SEQUENCE}|\][^\x07\x1b]{{0,4096}}(?:\x07|\x1b\\)|[ -/]{{0,2}}[0-~])"
    rf"|(?<=\x9b){_SEQUENCE[2:]}|"
)
"""What a terminal takes for a command behind its first character."""

_WRITTEN: Final = (
    # Colour codes that are written out or have lost their first character.
    rf"(?<=\\)\\{{0,7}}(?:x1[bB]|u001[bB]|033|e){_SEQUENCE}"
    rf"|(?<=\^)\[{_SEQUENCE}"
    r"|(?<=\[)[0-9;]{1,16}m"
    rf"|(?<=[{_NO_WIDTH}])[{_NO_WIDTH}]*"
    # One character that stands for another.
    r"|(?<=\\)\\{0,7}(?:u00(?P<unicode>[0-7][0-9A-Fa-f])|x(?P<hex>[0-7][0-9A-Fa-f])"
    r"|(?P<control>[nrt])|(?P<same>[\"'`/]))"
    r"|(?<=%)(?P<percent>[2-7][0-9A-Fa-f])"
    r"|(?<=&)(?:(?P<entity>quot|apos|amp|lt|gt)|#(?P<number>[0-9]{2,3})"
    r"|#[xX](?P<code>[2-7][0-9A-Fa-f]));"
)
# The first character alone, so that the search for it is fast; then what it begins.
_ESCAPES: Final = re.compile(rf"[\x1b\x9b\\%&^\[{_NO_WIDTH}](?:{_TERMINAL}{_WRITTEN})")
_WRITTEN_ESCAPES: Final = re.compile(rf"[\\%&^\[{_NO_WIDTH}](?:{_WRITTEN})")
_INTRODUCERS: Final = ("\x1b", "\x9b")
_SIGNS: Final = ("\\", "%", "&", "\x1b", "^[")
_NOT_ASCII: Final = re.compile(rf"[\x9b{_NO_WIDTH}]")
_WITHOUT_BEGIN: Final = re.compile(r"\[[0-9;]{1,16}m")
_FINAL: Final = re.compile(
    r"[\x1b\x9b\\^\[](?:(?<=[\x1b^])\[|(?<=\x9b)|(?<=\\)(?:x1[bB]|u001[bB]|033|e)\[|(?<=\[)(?=[0-9]))"
    r"\[?[0-?]{0,64}[ -/]{0,8}"
    r"(?:[A-Za-ln-z_]|m(?=[A-Za-z0-9_~.+/=:%-]{14}))"
)
"""A command whose last letter may begin a secret; of a colour, if a long word is glued to it."""
_DIGITS: Final = re.compile(
    r"[\x1b\x9b\\^](?:(?<=\x1b)\[|(?<=\x9b)|(?<=\^)\[\[|(?<=\\)(?:x1[bB]|u001[bB]|033|e)\[)"
    r"(?:[0-9]{1,3};){0,8}[01]?"
    r"(?=[0-9][A-Za-z0-9_/:-]{13}|-----BEGIN)"
)
"""The begin of a command whose further digits may begin a secret: a long word is glued to it."""
_CONTROLS: Final = {"n": "\n", "r": "\n", "t": "\t"}
_ENTITIES: Final = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}
_BREAK: Final = re.compile(
    r"(?<=[A-Za-z0-9_+/=.:~-])\\?[\r\n]{1,2}[ \t]{0,64}(?=[A-Za-z0-9_+/=.~-])"
)


class Copy:
    """A copy of a text.

    Attributes:
        text: what is searched.
        firsts: where each run of unchanged characters begins, in order.
    """

    __slots__ = ("_ends", "_origins", "firsts", "text")

    def __init__(self, text: str, firsts: list[int], origins: list[int], ends: list[int]) -> None:
        self.text = text
        # Runs: where each begins in the copy and in the text, and where its first character ends.
        self.firsts, self._origins, self._ends = firsts, origins, ends

    def runs(self, start: int, end: int) -> int:
        """The number of runs that begin inside of a part of the copy."""
        return bisect_left(self.firsts, end) - bisect_right(self.firsts, start)

    def span(self, start: int, end: int) -> Span:
        """The part of the text that a part of the copy stands for."""
        if not self.firsts or start >= end:
            return start, end
        first = bisect_right(self.firsts, start) - 1
        last = bisect_right(self.firsts, end - 1) - 1
        # One character that stands for an escape is a run of its own, so that all others are one.
        begin = self._origins[first] + start - self.firsts[first]
        return begin, self._ends[last] + end - 1 - self.firsts[last]


def copies(text: str) -> Iterator[Copy]:
    r"""The copies that are searched: the one without escapes, and three more that keep commands.

    The last letter of a command may be the first of a secret that is glued to an unfinished one:
    `m` of `\x1b[1mob-…`. Digits and dashes behind the begin of a command may begin a secret: `4` of
    `\x1b[1409…-us12`, a key of Mailchimp. A secret behind an escape character may look like a part
    of a command (`ESC s` of `ESC sk-…`), and may be inside of one, as in a title.
    """
    if not _has_escapes(text):
        yield Copy(text, [], [], [])
        return
    yield _replaced(text, _ESCAPES, _stands_for)
    # Every other form of a command has the bracket.
    if "[" in text or "\x9b" in text:
        if _FINAL.search(text) is not None:
            yield _replaced(text, _ESCAPES, _final_of)
        if _DIGITS.search(text) is not None:
            yield _replaced(text, _DIGITS, _mark)
    if any(sign in text for sign in _INTRODUCERS):
        yield _replaced(text, _WRITTEN_ESCAPES, _stands_for)


def _has_escapes(text: str) -> bool:
    if any(sign in text for sign in _SIGNS) or _WITHOUT_BEGIN.search(text) is not None:
        return True
    return not text.isascii() and _NOT_ASCII.search(text) is not None


def escapes(text: str) -> int:
    """The number of characters that may begin an escape: the copies have at most so many runs."""
    if not _has_escapes(text):
        return 0
    signs = sum(map(text.count, "\\%&\x1b^["))
    return signs if text.isascii() else signs + _number(_NOT_ASCII, text)


def breaks(text: str) -> int:
    """The number of line breaks that the copy without them leaves out."""
    return _number(_BREAK, text) if has_breaks(text) else 0


def _number(expression: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in expression.finditer(text))


def long_words(text: str, chars: int) -> str:
    """The words of at least so many characters."""
    return " ".join([word for word in text.split() if len(word) >= chars])


def has_breaks(text: str) -> bool:
    """Whether a text has more than one line, so that a break may cut a word."""
    return "\n" in text or "\r" in text


def without_breaks(text: str) -> str:
    """A text without its line breaks, and the spaces beside them."""
    return "".join(lines_of(text))


def lines_of(text: str) -> list[str]:
    """The lines of a text, without the spaces beside their breaks."""
    return [line.strip(" \t\\") for line in text.splitlines()]


def joined(text: str) -> Copy | None:
    """The copy with no line breaks inside of words; None if there are none."""
    if not has_breaks(text):
        return None
    copy = _replaced(text, _BREAK, _nothing)
    return copy if len(copy.text) < len(text) else None


def lowered(text: str) -> str:
    """A text of the same length in lower case."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()


def _replaced(
    text: str, expression: re.Pattern[str], stands_for: Callable[[re.Match[str]], str]
) -> Copy:
    pieces: list[str] = []
    firsts, origins, ends = [0], [0], [1]
    size = at = 0
    for found in expression.finditer(text):
        start, end = found.span()
        if start > at:
            pieces.append(text[at:start])
            size += start - at
        for character in stands_for(found):
            pieces.append(character)
            firsts.append(size)
            origins.append(start)
            ends.append(end)
            size += 1
        firsts.append(size)
        origins.append(end)
        ends.append(end + 1)
        at = end
    pieces.append(text[at:])
    return Copy("".join(pieces), firsts, origins, ends)


def _nothing(_: re.Match[str]) -> str:
    return ""


def _mark(found: re.Match[str]) -> str:
    """What no word contains, behind a word; else nothing, since an address may go on behind it."""
    before = found.string[max(0, found.start() - 1) : found.start()]
    return "\x1b" if before.isalnum() or before == "_" else ""


def _final_of(found: re.Match[str]) -> str:
    """The last letter of a command, behind what no word contains; else what an escape stands for.

    Both stand for the whole command, so that a mask leaves no part of it.
    """
    last = found[0][-1]
    is_command = found.lastgroup is None and last.isascii() and (last.isalpha() or last == "_")
    return f"\x1b{last}" if is_command else _stands_for(found)


def _stands_for(found: re.Match[str]) -> str:
    """The character that an escape stands for; empty if it is left out."""
    kind, value = found.lastgroup, found[found.lastgroup] if found.lastgroup else ""
    match kind:
        case None:
            return ""
        case "control":
            return _CONTROLS[value]
        case "entity":
            return _ENTITIES[value]
        case "same":
            return value
        case "number":
            code = int(value)
            return chr(code) if 32 <= code < 127 else " "
        case _:
            return chr(int(value, 16))
