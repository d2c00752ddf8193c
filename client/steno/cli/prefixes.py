"""A session that is named by the beginning of its id: which one is meant, if it is only one."""

from argparse import Namespace
from typing import Final

from steno.cli.connection import connected
from steno_protocol.commands import List
from steno_protocol.errors import NotFound
from steno_protocol.replies import Sessions

_NAMED_MAX: Final = 5
"""Sessions that an error names; more of them would hide what it says."""


def meant(options: Namespace, error: NotFound) -> str | None:
    """The one session whose id begins with what was given, when there is none of that very id.

    It is asked for after the fact: who gives a whole id pays nothing.

    Raises:
        NotFound: several begin so; or, as it came, what was not found is not the session.
    """
    if not getattr(options, "by_prefix", False) or not options.session:
        return None
    with connected(options) as client:
        asked = List(prefix=options.session, limit=_NAMED_MAX + 1)
        page = client.request(asked, Sessions)[0]
    found = [entry.session for entry in page.sessions]
    if options.session in (*found, *page.without_context) or not found:
        # Also one that lost its present generation was meant, and no other.
        return None
    if len(found) == 1:
        return found[0]
    more = ", ..." if len(found) > _NAMED_MAX else ""
    raise NotFound(
        f"no session has the id {options.session}, and several begin so:"
        f" {', '.join(found[:_NAMED_MAX])}{more}",
        session=options.session,
    ) from error
