"""Whole records inside a broken line: found again in one pass, whatever else the line holds.

Two writers that do not know of each other leave lines like these, and so does one that appends to
what a crash cut short:

    {"role":"user","content":"a"}{"role":"user","content":"b"}
    {"role":"assistant","content":[{"type":"te{"role":"user","content":"b"}

A record that is whole begins where the line begins, right after another whole one, or where the
half before it stops making sense. What lies inside a half record is a part of it, not a record.
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from steno_protocol import limits


class Span(NamedTuple):
    """A range of bytes, `end` not included."""

    start: int
    end: int


_OPENING: Final = re.compile(rb'\{[ \t\r]*"')
"""How an object with a key begins; an empty one is no record."""

_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*(?:"
    rb"([{}\[\]:,])"
    rb'|("(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+)'
    rb"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)"
    rb")"
)
"""A mark, a text without its closing quote, or a number or name."""

_QUICK_FAILURES_MAX: Final = 16
"""Python's own reader is quick, but looks through the whole line to word an error."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")

_TEXT, _WORD = 2, 3
"""Numbers of its groups."""

_OBJECT, _ARRAY = b"{", b"["

_VALUE, _ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = (
    "value",
    "item",
    "first key",
    "key",
    "colon",
    "next",
)
"""What may come next."""


def _no_constant(name: str) -> object:
    # Python's reader takes NaN and the infinities, which are no JSON.
    raise ValueError(name)


_whole_value: Final = json.JSONDecoder(parse_constant=_no_constant).raw_decode


class _Broken(msgspec.Struct, frozen=True):
    """An object that was begun and does not end.

    Attributes:
        retry: where the next record may begin, at the earliest.
        inner: an object in it that ended right before it broke off.
        tokens: how many were read.
    """

    retry: int
    inner: Span | None
    tokens: int


def whole_records(line: bytes, is_record: Callable[[bytes], bool], *, ended: bool) -> list[Span]:
    """Where the whole records of a broken line lie, in order; the rest of it is damage.

    Takes time in proportion to the line: no byte is read more than twice, and after
    `WELD_TOKENS_MAX` tokens that came to nothing the rest of the line counts as damage.

    Args:
        line: one line without its newline.
        is_record: whether an object is a record of this file; called only for objects that
            something damaged precedes.
        ended: the line had a newline.
    """
    found: list[Span] = []
    # One byte is one character here, so that places in the text are places in the line.
    text = line.decode("latin-1")
    at, is_clean, tokens, quick = 0, True, limits.WELD_TOKENS_MAX, _QUICK_FAILURES_MAX
    while tokens > 0:
        start = _next_start(line, at, is_clean=is_clean)
        if start is None:
            break
        is_clean = is_clean and start == _skip_space(line, at)
        read = _read_quickly(text, start) if is_clean and quick else None
        if read is None:
            quick -= is_clean and quick > 0
            read = _read_object(line, start, tokens)
        whole = _accepted(line, read, is_record, is_clean=is_clean, ended=ended)
        if whole is not None:
            found.append(whole)
            at, is_clean = whole.end, True
        else:
            at, is_clean = read.retry if isinstance(read, _Broken) else read.end, False
            tokens -= read.tokens if isinstance(read, _Broken) else 1
    return found


def is_well_formed(line: bytes) -> bool:
    """True for a line that is one object or array by JSON's grammar, in UTF-8.

    Its values may still be none that a decoder takes: half a surrogate pair, a number beyond every
    float. Other readers take them, so they are no damage.
    """
    start = _skip_space(line, 0)
    if line[start : start + 1] not in (_OBJECT, _ARRAY):
        return False
    read = _read_object(line, start, limits.WELD_TOKENS_MAX)
    return isinstance(read, Span) and not line[read.end :].strip() and _is_text(line)


def _next_start(line: bytes, at: int, *, is_clean: bool) -> int | None:
    """Where the next object begins that may be a record."""
    if is_clean:
        first = _skip_space(line, at)
        if line[first : first + 1] == _OBJECT:
            return first
    opening = _OPENING.search(line, at)
    return opening.start() if opening is not None else None


def _accepted(
    line: bytes,
    read: Span | _Broken,
    is_record: Callable[[bytes], bool],
    *,
    is_clean: bool,
    ended: bool,
) -> Span | None:
    """The whole record that reading an object led to, if any."""
    if isinstance(read, Span):
        if is_clean:
            return read if _is_text(line[read.start : read.end]) else None
        chosen: Span | None = read
    else:
        # An object inside a half record, at its end, is the next record if it looks like one, and
        # else the last part of the half one. Without a newline nothing was written after the half.
        chosen = read.inner if ended else None
    if chosen is None or not _ends_record(line, chosen.end):
        return None
    data = line[chosen.start : chosen.end]
    return chosen if _is_text(data) and is_record(data) else None


def _ends_record(line: bytes, end: int) -> bool:
    """True when what follows can follow a record: nothing, another one, or a lost page."""
    after = _skip_space(line, end)
    return line[after : after + 1] in (b"", _OBJECT, b"\0")


def _read_quickly(text: str, start: int) -> Span | _Broken | None:
    """The object at `start` if it is whole and an everyday one; None leaves it to the slow way."""
    try:
        _, end = _whole_value(text, start)
    except (ValueError, RecursionError):
        return None
    return Span(start, end)


def _read_object(line: bytes, start: int, tokens_max: int) -> Span | _Broken:
    """Read the object or array at `start` as far as it makes sense, at most so many tokens."""
    stack: list[int] = []
    state, at = _VALUE, start
    last: re.Match[bytes] | None = None
    inner: Span | None = None
    for count in range(1, tokens_max + 1):
        token = _TOKEN.match(line, at)
        if token is None:
            return _Broken(_retry(line, _skip_space(line, at), last), inner, count)
        begin, at = token.start(token.lastindex or 0), token.end()
        if token.lastindex == _TEXT:
            if line[at : at + 1] != b'"':
                return _Broken(_retry(line, at, token), None, count)
            at += 1
        mark = line[begin : begin + 1] if token.lastindex != _WORD else b"0"
        following = _step(state, mark, line, stack)
        if following is None or len(stack) >= limits.WELD_DEPTH_MAX:
            return _Broken(_retry(line, begin, last), inner, count)
        inner = None
        if mark in (b"{", b"["):
            stack.append(begin)
        elif mark in (b"}", b"]"):
            opened = stack.pop()
            if not stack:
                return Span(start, at)
            inner = Span(opened, at) if mark == b"}" else None
        state, last = following, token
    return _Broken(at, None, tokens_max)


def _step(state: str, mark: bytes, line: bytes, stack: list[int]) -> str | None:
    """What may come after `mark`, or None when it may not come here."""
    inside = line[stack[-1] : stack[-1] + 1] if stack else b""
    match state, mark:
        case ("value" | "item", b"{"):
            return _FIRST_KEY
        case ("value" | "item", b"["):
            return _ITEM
        case ("value" | "item", b'"' | b"0"):
            return _NEXT
        case ("first key" | "key", b'"'):
            return _COLON
        case ("colon", b":"):
            return _VALUE
        case ("next", b","):
            return _KEY if inside == _OBJECT else _VALUE
        case ("first key", b"}") | ("item", b"]"):
            return _NEXT
        case ("next", b"}") if inside == _OBJECT:
            return _NEXT
        case ("next", b"]") if inside == _ARRAY:
            return _NEXT
        case _:
            return None


def _retry(line: bytes, error: int, last: re.Match[bytes] | None) -> int:
    """Where to go on after an object that broke off at `error`.

    A record that was written into the middle of a text lies in that text, which ends at the
    record's first quote; so the last brace of the last text is the place to look at. Between it
    and the error there is no other, which is why nothing is read more than twice.
    """
    begin = last.start(_TEXT) if last is not None and last.lastindex == _TEXT else error
    brace = line.rfind(_OBJECT, begin, error + 1)
    return brace if brace >= 0 else error


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _skip_space(line: bytes, at: int) -> int:
    space = _SPACE.match(line, at)
    return space.end() if space is not None else at
