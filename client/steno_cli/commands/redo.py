"""`steno redo`: what the last undo dropped brought back."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, change_options, command, session_argument, why_option
from steno_cli.changes import print_ack
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.going_back import done_with, undone
from steno_cli.render.output import Output
from steno_protocol import timeline_entries
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "redo", run,
        "Works while nothing was written since the undo; afterwards `steno timeline` shows the past"
        " states, and `steno restore` brings one back.",
        example="steno redo demo",
    )  # fmt: skip
    session_argument(parser)
    why_option(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Restore the generation before the last undo."""
    with connected(options) as client:
        session = client.session(options.session)
        head: Position = options.expect or Position.parse(session.stat().head)
        timeline = session.timeline()
        done = done_with(options.key, timeline, timeline_entries.RESTORED)
        # A repeat names the generation again that its first attempt named.
        generation = done["from"] if done else undone(timeline, head)
        if generation is None:
            raise NotFound(
                f"{session.id} has no undo to bring back: none was the last change, or something"
                f" was written since; `steno timeline {session.id}` shows its past states",
                session=session.id,
                head=str(head),
            )
        ack = session.restore_generation(
            generation,
            why=options.why,
            key=options.key,
            expect=head,
            durability=options.durability,
        )
    print_ack(options, output, ack)
    return Exit.DONE
