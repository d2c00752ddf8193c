"""Session ids on the command line: prefixes, and ids apart from paths."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Final

from steno import BlockingClient
from steno_cli.connection import connected, pages
from steno_cli.short_ids import is_short_form, matches, may_be_short
from steno_protocol import paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, NotFound

_NAMED_MAX: Final = 5
"""Ids in an error; more of them would hide its text."""


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
