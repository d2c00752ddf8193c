"""Sessions with sessions below them that a blow moves, and what must be left of them.

No agent uses them: a blow makes them, so their records are known, and cuts a move of them short.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import steno
from crash.world import FAMILY_PREFIX, Family, Host
from support.pacing import wait_for_s

RECORDS: Final = 3
REQUEST_S: Final = 10.0
RETRY_S: Final = 0.05
SETTLE_S: Final = 60.0
"""Time in which a move that was cut short is finished by repeating it."""

CUT_SHORT_S: Final = 0.06
"""A move takes some 40 ms, so a daemon that dies in this time dies before, in or after it."""

Move = Callable[[steno.BlockingClient, Family], object]


def texts(session: str) -> list[str]:
    """Returns the texts of the records of a session of a family, by its first id."""
    return [f"record {number} of {session};" for number in range(RECORDS)]


def create(host: Host, number: int) -> Family:
    """Make a family whose records a daemon has acknowledged."""
    family = Family(f"{FAMILY_PREFIX}{number}", f"{FAMILY_PREFIX}{number}")
    with steno.connect_sync(endpoint=host.endpoint, timeout=REQUEST_S) as client:
        for session in family.sessions:
            messages = [{"role": "user", "content": text} for text in texts(session)]
            client.open(session, follow=False).append_message(messages)
    return family


def rename(client: steno.BlockingClient, family: Family) -> None:
    """Give a family another id."""
    family.place = f"{family.name}-renamed"
    client.rename(family.name, family.place, key=f"{family.name}-rename")


def delete(client: steno.BlockingClient, family: Family) -> None:
    """Move a family to the trash."""
    client.delete(family.name, key=f"{family.name}-delete")


def delete_for_good(client: steno.BlockingClient, family: Family) -> None:
    """Move a family to the trash, where it stays."""
    family.is_deleted = True
    delete(client, family)


def undelete(client: steno.BlockingClient, family: Family) -> None:
    """Restore a family from the trash."""
    client.undelete(family.name, key=f"{family.name}-undelete")


def cut_short(
    host: Host, family: Family, move: Move, outage_s: float, other: Host | None = None
) -> None:
    """Kill a daemon while it moves a family, start it, and repeat the move until it is done.

    Args:
        host: the daemon.
        family: what it moves.
        move: how.
        outage_s: seconds until it starts again.
        other: the daemon that has the first repeat, before that start.
    """
    mover = threading.Thread(target=_try, args=(host, family, move))
    mover.start()
    wait_for_s(random.Random(f"{family.name} {outage_s}").uniform(0.0, CUT_SHORT_S))
    host.kill()
    wait_for_s(outage_s)
    if other is not None:
        repeat(other, family, move)
    host.start()
    mover.join()
    repeat(host, family, move)


def repeat(host: Host, family: Family, move: Move) -> None:
    """Send a move under its key until it is done."""
    deadline = time.monotonic() + SETTLE_S
    while (error := _try(host, family, move)) is not None:
        if time.monotonic() > deadline:
            family.fault = f"{move.__name__}: {type(error).__name__}: {error.message}"
            return
        wait_for_s(RETRY_S)


def _try(host: Host, family: Family, move: Move) -> steno.StenoError | None:
    try:
        with steno.connect_sync(endpoint=host.endpoint, timeout=REQUEST_S) as client:
            move(client, family)
    except steno.StenoError as error:
        return error
    return None


def judge(
    families: Sequence[Family],
    listed: Sequence[str],
    sessions: Path,
    *,
    has_old_names: bool = False,
) -> Iterator[str]:
    """Compare families with what a daemon lists and has in its folder of sessions.

    Args:
        families: the families.
        listed: what the daemon lists.
        sessions: its folder.
        has_old_names: the stream came from an old copy, with the names of then.

    Yields:
        What is wrong.
    """
    for family in families:
        if family.fault:
            yield f"{family.name} could not be moved: {family.fault}"
        for session in family.sessions:
            below = session.removeprefix(family.place)
            path = sessions / session / "context.jsonl"
            text = path.read_text() if path.exists() else ""
            wanted = texts(family.name + below) + ([] if below else family.more)
            missing = [each for each in wanted if text.count(each) != 1]
            if missing:
                yield f"{session}: {missing} are not there once"
    expected = {session for family in families for session in family.sessions}
    found = {session for session in listed if session.startswith(FAMILY_PREFIX)}
    if not expected <= found or (found != expected and not has_old_names):
        yield f"listed beyond {sorted(found - expected)}, not listed {sorted(expected - found)}"
