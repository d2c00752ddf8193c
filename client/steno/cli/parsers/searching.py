"""The command line that searches sessions: grep."""

from steno.cli.arguments import Subcommands, command, optional_argument
from steno.cli.parsers.writing import ROLES


def add_grep(commands: Subcommands) -> None:
    parser = command(
        commands, "grep", "grep:grep", "find text in the messages of sessions",
        "Searches texts, thoughts, tool calls and their results. Prints each matching line with"
        " its session, cursor and time. Archived sessions are included. Exits with 4 if nothing"
        " matches.",
        example="steno grep -i 'no space left' kimi: --role tool\nsteno grep -l TODO",
    )  # fmt: skip
    parser.add_argument("pattern", metavar="PATTERN", help="a Python regular expression")
    optional_argument(
        parser, "prefix", str, "only sessions whose id starts with PREFIX (default: all)"
    )
    parser.add_argument("-i", "--ignore-case", action="store_true", help="ignore case")
    parser.add_argument("-F", "--fixed-strings", action="store_true", help="PATTERN is plain text")
    parser.add_argument(
        "-l",
        "--files-with-matches",
        action="store_true",
        help="print only the ids of matching sessions",
    )
    parser.add_argument("--role", choices=ROLES, help="only in messages of this role")
