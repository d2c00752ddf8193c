"""The subcommands that make a session of another one's past: fork, undo."""

from argparse import Namespace

from steno._sync.client import BlockingSession
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output


def fork(options: Namespace, output: Output) -> int:
    """Make a new session of what a session was at an instant."""
    with connected(options) as client:
        made = client.session(options.session).fork(
            options.new,
            at=options.at,
            checkpoint=options.checkpoint,
            turn=options.turn,
            title=options.title,
            key=options.key,
        )
        return _print_result(output, made)


def undo(options: Namespace, output: Output) -> int:
    """Fork a session before its last turns."""
    with connected(options) as client:
        made = client.session(options.session).undo(
            options.turns, options.to, title=options.title, key=options.key
        )
        return _print_result(output, made)


def _print_result(output: Output, made: BlockingSession) -> int:
    stat = made.stat()
    if output.as_json:
        output.document(contract.reply(stat))
        return Exit.DONE
    output.write(stat.session)
    output.say(f"{stat.session} is {stat.forked_from} as it was, and ends at {stat.head}")
    return Exit.DONE
