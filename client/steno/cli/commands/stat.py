"""The subcommands about one session as a whole: stat, open."""

from argparse import Namespace

from steno._sansio.request_builders import opening
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable, table
from steno.cli.render.wording import number, size
from steno_protocol.replies import SessionStat


def stat(options: Namespace, output: Output) -> int:
    """Say how a session is."""
    with connected(options) as client:
        told = client.stat(options.session)
    if output.as_json:
        output.document(contract.reply(told))
        return Exit.DONE
    for line in table(_rows(told)):
        output.write(printable(line, one_line=True))
    return Exit.DONE


def open_session(options: Namespace, output: Output) -> int:
    """Make a session ready for writing, and make it if there is none."""
    with connected(options) as client:
        # Not `client.open`, which does not hand out what it was told.
        asked = opening(
            options.session, client.name, options.key, client.welcome,
            create=not options.no_create, exclusive=options.exclusive, stamp=not options.no_stamp,
        )  # fmt: skip
        told, _ = client.request(asked, SessionStat)
    if output.as_json:
        output.document(contract.reply(told))
        return Exit.DONE
    output.write(told.head)
    did = "was made" if told.created else "was there already"
    output.say(f"{told.session} {did}, in {told.folder}")
    return Exit.DONE


def _rows(told: SessionStat) -> list[tuple[str, str]]:
    pending = told.token_count_with_pending - told.token_count
    rows = [
        ("session", told.session),
        ("title", told.title),
        ("labels", " ".join(told.labels)),
        ("forked from", told.forked_from or ""),
        ("ends at", f"{told.head}, {size(told.bytes)}"),
        ("tokens", f"{number(told.token_count)}, and about {number(pending)} not yet counted"),
        ("checkpoints", f"the next is {told.n_checkpoints}"),
        ("generations", f"{number(told.generation)} left behind"),
        ("lines", "" if told.stamp else "without _id and _by"),
        ("archived", "yes" if told.archived else ""),
        ("open", "yes" if told.open else ""),
        ("folder", told.folder),
    ]
    return [(name, value) for name, value in rows if value]
