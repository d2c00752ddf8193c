"""The subcommand `timeline`: a session's past, drawn as a tree."""

from argparse import Namespace

from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract, tree
from steno.cli.render.output import Output
from steno_protocol.positions import Position


def timeline(options: Namespace, output: Output) -> int:
    """Draw what ever happened to a session."""
    with connected(options) as client:
        entries = client.timeline(options.session)
        # Asked for last: a rewrite between the two is then the present, though without its story.
        head = client.stat(options.session).head
    if output.as_json:
        output.document(contract.timeline(options.session, head, entries))
        return Exit.DONE
    for line in tree.draw(entries, Position.parse(head), output.width, output.style):
        output.write(line)
    if output.talks_to_terminal and Position.parse(head).generation:
        output.say(f"`steno restore {options.session} N` brings generation N back")
    return Exit.DONE
