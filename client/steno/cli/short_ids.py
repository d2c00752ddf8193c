"""Short forms of session ids: ids of programs by their shortest unique beginnings.

kimi:9f86d081884c7d659a2feaa0c55ad015/0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11   kimi:9f86/0199
"""

import re
from collections.abc import Iterable
from typing import Final

_GENERATED: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,64}")
"""A segment that no person chose: a UUID or a hash."""

_SHORT_CHARS: Final = 4
"""The least characters of a short form: fewer would soon belong to several sessions."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the short form of each id, which `matches` finds again.

    Args:
        ids: all ids, since a form is unique only among those.

    >>> short_ids(["demo", "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"])["demo"]
    'demo'
    """
    known = sorted(set(ids))
    siblings: dict[str, set[str]] = {}
    for each in known:
        for parent, segment in _segments(each):
            siblings.setdefault(parent, set()).add(segment)
    forms = {parent: _short_segments(segments) for parent, segments in siblings.items()}
    return {
        each: "".join(forms[parent][segment] for parent, segment in _segments(each))
        for each in known
    }


def is_shortened(session: str) -> bool:
    """Whether a segment of an id has a shorter form."""
    return any(_GENERATED.fullmatch(segment) for segment in _split(session))


def matches(form: str, session: str) -> bool:
    """Whether an id has a short form: each of its first segments begins with one of the form's."""
    wanted, found = _split(form), _split(session)
    return len(wanted) <= len(found) and all(
        segment.startswith(begin) for begin, segment in zip(wanted, found, strict=False)
    )


def _segments(session: str) -> Iterable[tuple[str, str]]:
    """Yield each segment, with the separator that follows it, and everything before it."""
    start = 0
    for found in re.finditer(r"[^:/]+[:/]?", session):
        yield session[:start], found[0]
        start = found.end()


def _split(session: str) -> list[str]:
    mount, colon, rest = session.rpartition(":")
    return [mount + colon, *rest.split("/")]


def _short_segments(siblings: Iterable[str]) -> dict[str, str]:
    """Return the short form of each of some siblings."""
    segments = sorted(siblings, key=_name)
    names = [*map(_name, segments)]
    shorts: dict[str, str] = {}
    for at, (segment, name) in enumerate(zip(segments, names, strict=True)):
        ending = segment[len(name) :]
        if _GENERATED.fullmatch(name) is None:
            shorts[segment] = segment
            continue
        others = [other for other in names[max(0, at - 2) : at + 3] if other != name]
        shared = max((_shared(name, other) for other in others), default=0)
        end = max(_SHORT_CHARS, shared + 1)
        # A form that ends with a hyphen looks cut off.
        shorts[segment] = name[: end + (name[end - 1] == "-")] + ending
    return shorts


def _name(segment: str) -> str:
    """Return a segment without the separator that follows it."""
    return segment.removesuffix("/")


def _shared(one: str, other: str) -> int:
    """Return the number of characters with which both begin."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count
