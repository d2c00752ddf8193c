"""The command lines of what changes a session's records."""

from typing import Final

from steno.cli.arguments import (
    Subcommands,
    checkpoint_id,
    command,
    count,
    create,
    key,
    mutation,
    no_create,
    optional_argument,
    session_argument,
    why,
)

ROLES: Final = ("user", "assistant", "system", "tool")
"""What `append` can write."""


def add_open(commands: Subcommands) -> None:
    parser = command(
        commands, "open", "stat:open_session", "open a session, creating it if necessary",
        "Crash recovery runs now instead of at the first append. Prints the head.",
        example="steno open team/planner-1 --exclusive",
    )  # fmt: skip
    session_argument(parser, by_prefix=False)
    no_create(parser)
    parser.add_argument(
        "--exclusive", action="store_true", help="fail if the session already exists"
    )
    parser.add_argument(
        "--no-stamp", action="store_true",
        help="for a new session: store records byte for byte, without _id and _by; retries are then"
        " recognised only while the daemon runs",
    )  # fmt: skip
    key(parser)


def add_append(commands: Subcommands) -> None:
    parser = command(
        commands, "append", "write:append", "append messages",
        "Appends TEXT as one message, or the records on stdin, one JSON object per line. Prints the"
        " new head once they are durable. Creates a missing session and says so; in a mount, only"
        " with --create.",
        example="steno append demo 'What is in this folder?'\n"
        "steno append demo --batch < turn.jsonl",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the content of one message")
    parser.add_argument("--role", choices=ROLES, help="role of the message (default: user)")
    parser.add_argument(
        "--batch", action="store_true", help="append all of stdin as one atomic batch"
    )
    create(parser)
    mutation(parser, key="line N of stdin gets KEY-N unless --batch is given")


def add_checkpoint(commands: Subcommands) -> None:
    parser = command(
        commands, "checkpoint", "write:checkpoint", "create a checkpoint and print its id",
        example="steno checkpoint demo",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--add-user-message",
        action="store_true",
        help="also append a user message that names the checkpoint",
    )
    create(parser)
    mutation(parser)


def add_revert(commands: Subcommands) -> None:
    parser = command(
        commands, "revert", "write:revert", "remove a checkpoint and everything after it",
        "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
        " them back.",
        example="steno revert demo 3 --why 'wrong way'",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=checkpoint_id, help="the id of the checkpoint"
    )
    why(parser)
    mutation(parser)


def add_clear(commands: Subcommands) -> None:
    parser = command(
        commands, "clear", "write:clear", "remove all records, including the system prompt",
        "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
        " them back.",
        example="steno clear demo",
    )  # fmt: skip
    session_argument(parser)
    why(parser)
    mutation(parser)


def add_usage(commands: Subcommands) -> None:
    parser = command(
        commands, "usage", "write:usage", "show the token counts, or append one",
        "With TOKENS, appends a token count; without, prints the current counts.",
        example="steno usage demo 1472",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "tokens", count, "tokens in the context")
    mutation(parser, given="tokens")


def add_prompt(commands: Subcommands) -> None:
    parser = command(
        commands, "prompt", "write:prompt", "show or set the system prompt",
        "With TEXT (or - for stdin), sets the system prompt; a session with records is rewritten."
        " Without, prints the current one.",
        example="steno prompt demo - < prompt.md",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the prompt, or - for stdin")
    create(parser)
    mutation(parser, given="text")
