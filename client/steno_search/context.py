"""The part of a found text that is shown; pure.

A marked text is a list of its parts, of which every second one is a found word.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from steno_search.limits import SNIPPET_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Context:
    """A piece of a text.

    Attributes:
        parts: its parts; every second one is a found word.
        is_cut_before: text stands before it.
        is_cut_after: text stands after it.
    """

    parts: list[str]
    is_cut_before: bool
    is_cut_after: bool


def snippet(marked: Sequence[str], chars: int = SNIPPET_CHARS_MAX) -> Context:
    """The piece of about this length with the most found words, on one line."""
    spans, text = _spans(marked)
    first = _best(spans, chars)
    start = max(0, first - chars // 4)
    if start:
        # From a whole word on, if one begins soon.
        space = text.find(" ", start, min(first, start + chars // 8))
        start = start if space < 0 else space + 1
    end = min(len(text), start + chars)
    return Context(_cut(text, spans, start, end), start > 0, end < len(text))


def best_line(marked: Sequence[str]) -> list[str]:
    """The line with the most found words, the first of them."""
    lines: list[list[str]] = [[""]]
    for number, part in enumerate(marked):
        is_found = number % 2 == 1
        for count, piece in enumerate(part.split("\n")):
            if count:
                lines.append([""])
            _append(lines[-1], piece, is_found=is_found)
    return max(lines, key=lambda line: (len(line) // 2, bool(line[0].strip())))


def _append(parts: list[str], piece: str, *, is_found: bool) -> None:
    if is_found and piece:
        parts += [piece, ""]
    elif not is_found:
        parts[-1] += piece


def _spans(marked: Sequence[str]) -> tuple[list[tuple[int, int]], str]:
    """Where the found words stand in the text, and the text, each space one character."""
    spans: list[tuple[int, int]] = []
    text = "".join(marked)
    at = 0
    for number, part in enumerate(marked):
        if number % 2:
            spans.append((at, at + len(part)))
        at += len(part)
    return spans, "".join(" " if each.isspace() else each for each in text)


def _best(spans: Sequence[tuple[int, int]], chars: int) -> int:
    """The beginning of the first found word after which the most others follow at once."""
    best, most, last = 0, 0, 0
    for number, (first, _) in enumerate(spans):
        last = max(last, number)
        while last < len(spans) and spans[last][1] <= first + chars * 3 // 4:
            last += 1
        if last - number > most:
            best, most = first, last - number
    return best if most or not spans else spans[0][0]


def _cut(text: str, spans: Sequence[tuple[int, int]], start: int, end: int) -> list[str]:
    parts: list[str] = []
    at = start
    for first, last in spans:
        if last <= start or first >= end:
            continue
        parts += [text[at : max(at, first)], text[max(start, first) : min(last, end)]]
        at = min(last, end)
    return [*parts, text[at:end]]
