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
        "At most one D-Mail is pending per session. Its delivery reverts the session to the"
        " checkpoint and appends the message there, in one atomic step; the agent that owns the"
        " session runs it.",
        example="steno dmail send demo 3 'the tests are in tests/unit'\nsteno dmail deliver demo",
    )  # fmt: skip
    under = actions(parser)
    _add_send(under)
    _add_show(under)
    _add_deliver(under)


def _add_send(commands: Subcommands) -> None:
    parser = command(
        commands, "send", "dmail:send", "send a D-Mail", "Prints its id once it is durable.",
        example="steno dmail send demo 3 - < insight.txt",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=checkpoint_id, help="the id of the checkpoint"
    )
    parser.add_argument("text", metavar="TEXT", help="the message, or - for stdin")
    parser.add_argument(
        "--replaces", metavar="MAIL_ID", help="the pending D-Mail that this one replaces"
    )
    mutation(parser, key="it is also the id of the D-Mail", durable=True)


def _add_show(commands: Subcommands) -> None:
    parser = command(
        commands, "show", "dmail:show", "show the pending D-Mail",
        "Prints nothing on stdout if no D-Mail is pending.",
        example="steno dmail show demo --json",
    )  # fmt: skip
    session_argument(parser)


def _add_deliver(commands: Subcommands) -> None:
    parser = command(
        commands, "deliver", "dmail:deliver", "deliver the pending D-Mail",
        "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
        " them back.",
        example="steno dmail deliver demo",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(parser, "mail_id", str, "the id of the D-Mail (default: the pending one)")
    parser.add_argument(
        "--add-user-message",
        action="store_true",
        help="also append a user message that names the checkpoint",
    )
    mutation(parser, durable=True)
