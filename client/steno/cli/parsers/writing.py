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
        commands, "open", "stat:open_session", "make a session ready, and make it if it is not",
        "What a crash left behind is put in order now instead of with the first append. Prints the"
        " head.",
        example="steno open team/planner-1 --exclusive",
    )  # fmt: skip
    session_argument(parser, by_prefix=False)
    no_create(parser)
    parser.add_argument(
        "--exclusive", action="store_true", help="refuse when the session is there already"
    )
    parser.add_argument(
        "--no-stamp", action="store_true",
        help="for a new session: its lines bear no _id and _by, so that they are the caller's byte"
        " for byte, and a repeat is recognised only while the daemon lives",
    )  # fmt: skip
    key(parser)


def add_append(commands: Subcommands) -> None:
    parser = command(
        commands, "append", "write:append", "append messages",
        "Appends TEXT as one message, or the records on stdin, one JSON object a line. Prints the"
        " head of the session once they are durable. Makes the session if there is none, and says"
        " so; in a mount only with --create.",
        example="steno append demo 'What is in this folder?'\n"
        "steno append demo --batch < turn.jsonl",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the content of one message")
    parser.add_argument("--role", choices=ROLES, help="of that message (default: user)")
    parser.add_argument(
        "--batch", action="store_true", help="append all of stdin as one atomic batch"
    )
    create(parser)
    mutation(parser, key="of stdin, line N gets KEY-N unless it is a --batch")


def add_checkpoint(commands: Subcommands) -> None:
    parser = command(
        commands, "checkpoint", "write:checkpoint", "mark a place to come back to; prints its id",
        example="steno checkpoint demo",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--add-user-message", action="store_true", help="let the model see the checkpoint, too"
    )
    create(parser)
    mutation(parser)


def add_revert(commands: Subcommands) -> None:
    parser = command(
        commands, "revert", "write:revert", "drop a checkpoint and all that follows it",
        "Prints the new head. What is dropped stays in a file beside the session's own and can be"
        " brought back with `steno restore`.",
        example="steno revert demo 3 --why 'wrong way'",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=checkpoint_id, help="its id")
    why(parser)
    mutation(parser)


def add_clear(commands: Subcommands) -> None:
    parser = command(
        commands, "clear", "write:clear", "drop everything, the system prompt too",
        "Prints the new head. What is dropped stays in a file beside the session's own and can be"
        " brought back with `steno restore`.",
        example="steno clear demo",
    )  # fmt: skip
    session_argument(parser)
    why(parser)
    mutation(parser)


def add_usage(commands: Subcommands) -> None:
    parser = command(
        commands, "usage", "write:usage", "show the token counts, or append one",
        "With TOKENS it appends a token count; without, it prints those that were told.",
        example="steno usage demo 1472",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "tokens", count, "how many tokens the context has")
    mutation(parser, given="tokens")


def add_prompt(commands: Subcommands) -> None:
    parser = command(
        commands, "prompt", "write:prompt", "show the system prompt, or put one first",
        "With TEXT (or - for stdin) it writes the system prompt, on a session with content by a"
        " rewrite; without, it prints the present one.",
        example="steno prompt demo - < prompt.md",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "text", str, "the prompt, or - for stdin")
    create(parser)
    mutation(parser, given="text")
