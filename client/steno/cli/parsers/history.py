"""The command lines of a session's past: timeline, restore."""

from steno.cli.arguments import (
    Subcommands,
    command,
    count,
    mutation,
    session_argument,
    why,
)


def add_timeline(commands: Subcommands) -> None:
    parser = command(
        commands, "timeline", "timeline:timeline", "draw what ever happened to a session",
        "A tree of its generations: what each rewrite kept and left behind, by whom, when and why.",
        example="steno timeline demo",
    )  # fmt: skip
    session_argument(parser)


def add_restore(commands: Subcommands) -> None:
    parser = command(
        commands, "restore", "write:restore", "bring back a generation that was left behind",
        "What is there now is left behind in its turn, so a restore can be undone.",
        example="steno restore demo 0",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("generation", metavar="GENERATION", type=count, help="its number")
    why(parser)
    mutation(parser)
