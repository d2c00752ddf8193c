"""The command line that searches sessions: grep."""

from steno.cli.arguments import Subcommands, command, optional_argument
from steno.cli.parsers.writing import ROLES


def add_grep(commands: Subcommands) -> None:
    parser = command(
        commands, "grep", "grep:grep", "find text in the messages of sessions",
        "Each line of text that matches, with its session, cursor and time: texts, thoughts, tool"
        " calls and their results. Archived sessions are searched, too. Ends with 4 when nothing"
        " matches.",
        example="steno grep -i 'no space left' kimi: --role tool\nsteno grep -l TODO",
    )  # fmt: skip
    parser.add_argument("pattern", metavar="PATTERN", help="a regular expression, as Python's")
    optional_argument(parser, "prefix", str, "of the ids of the sessions (default: all of them)")
    parser.add_argument("-i", "--ignore-case", action="store_true", help="whatever the case")
    parser.add_argument("-F", "--fixed-strings", action="store_true", help="PATTERN is plain text")
    parser.add_argument(
        "-l", "--files-with-matches", action="store_true", help="print the ids of sessions only"
    )
    parser.add_argument("--role", choices=ROLES, help="only in messages of this role")
