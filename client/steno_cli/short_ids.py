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

_HEXADECIMAL: Final = re.compile(rf"[0-9a-f][0-9a-f-]{{{_SHORT_CHARS - 1},}}")
"""The beginning of a generated segment, and a few words such as `feed`."""


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
    return {each: _short_id(each, forms) for each in known}


def _short_id(session: str, forms: dict[str, dict[str, str | None]]) -> str:
    """Return the short form of an id, given those of all segments by what is before them."""
    shorts = [forms[parent][segment] for parent, segment in _segments(session)]
    *above, last = shorts
    if last is None:
        return session
    if None in above:
        # The form of such a segment would match its siblings, too; whole ids above match one.
        parent = "".join(segment for _, segment in list(_segments(session))[:-1])
        return parent + last
    return "".join(short for short in shorts if short is not None)


def is_shortened(session: str) -> bool:
    """Whether a segment of an id has a shorter form."""
    return any(_GENERATED.fullmatch(segment) for segment in _split(session))


def matches(form: str, session: str) -> bool:
    """Whether an id has a short form: its mount, and segments that begin with those of the id."""
    wanted, found = _split(form), _split(session)
    return (
        len(wanted) <= len(found)
        and wanted[0] == found[0]
        and all(map(str.startswith, found, wanted))
    )


def may_be_short(text: str) -> bool:
    """Whether a text has a segment that looks like the short form of a generated one."""
    return any(_HEXADECIMAL.fullmatch(segment) for segment in _split(text))


def is_short_form(text: str, session: str) -> bool:
    """Whether a text shortens nothing but generated segments of an id, as `short_ids` does."""
    given, whole = _split(text), _split(session)
    return len(given) == len(whole) and all(
        part == segment
        or (
            len(part) >= _SHORT_CHARS and segment.startswith(part) and _GENERATED.fullmatch(segment)
        )
        for part, segment in zip(given, whole, strict=True)
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


def _short_segments(siblings: Iterable[str]) -> dict[str, str | None]:
    """Return the short form of each of some siblings; None if another one begins with it whole."""
    segments = sorted(siblings, key=_name)
    names = [*map(_name, segments)]
    shorts: dict[str, str | None] = {}
    for at, (segment, name) in enumerate(zip(segments, names, strict=True)):
        # A session and the folder of its subsessions have the same name.
        others = [other for other in names[max(0, at - 2) : at + 3] if other != name]
        if any(other.startswith(name) for other in others):
            shorts[segment] = None
            continue
        shared = max((_shared(name, other) for other in others), default=0)
        is_generated = _GENERATED.fullmatch(name) is not None
        shorts[segment] = (
            segment if not is_generated else (_beginning(name, shared + 1) + segment[len(name) :])
        )
    return shorts


def _beginning(name: str, chars: int) -> str:
    """Return at least so many first characters; a form that ends with a hyphen looks cut off."""
    chars = max(_SHORT_CHARS, chars)
    return name[: chars + (name[chars - 1] == "-")]


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
