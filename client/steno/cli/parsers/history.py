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
        commands, "timeline", "timeline:timeline", "show the history of a session as a tree",
        "Shows each generation, and for each rewrite its author, time, reason and kept lines.",
        example="steno timeline demo",
    )  # fmt: skip
    session_argument(parser)


def add_restore(commands: Subcommands) -> None:
    parser = command(
        commands, "restore", "write:restore", "restore a past generation",
        "The present state becomes a past generation, so a restore can be undone.",
        example="steno restore demo 0",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "generation", metavar="GENERATION", type=count, help="the number of the generation"
    )
    why(parser)
    mutation(parser)
