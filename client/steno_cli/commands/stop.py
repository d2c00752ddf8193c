"""`steno stop`: the daemon stopped."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command
from steno_cli.connection import endpoint_of
from steno_cli.daemon_control import stop_daemon
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_protocol import paths


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    command(
        commands, "stop", run,
        "Returns once all queued commands are on the disk and the root is unlocked.",
        example="steno stop",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
    """Stop the daemon and wait until the root is free."""
    stopped = stop_daemon(options)
    root, pid = stopped.root, stopped.pid
    if output.as_json:
        output.document({"stopped": pid is not None, "pid": pid, "root": str(root)})
    elif pid is None:
        output.say(f"no daemon runs on {root}: nothing to stop")
    elif paths.is_remote(endpoint_of(options) or ""):
        output.say(f"stenod (pid {pid}) of {root} there ended")
    else:
        output.say(f"stenod (pid {pid}) ended; {root} is free")
    return Exit.DONE
