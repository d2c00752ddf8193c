"""The commands that show the state, the history and the turns of one session."""

from argparse import Namespace

from steno_cli.arguments import command, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.origins import origin_of, rows_of
from steno_cli.render.output import Output
from steno_cli.render.tables import shortened, table
from steno_present import contract, tree
from steno_present.messages import texts_of
from steno_present.safe_text import printable
from steno_present.wording import instant, number, size
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat


@command(
    "info",
    "Prints its head, token counts, checkpoints, title, labels and folder, and of which program"
    " it is and how that resumes it. The session is neither created nor repaired.",
    session_argument,
    example="steno info demo",
)  # fmt: skip
def info(options: Namespace, output: Output) -> int:
    """Print the state of a session."""
    with connected(options, output=output) as client:
        found = client.stat(options.session)
        origin = origin_of(client.session(options.session))
    rows = table([*_rows(found), *rows_of(origin)])
    return output.answer(
        {**contract.document(found), "origin": contract.origin(origin)},
        *(printable(line, one_line=True) for line in rows),
    )


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


@command(
    "timeline",
    "Shows each generation, and for each rewrite its author, time, reason and kept lines.",
    session_argument,
    example="steno timeline demo",
)
def timeline(options: Namespace, output: Output) -> int:
    """Draw the history of a session."""
    with connected(options, output=output) as client:
        entries = client.timeline(options.session)
        # Requested last: a rewrite between the two requests is then shown, without its entry.
        head = client.stat(options.session).head
    has_past = output.talks_to_terminal and Position.parse(head).generation
    return output.answer(
        contract.timeline(options.session, head, entries),
        *tree.draw(entries, Position.parse(head), output.width, output.style),
        message=f"`steno restore {options.session} N` restores generation N" if has_past else "",
    )


@command(
    "turns",
    "Prints number, position in the wire file, time and the user's input. `steno fork --turn`"
    " takes the number.",
    session_argument,
    example="steno turns demo",
)  # fmt: skip
def turns(options: Namespace, output: Output) -> int:
    """List the turns, with the numbers that `fork --turn` takes."""
    with connected(options, output=output) as client:
        found = client.session(options.session).turns()
    for turn_number, turn in enumerate(found):
        if output.as_json:
            output.document(contract.turn(turn_number, turn))
            continue
        said = " ".join(texts_of({"content": turn.user_input}))
        line = f"{turn_number:>3}  {turn.cursor}  {instant(turn.timestamp)}  {said}"
        line = printable(line, one_line=True)
        output.write(shortened(line, output.width))
    if not found:
        output.say(f"{options.session} has no turn: the event TurnBegin begins one")
    return Exit.DONE
