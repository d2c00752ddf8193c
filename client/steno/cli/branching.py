"""The subcommands that make a session of another one's past: fork, undo."""

from argparse import Namespace
from itertools import count as counting

from steno.blocking import BlockingClient
from steno.cli import contract
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.output import Output
from steno_protocol.errors import Exists
from steno_protocol.replies import SessionStat


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
    return _tell(output, made)


def undo(options: Namespace, output: Output) -> int:
    """Fork a session before its last turns."""
    with connected(options) as client:
        if options.to is None:
            return _tell(output, _undone_beside(client, options))
        return _tell(output, _undone(client, options, options.to))


def _undone_beside(client: BlockingClient, options: Namespace) -> SessionStat:
    """Undo into the first id of our own choice that is free."""
    taken = {entry.session for entry in client.sessions(f"{options.session}-undo-")}
    for number in counting(1):
        new = f"{options.session}-undo-{number}"
        if new in taken:
            continue
        try:
            return _undone(client, options, new)
        except Exists:
            # Somebody else was faster with that id.
            continue
    raise AssertionError("numbers do not end")


def _undone(client: BlockingClient, options: Namespace, new: str) -> SessionStat:
    return client.session(options.session).undo(
        options.turns, new, title=options.title, key=options.key
    )


def _tell(output: Output, made: SessionStat) -> int:
    if output.as_json:
        output.document(contract.reply(made))
        return Exit.DONE
    output.write(made.session)
    output.say(f"{made.session} is {made.forked_from} as it was, and ends at {made.head}")
    return Exit.DONE
