"""A session that is named by the beginning of its id: which one is meant, if it is only one."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Final

from steno.cli.connection import connected
from steno_protocol.commands import List
from steno_protocol.errors import NotFound
from steno_protocol.replies import Sessions

_NAMED_MAX: Final = 5
"""Sessions that an error names; more of them would hide what it says."""


def meant(options: Namespace, error: NotFound) -> str | None:
    """The only session whose id starts with the given text, if no session has that very id.

    A session is preferred to its subsessions, whose ids begin with its own and a slash.

    It is resolved only after a failure, so a full id costs nothing.

    Raises:
        NotFound: several begin so; or, as it came, what was not found is not the session.
    """
    if not getattr(options, "by_prefix", False) or not options.session:
        return None
    if options.command == "delete" and options.key is not None:
        # A repeat finds what the first one left, and must not take the next that begins so.
        return None
    found: list[str] = []
    with connected(options) as client:
        more, after = True, ""
        while more and len(found) <= _NAMED_MAX:
            asked = List(prefix=options.session, after=after)
            page = client.request(asked, Sessions)[0]
            ids = [entry.session for entry in page.sessions]
            if options.session in (*ids, *page.without_context):
                # Also one that lost its present generation was meant, and no other.
                return None
            found += without_subsessions(ids, found)
            more, after = page.more, ids[-1] if ids else ""
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    others = ", ..." if len(found) > _NAMED_MAX else ""
    raise NotFound(
        f"no session has the id {options.session}, and several begin so:"
        f" {', '.join(found[:_NAMED_MAX])}{others}",
        session=options.session,
    ) from error


def without_subsessions(ids: Iterable[str], before: Sequence[str] = ()) -> list[str]:
    """The ids, in their order, without those of subsessions of another one.

    Args:
        ids: ids of sessions in ascending order.
        before: the ids that were kept of those that sort before these.
    """
    # A slash sorts behind some characters, so that other sessions can stand between.
    kept = [*before]
    for session in ids:
        if not any(session.startswith(f"{each}/") for each in kept):
            kept.append(session)
    return kept[len(before) :]
