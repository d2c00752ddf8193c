"""The subcommands about one session as a whole: stat, open."""

from argparse import Namespace

from steno._sansio.requests import opening
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable, table
from steno.cli.render.wording import number, size
from steno_protocol.replies import SessionStat


def stat(options: Namespace, output: Output) -> int:
    """Say how a session is."""
    with connected(options) as client:
        found = client.stat(options.session)
    if output.as_json:
        output.document(contract.reply(found))
        return Exit.DONE
    for line in table(_rows(found)):
        output.write(printable(line, one_line=True))
    return Exit.DONE


def open_session(options: Namespace, output: Output) -> int:
    """Make a session ready for writing, and make it if there is none."""
    with connected(options) as client:
        # Not `client.open`, which does not hand out what it was found.
        asked = opening(
            options.session,
            client.name,
            options.key,
            create=not options.no_create,
            exclusive=options.exclusive,
            stamp=not options.no_stamp,
        )
        found, _ = client.request(asked, SessionStat)
    if output.as_json:
        output.document(contract.reply(found))
        return Exit.DONE
    output.write(found.head)
    did = "was made" if found.created else "was there already"
    output.say(f"{found.session} {did}, in {found.folder}")
    return Exit.DONE


def _rows(found: SessionStat) -> list[tuple[str, str]]:
    pending = found.token_count_with_pending - found.token_count
    rows = [
        ("session", found.session),
        ("title", found.title),
        ("labels", " ".join(found.labels)),
        ("forked from", found.forked_from or ""),
        ("ends at", f"{found.head}, {size(found.bytes)}"),
        ("tokens", f"{number(found.token_count)}, and about {number(pending)} not yet counted"),
        ("checkpoints", f"the next is {found.n_checkpoints}"),
        ("generations", f"{number(found.generation)} left behind"),
        ("lines", "" if found.stamp else "without _id and _by"),
        ("archived", "yes" if found.archived else ""),
        ("open", "yes" if found.open else ""),
        ("folder", found.folder),
    ]
    return [(name, value) for name, value in rows if value]
