"""Salvage of whole records from a broken line, in one pass.

Two uncoordinated writers leave lines like these, and so does a writer that appends to a torn write:

    {"role":"user","content":"a"}{"role":"user","content":"b"}
    {"role":"assistant","content":[{"type":"te{"role":"user","content":"b"}

A whole record begins at the start of the line, right after another whole record, or where the half
record before it stops being JSON. An object inside a half record is a part of it, not a record.
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
"""The start of an object with a key; an empty object is not a record."""

_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*(?:"
    rb"([{}\[\]:,])"
    rb'|("(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+)'
    rb"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)"
    rb")"
)
"""A punctuation mark, a string without its closing quote, or a number or literal."""

_QUICK_FAILURES_MAX: Final = 16
"""Failures of Python's own JSON reader, which is fast but scans the whole line to word an error."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")

_TEXT, _WORD = 2, 3
"""Groups of `_TOKEN`."""

_OBJECT, _ARRAY = b"{", b"["

_VALUE, _ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = (
    "value",
    "item",
    "first key",
    "key",
    "colon",
    "next",
)
"""States of the parser, named for the token that may follow."""


def _no_constant(name: str) -> object:
    # Python's reader accepts NaN and the infinities, which are not JSON.
    raise ValueError(name)


_whole_value: Final = json.JSONDecoder(parse_constant=_no_constant).raw_decode


class _Broken(msgspec.Struct, frozen=True):
    """An object that breaks off.

    Attributes:
        retry: the earliest offset of the next record.
        inner: an object in it that ends right before it breaks off.
        tokens: the number of tokens that were read.
    """

    retry: int
    inner: Span | None
    tokens: int


def whole_records(line: bytes, is_record: Callable[[bytes], bool], *, ended: bool) -> list[Span]:
    """Return the spans of the whole records of a broken line, in order; the rest is damage.

    The time is linear in the line: no byte is read more than twice, and after `WELD_TOKENS_MAX`
    tokens that yielded no record the rest of the line counts as damage.

    Args:
        line: one line without its newline.
        is_record: whether an object is a record of this file; called only for objects that follow
            damaged bytes.
        ended: the line had a newline.
    """
    found: list[Span] = []
    # Latin-1 has one character a byte, so that indexes of the text are offsets of the line.
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
    """Whether a line is one object or array by JSON's grammar, in UTF-8.

    A decoder may still refuse a value: half a surrogate pair, or a number beyond every float. Other
    readers accept those, so they are not damage.
    """
    start = _skip_space(line, 0)
    if line[start : start + 1] not in (_OBJECT, _ARRAY):
        return False
    read = _read_object(line, start, limits.WELD_TOKENS_MAX)
    return isinstance(read, Span) and not line[read.end :].strip() and _is_text(line)


def _next_start(line: bytes, at: int, *, is_clean: bool) -> int | None:
    """Return the offset of the next object that may be a record."""
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
    """Return the whole record at an object that was parsed, if there is one."""
    if isinstance(read, Span):
        if is_clean:
            return read if _is_text(line[read.start : read.end]) else None
        chosen: Span | None = read
    else:
        # An object at the end of a half record is the next record if it looks like one, and
        # otherwise the half record's last part. Without a newline nothing follows the half record.
        chosen = read.inner if ended else None
    if chosen is None or not _ends_record(line, chosen.end):
        return None
    data = line[chosen.start : chosen.end]
    return chosen if _is_text(data) and is_record(data) else None


def _ends_record(line: bytes, end: int) -> bool:
    """Whether a record can end here: before nothing, another record, or a lost page."""
    after = _skip_space(line, end)
    return line[after : after + 1] in (b"", _OBJECT, b"\0")


def _read_quickly(text: str, start: int) -> Span | _Broken | None:
    """Return the whole object at `start` by the fast reader; None if it has to be parsed slowly."""
    try:
        _, end = _whole_value(text, start)
    except (ValueError, RecursionError):
        return None
    return Span(start, end)


def _read_object(line: bytes, start: int, tokens_max: int) -> Span | _Broken:
    """Parse the object or array at `start` as far as it is JSON, at most `tokens_max` tokens."""
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
    """Return the state after `mark`, or None if `mark` is not allowed here."""
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
    """Return the offset at which to continue after an object that broke off at `error`.

    A record written into the middle of a string ends that string with its own first quote, so it
    begins at the last brace of that string. There is no brace between it and the error, so no byte
    is read more than twice.
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
