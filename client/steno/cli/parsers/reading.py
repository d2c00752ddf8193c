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
        "Columns: id, size, generations, last change, title, labels. Archived sessions are hidden."
        " A file <uuid>.jsonl of kimi-cli is marked (old format); import it with `steno import`.",
        example="steno sessions kimi: --label review",
    )  # fmt: skip
    optional_argument(parser, "prefix", str, "only sessions whose id starts with PREFIX")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--archived",
        action="store_const",
        const="only",
        default="no",
        help="list archived sessions only",
    )
    which.add_argument(
        "--all",
        dest="archived",
        action="store_const",
        const="all",
        help="list archived sessions too",
    )
    parser.add_argument(
        "--label", dest="labels", metavar="LABEL", action="append", default=[],
        help="only sessions with this label; repeat it to require several labels",
    )  # fmt: skip
    parser.add_argument(
        "--title", metavar="TEXT", default="",
        help="only sessions whose title contains TEXT, ignoring case",
    )  # fmt: skip


def add_stat(commands: Subcommands) -> None:
    parser = command(
        commands, "stat", "stat:stat", "show the state of a session",
        "Prints its head, token counts, checkpoints, title, labels and folder. The session is"
        " neither created nor repaired.",
        example="steno stat demo",
    )  # fmt: skip
    session_argument(parser)


def add_show(commands: Subcommands) -> None:
    parser = command(
        commands, "show", "show:show", "show a conversation in readable form",
        "Messages, tool calls and their results, checkpoints and token counts in order. Thoughts"
        " and long results are folded; images appear as type and size.",
        example="steno show demo --since 2h\nsteno show demo --at 0:12",
    )  # fmt: skip
    session_argument(parser)
    past = parser.add_mutually_exclusive_group()
    past.add_argument(
        "--at", metavar="POSITION", type=position, help="show the session as it was before POSITION"
    )
    past.add_argument("--generation", metavar="N", type=count, help="show a past generation")
    past.add_argument(
        "-f", "--follow", action="store_true", help="print new records as they become durable"
    )
    _since(parser)
    parser.add_argument("--full", action="store_true", help="fold nothing")
    parser.add_argument(
        "--no-pager", action="store_true",
        help="do not page output that is longer than the terminal (PAGER, or less)",
    )  # fmt: skip


def add_read(commands: Subcommands) -> None:
    parser = command(
        commands, "read", "read:read", "print records exactly as stored",
        "Lines that are not records are skipped; their number is printed on stderr.",
        example="steno read demo --after 0:12 --json",
    )  # fmt: skip
    session_argument(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--after", metavar="POSITION", type=position, help="start after POSITION")
    start.add_argument("--generation", metavar="N", type=count, help="read one past generation")
    parser.add_argument("--until", metavar="POSITION", type=position, help="stop at POSITION")
    _since(parser)
    parser.add_argument(
        "--strict", action="store_true", help="fail at the first line that is not a record"
    )


def add_tail(commands: Subcommands) -> None:
    parser = command(
        commands, "tail", "read:tail", "print the last records",
        "With -f, prints each new record once it is durable: no gap and no duplicate, across"
        " rewrites and restarts of the daemon.",
        example="steno tail demo -n 3 -f",
    )  # fmt: skip
    session_argument(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", "--lines", metavar="N", type=count, default=10, help="(default: 10)")
    start.add_argument("--after", metavar="POSITION", type=position, help="start after POSITION")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new records as they become durable"
    )
    parser.add_argument(
        "--wire", action="store_const", dest="handler", const="wire:tail",
        default="read:tail", help="print events of the wire file instead of records",
    )  # fmt: skip


def _since(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", metavar="TIME", type=since,
        help="only records written at TIME or later: an age (90s, 15min, 2h, 3d) or a time (15:04,"
        " 2026-11-21, 2026-11-21T15:04)",
    )  # fmt: skip
