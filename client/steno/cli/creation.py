"""A session that a change makes because it is missing: where that is done, and what is said."""

from argparse import Namespace
from difflib import get_close_matches
from typing import Final

from steno._sync.client import BlockingClient
from steno.cli.prefixes import without_subsessions
from steno.cli.render.output import Output
from steno_protocol.commands import List
from steno_protocol.errors import NotFound
from steno_protocol.replies import Sessions

_CLOSE_MAX: Final = 3
"""Sessions of which one may have been meant; more of them would hide what is said."""


def check(client: BlockingClient, options: Namespace, missing: NotFound) -> None:
    """Refuse to make a session in a mount unless --create says so.

    What lies there is another program's, and a beginning of an id names one of its sessions.

    Raises:
        NotFound: it is in a mount; it names the sessions of which one may have been meant.
    """
    mount, colon, _ = options.session.partition(":")
    if not colon or options.create:
        return
    close = _close(client, options.session)
    raise NotFound(
        f"there is no session {options.session}, and `steno {options.command}` makes none in the"
        f" mount {mount} unless --create says so{_meant(close)}",
        session=options.session,
    ) from missing


def create(client: BlockingClient, options: Namespace, output: Output) -> None:
    """Make the session and say so, with those of which one may have been meant."""
    session = options.session
    close = [] if options.create else _close(client, session)
    client.open(session, follow=False)
    if options.create:
        return
    undo = f" Then `steno delete {session}` takes it away." if close else ""
    output.say(f"the session {session} was made: there was none{_meant(close)}{undo}")


def _meant(close: list[str]) -> str:
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _close(client: BlockingClient, session: str) -> list[str]:
    """Sessions that begin like this one or are spelt nearly so, the nearest first."""
    mount, colon, name = session.rpartition(":")
    beginning = f"{mount}{colon}{name[:1]}"
    ids = [entry.session for entry in client.request(List(prefix=beginning), Sessions)[0].sessions]
    begins = without_subsessions(each for each in ids if each.startswith(session))
    spelt = get_close_matches(session, ids, _CLOSE_MAX)
    return list(dict.fromkeys([*begins, *spelt]))[:_CLOSE_MAX]
