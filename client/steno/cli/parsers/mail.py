"""The command line of D-Mail, a message back to a checkpoint: dmail send, show, deliver."""

from steno.cli.arguments import (
    Subcommands,
    actions,
    checkpoint_id,
    command,
    mutation,
    optional_argument,
    session_argument,
)


def add_dmail(commands: Subcommands) -> None:
    parser = command(
        commands, "dmail", "", "send a message back to a checkpoint",
        "One waits in a session at a time. Its delivery reverts the session to the checkpoint and"
        " appends the message there, in one step; whoever looks after the session does that.",
        example="steno dmail send demo 3 'the tests are in tests/unit'\nsteno dmail deliver demo",
    )  # fmt: skip
    under = actions(parser)
    _add_send(under)
    _add_show(under)
    _add_deliver(under)


def _add_send(commands: Subcommands) -> None:
    parser = command(
        commands, "send", "dmail:send", "send one", "Prints its id once it is durable.",
        example="steno dmail send demo 3 - < insight.txt",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=checkpoint_id, help="the id of one"
    )
    parser.add_argument("text", metavar="TEXT", help="the message, or - for stdin")
    parser.add_argument(
        "--replaces", metavar="MAIL_ID", help="the one that waits, to be given up for this one"
    )
    mutation(parser, key="it is the id of the mail, too", durable=True)


def _add_show(commands: Subcommands) -> None:
    parser = command(
        commands, "show", "dmail:show", "show the one that waits",
        "It only looks; nothing on stdout when none waits.",
        example="steno dmail show demo --json",
    )  # fmt: skip
    session_argument(parser)


def _add_deliver(commands: Subcommands) -> None:
    parser = command(
        commands, "deliver", "dmail:deliver", "deliver the one that waits",
        "Prints the new head. What is dropped stays in a file beside the session's own and can be"
        " brought back with `steno restore`.",
        example="steno dmail deliver demo",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "mail_id", str, "only this one (default: the one that waits)")
    parser.add_argument(
        "--add-user-message", action="store_true", help="let the model see the new checkpoint, too"
    )
    mutation(parser, durable=True)
