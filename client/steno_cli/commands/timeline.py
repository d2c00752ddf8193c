"""`steno timeline`: the history of a session as a tree."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract, tree
from steno_protocol.positions import Position


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "timeline", run,
        "Shows each generation, and for each rewrite its author, time, reason and kept lines.",
        example="steno timeline demo",
    )  # fmt: skip
    session_argument(parser)


def run(options: Namespace, output: Output) -> int:
    """Draw the history of a session."""
    with connected(options, output=output) as client:
        entries = client.timeline(options.session)
        # Requested last: a rewrite between the two requests is then shown, without its entry.
        head = client.stat(options.session).head
    if output.as_json:
        output.document(contract.timeline(options.session, head, entries))
        return Exit.DONE
    for line in tree.draw(entries, Position.parse(head), output.width, output.style):
        output.write(line)
    if output.talks_to_terminal and Position.parse(head).generation:
        output.say(f"`steno restore {options.session} N` restores generation N")
    return Exit.DONE
