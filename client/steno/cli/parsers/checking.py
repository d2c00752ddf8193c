"""The command lines that look for damage: verify, repair."""

from steno.cli.arguments import Subcommands, command, key, place, why


def add_verify(commands: Subcommands) -> None:
    parser = command(
        commands, "verify", "verify:verify", "look for damage in sessions and in any transcript",
        "A session is checked by its daemon, which goes on writing. What is no session id is a"
        " path: a JSONL file, or a folder of them, of whatever program; that needs no daemon."
        " Nothing is changed. Ends with 7 when something is damaged; a note, such as events whose"
        " timestamps fall, is no damage.",
        example="steno verify demo\nsteno verify --all\nsteno verify ./transcripts notes.jsonl",
    )  # fmt: skip
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        type=place,
        help="a session's id, or the path of a file or folder",
    )
    parser.add_argument("--all", action="store_true", help="every session of the daemon")


def add_repair(commands: Subcommands) -> None:
    parser = command(
        commands, "repair", "repair:repair", "say what a repair would do, or do it",
        "Whole records stay, in their order, each on a line of its own; bytes that are no record"
        " are left out. Without --apply nothing is changed. A session is repaired by its daemon and"
        " the damaged file stays as a generation, a damaged state.json beside a new one; a file is"
        " repaired in place and what it was stays beside it.",
        example="steno repair demo\nsteno repair demo --apply\nsteno repair ./notes.jsonl --apply",
    )  # fmt: skip
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=place,
        help="a session's id, or the path of a file or folder",
    )
    parser.add_argument("--apply", action="store_true", help="do it; the default is to say it")
    why(parser)
    key(parser)
    # It is a change of files too, whose failures tell by themselves what is true.
    parser.set_defaults(changes=False)
