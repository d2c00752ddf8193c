"""`steno start`: the daemon started."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command
from steno_cli.daemon_control import start_daemon
from steno_cli.exits import Exit
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "start", run, "A daemon that already runs is left as it is.",
        example="steno start --root ~/work",
    )  # fmt: skip
    parser.set_defaults(changes=True, makes_root=True)


def run(options: Namespace, output: Output) -> int:
    """Start the daemon unless it runs, and print its address."""
    start_daemon(options, output)
    return Exit.DONE
