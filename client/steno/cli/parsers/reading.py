"""The command lines of what only looks at a session's records: sessions, stat, show, read, tail."""

import argparse

from steno.cli.arguments import (
    Subcommands,
    command,
    count,
    optional_argument,
    position,
    session_argument,
)
from steno.cli.time_arguments import since


def add_sessions(commands: Subcommands) -> None:
    parser = command(
        commands, "sessions", "sessions:sessions", "list the sessions",
        "Id, size, generations, last change, title and labels; archived ones are left out. A file"
        " <uuid>.jsonl of kimi-cli is listed as (old format): `steno import` takes it in.",
        example="steno sessions kimi: --label review",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "of their ids")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--archived", action="store_const", const="only", default="no", help="archived ones only"
    )
    which.add_argument(
        "--all", dest="archived", action="store_const", const="all", help="archived ones, too"
    )
    parser.add_argument(
        "--label", dest="labels", metavar="LABEL", action="append", default=[],
        help="only those that bear it; more than once: all of them",
    )  # fmt: skip
    parser.add_argument(
        "--title", metavar="TEXT", default="",
        help="only those whose title contains it, whatever its case",
    )  # fmt: skip


def add_stat(commands: Subcommands) -> None:
    parser = command(
        commands, "stat", "stat:stat", "say how a session is",
        "Where it ends, its token counts and checkpoints, its title and labels, its folder. It is"
        " neither created nor repaired.",
        example="steno stat demo",
    )  # fmt: skip
    session_argument(parser)


def add_show(commands: Subcommands) -> None:
    parser = command(
        commands, "show", "show:show", "show a conversation to a person",
        "Messages, tool calls and their results, checkpoints and token counts in order. Thoughts"
        " and long results are folded, images are named by type and size.",
        example="steno show demo --since 2h\nsteno show demo --at 0:12",
    )  # fmt: skip
    session_argument(parser)
    past = parser.add_mutually_exclusive_group()
    past.add_argument(
        "--at", metavar="POSITION", type=position, help="show what there was before a position"
    )
    past.add_argument(
        "--generation", metavar="N", type=count, help="show a generation that was left behind"
    )
    past.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )
    _since(parser)
    parser.add_argument("--full", action="store_true", help="fold nothing")
    parser.add_argument(
        "--no-pager", action="store_true",
        help="let it scroll by; what is higher than the terminal goes through PAGER, or less",
    )  # fmt: skip


def add_read(commands: Subcommands) -> None:
    parser = command(
        commands, "read", "read:read", "print records as they lie in the file",
        "Lines that are no records are passed over and counted on stderr.",
        example="steno read demo --after 0:12 --json",
    )  # fmt: skip
    session_argument(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--after", metavar="POSITION", type=position, help="begin here")
    start.add_argument("--generation", metavar="N", type=count, help="read all of a generation")
    parser.add_argument("--until", metavar="POSITION", type=position, help="end here")
    _since(parser)
    parser.add_argument(
        "--strict", action="store_true", help="fail at the first line that is no record"
    )


def add_tail(commands: Subcommands) -> None:
    parser = command(
        commands, "tail", "read:tail", "print the last records",
        "With -f it goes on with each record once it is durable, without gap or duplicate, across"
        " rewrites and restarts of the daemon.",
        example="steno tail demo -n 3 -f",
    )  # fmt: skip
    session_argument(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", "--lines", metavar="N", type=count, default=10, help="(default: 10)")
    start.add_argument("--after", metavar="POSITION", type=position, help="begin here")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written from now on"
    )
    parser.add_argument(
        "--wire", action="store_const", dest="handler", const="wire:tail",
        default="read:tail", help="the events of the wire file, not the records",
    )  # fmt: skip


def _since(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", type=since,
        help="from the first record that was written then or later: 90s, 15min, 2h, 3d ago, or"
        " 15:04, 2026-11-21, 2026-11-21T15:04",
    )  # fmt: skip
