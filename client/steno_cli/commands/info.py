"""`steno info`: the state of one session."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.origins import origin_of, rows_of
from steno_cli.render.output import Output
from steno_cli.render.tables import table
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import number, size
from steno_protocol.replies import SessionStat


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "info", run,
        "Prints its head, token counts, checkpoints, title, labels and folder, and of which program"
        " it is and how that resumes it. The session is neither created nor repaired.",
        example="steno info demo",
    )  # fmt: skip
    session_argument(parser)


def run(options: Namespace, output: Output) -> int:
    """Print the state of a session."""
    with connected(options, output=output) as client:
        found = client.stat(options.session)
        origin = origin_of(client.session(options.session))
    if output.as_json:
        output.document({**contract.document(found), "origin": contract.origin(origin)})
        return Exit.DONE
    for line in table([*_rows(found), *rows_of(origin)]):
        output.write(printable(line, one_line=True))
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
