"""`steno restart`: the daemon replaced by a new one."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command
from steno_cli.connection import endpoint_of, root_in_use
from steno_cli.daemon_control import start_daemon, stop_daemon
from steno_cli.exits import Exit
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(commands, "restart", run, example="steno restart")
    parser.set_defaults(changes=True, makes_root=True)


def run(options: Namespace, output: Output) -> int:
    """Stop the daemon, if it runs, and start one on the same root."""
    endpoint = endpoint_of(options)
    if endpoint is not None:
        # The new daemon needs the root of the one that answers at the address.
        options.root = str(root_in_use(options))
        options.socket, options.endpoint = endpoint.removeprefix("ipc://"), None
    stop_daemon(options)
    start_daemon(options, output)
    return Exit.DONE
