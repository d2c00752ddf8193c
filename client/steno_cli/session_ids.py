"""Session ids on the command line: prefixes, short forms, and ids apart from paths.

The short form of an id has the shortest unique beginnings of what a program generated:

kimi:9f86d081884c7d659a2feaa0c55ad015/0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11   kimi:9f86/0199
"""

import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Final

from steno import BlockingClient
from steno_cli.connection import connected, pages
from steno_protocol import paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, NotFound

_NAMED_MAX: Final = 5
"""Ids in an error; more of them would hide its text."""


_GENERATED: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,64}")
"""A segment that no person chose: a UUID or a hash."""

_SHORT_CHARS: Final = 4
"""The least characters of a short form: fewer would soon belong to several sessions."""

_HEXADECIMAL: Final = re.compile(rf"[0-9a-f][0-9a-f-]{{{_SHORT_CHARS - 1},}}")
"""The beginning of a generated segment, and a few words such as `feed`."""


def is_session_id(target: str) -> bool:
    """True for a valid session id; any other target is a path."""
    try:
        paths.split_session(target)
    except BadRequest:
        return False
    return True


def session_with_prefix(options: Namespace, error: NotFound) -> str | None:
    """The only session whose id begins with the given text; None if that is not the reason.

    A session takes precedence over its subsessions, whose ids begin with its own id and a slash.
    If no id begins with the text, each segment may be the beginning of one, as in the short ids of
    `steno sessions`. The prefix is resolved only after a failure, so that a full id costs nothing.

    Raises:
        NotFound: several ids begin with the text.
    """
    if not getattr(options, "by_prefix", False) or not options.session:
        return None
    if options.command in {"delete", "rename"} and options.key is not None:
        # A repeat finds no session; it must not delete or rename the next one with the prefix.
        return None
    text = options.session
    with connected(options) as client:
        found = _meant(client, text)
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    others = ", ..." if len(found) > _NAMED_MAX else ""
    raise NotFound(
        f"no session has the id {options.session}, and several ids begin with it:"
        f" {', '.join(found[:_NAMED_MAX])}{others}",
        session=options.session,
    ) from error


def session_with_short_id(client: BlockingClient, text: str) -> str | None:
    """The only session that a text means, if `steno sessions` shows it in that form."""
    found = _meant(client, text) if may_be_short(text) else None
    return found[0] if found and len(found) == 1 and is_short_form(text, found[0]) else None


def _meant(client: BlockingClient, text: str) -> list[str] | None:
    """The sessions that a text means as a prefix or a short id, a few if there are many.

    Returns:
        None if the text is the id of a session, perhaps without its present generation.
    """
    found = _beginning_with(client, text, text)
    if found == [] and "/" in text:
        found = _beginning_with(client, text.partition("/")[0], text)
    return found


def _beginning_with(client: BlockingClient, prefix: str, text: str) -> list[str] | None:
    """The sessions that a text means among those with a prefix, a few if there are many.

    Returns:
        None if the text is the id of a session, perhaps without its present generation.
    """
    found: list[str] = []
    for page in pages(client, List(prefix=prefix)):
        ids = [entry.session for entry in page.sessions]
        if text in (*ids, *page.without_context):
            return None
        meant = ids if prefix == text else [each for each in ids if matches(text, each)]
        found += without_subsessions(meant, found)
        if len(found) > _NAMED_MAX:
            break
    return found


def meant(text: str, ids: Sequence[str]) -> list[str]:
    """The ids among some, in ascending order, that a text means as a prefix or a short id."""
    if text in ids:
        return [text]
    found = without_subsessions(each for each in ids if each.startswith(text))
    if not found and "/" in text:
        found = without_subsessions(each for each in ids if matches(text, each))
    return found


def without_subsessions(ids: Iterable[str], before: Sequence[str] = ()) -> list[str]:
    """The ids without those of subsessions of another one, in their order.

    Args:
        ids: ids of sessions in ascending order.
        before: the ids kept from an earlier part of the list.
    """
    # Some characters sort before a slash, so that other ids can be between.
    kept = [*before]
    for session in ids:
        if not any(session.startswith(f"{each}/") for each in kept):
            kept.append(session)
    return kept[len(before) :]


# --- short forms ---------------------------------------------------------------------------------


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
