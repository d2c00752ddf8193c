"""The command lines that look for damage: verify, repair."""

from steno.cli.arguments import Subcommands, command, key, place, why


def add_verify(commands: Subcommands) -> None:
    parser = command(
        commands, "verify", "verify:verify", "check sessions and transcripts for damage",
        "The daemon checks a session while it keeps writing. Any other TARGET is the path of a"
        " JSONL file or a folder of JSONL files, of any program; it needs no daemon. Nothing is"
        " changed. Exits with 7 if something is damaged; a note, such as decreasing timestamps,"
        " is not damage.",
        example="steno verify demo\nsteno verify --all\nsteno verify ./transcripts notes.jsonl",
    )  # fmt: skip
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        type=place,
        help="a session id, or the path of a file or folder",
    )
    parser.add_argument("--all", action="store_true", help="check every session of the daemon")


def add_repair(commands: Subcommands) -> None:
    parser = command(
        commands, "repair", "repair:repair", "show or carry out the repair of a session or file",
        "Whole records stay in order, each on its own line; other bytes are left out. Without"
        " --apply, nothing is changed. The daemon repairs a session: the damaged file stays as a"
        " past generation, and a damaged state.json stays beside the new one. A file is repaired"
        " in place, and a copy of the original stays beside it.",
        example="steno repair demo\nsteno repair demo --apply\nsteno repair ./notes.jsonl --apply",
    )  # fmt: skip
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=place,
        help="a session id, or the path of a file or folder",
    )
    parser.add_argument(
        "--apply", action="store_true", help="carry the repair out (default: only show it)"
    )
    why(parser)
    key(parser)
    # It also changes files; its errors contain their own outcome.
    parser.set_defaults(changes=False)
