"""`steno turns`: the turns of a session."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.tables import shortened
from steno_present import contract
from steno_present.messages import texts_of
from steno_present.safe_text import printable
from steno_present.wording import instant


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "turns", run,
        "Prints number, position in the wire file, time and the user's input. `steno fork --turn`"
        " takes the number.",
        example="steno turns demo",
    )  # fmt: skip
    session_argument(parser)


def run(options: Namespace, output: Output) -> int:
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
