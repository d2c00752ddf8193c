"""`steno dmail`: a message back to a checkpoint, sent, shown and delivered."""

from argparse import Namespace
from typing import Any

from steno import BlockingSession
from steno_cli.arguments import (
    action,
    add_user_message_option,
    argument,
    checkpoint_argument,
    command_with_actions,
    expect_option,
    key_option,
    optional_argument,
    session_argument,
)
from steno_cli.changes import say_kept
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.stdin import text_or_stdin
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import moment
from steno_protocol import timeline_entries
from steno_protocol.errors import NotFound

command_with_actions(
    "dmail",
    "At most one D-Mail is pending per session. Its delivery reverts the session to the"
    " checkpoint and appends the message there, in one atomic step; the agent that owns the"
    " session runs it.",
    example="steno dmail send demo 3 'the tests are in tests/unit'\nsteno dmail deliver demo",
)


@action(
    "dmail send", "send a D-Mail", "Prints its id once it is durable.",
    session_argument, checkpoint_argument,
    argument("text", metavar="TEXT", help="the message, or - for stdin"),
    argument("--replaces", metavar="MAIL_ID", help="the pending D-Mail that this one replaces"),
    key_option("it is also the id of the D-Mail"), expect_option,
    example="steno dmail send demo 3 - < insight.txt",
)  # fmt: skip
def send(options: Namespace, output: Output) -> int:
    """Send a D-Mail; its id is the key of the command."""
    text = text_or_stdin(options, "text")
    if not text:
        raise WrongUsage(
            "a D-Mail must not be empty: give its text as TEXT, or - for stdin",
            session=options.session,
        )
    with connected(options) as client:
        session = client.session(options.session)
        ack = session.send_dmail(
            options.checkpoint, text, replaces=options.replaces, **_how(options)
        )
    if output.as_json:
        output.document({**contract.ack(options.session, ack), "mail_id": ack.key})
        return Exit.DONE
    output.write(ack.key)
    say_kept(options, output, ack)
    return Exit.DONE


@action(
    "dmail show", "show the pending D-Mail", "Prints nothing on stdout if no D-Mail is pending.",
    session_argument,
    example="steno dmail show demo --json",
)  # fmt: skip
def show(options: Namespace, output: Output) -> int:
    """Print the pending D-Mail, if any."""
    with connected(options) as client:
        mail = client.session(options.session).pending_dmail()
    document = contract.mail(options.session, mail)
    if mail is None:
        return output.answer(document, message=f"no D-Mail is pending in {options.session}")
    sent = f"sent {moment(mail.at)}" if mail.at else "sent"
    by = f" by {mail.by}" if mail.by else ""
    return output.answer(
        document,
        output.style(f"{mail.id}  to checkpoint {mail.checkpoint_id}, {sent}{by}", "dim"),
        printable(mail.message) if output.is_terminal else mail.message,
    )


@action(
    "dmail deliver", "deliver the pending D-Mail",
    "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
    " them back.",
    session_argument,
    optional_argument("mail_id", str, "the id of the D-Mail (default: the pending one)"),
    add_user_message_option, key_option(), expect_option,
    example="steno dmail deliver demo",
)  # fmt: skip
def deliver(options: Namespace, output: Output) -> int:
    """Deliver the given D-Mail, else the pending one."""
    with connected(options) as client:
        session = client.session(options.session)
        mail_id, mail = options.mail_id or _delivered_by(session, options.key), None
        if mail_id is None:
            mail = session.pending_dmail()
            if mail is None:
                raise NotFound(
                    "no D-Mail is pending: `steno dmail send` sends one", session=options.session
                )
            mail_id = mail.id
        ack = session.deliver_dmail(
            mail_id, add_user_message=options.add_user_message, **_how(options)
        )
    if output.as_json:
        shown = contract.mail(options.session, mail)["mail"]
        output.document({**contract.ack(options.session, ack), "mail_id": mail_id, "mail": shown})
        return Exit.DONE
    if mail is not None:
        output.say(f"delivered {mail.id}: {mail.message}")
    output.write(str(ack.head))
    say_kept(options, output, ack)
    return Exit.DONE


def _delivered_by(session: BlockingSession, key: str | None) -> str | None:
    """The D-Mail that a command with this key delivered; a repeat means it, not the pending one."""
    if key is None:
        return None
    delivered = (
        entry.details.get("mail")
        for entry in session.timeline()
        if entry.kind == timeline_entries.DELIVERED and entry.key == key
    )
    mail_id = next(delivered, None)
    return None if mail_id is None else str(mail_id)


def _how(options: Namespace) -> dict[str, Any]:
    return {"key": options.key, "expect": options.expect}
