"""The subcommands of `dmail`: send a message back to a checkpoint, look at it, deliver it."""

from argparse import Namespace
from typing import Any

from steno._sync.client import BlockingSession
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.wording import moment
from steno.cli.stdin import text_or_stdin
from steno.values import Ack, Mail
from steno_protocol import timeline_entries
from steno_protocol.errors import NotFound


def send(options: Namespace, output: Output) -> int:
    """Send a D-Mail; its id is the key of the command."""
    text = text_or_stdin(options, "text")
    if not text:
        raise WrongUsage(
            "a D-Mail has to say something: give it as TEXT, or on stdin for -",
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
    _tell_repeat(output, ack)
    return Exit.DONE


def show(options: Namespace, output: Output) -> int:
    """Show the D-Mail that waits, if any."""
    with connected(options) as client:
        mail = client.session(options.session).pending_dmail()
    if output.as_json:
        output.document(contract.mail(options.session, mail))
    elif mail is None:
        output.say(f"no D-Mail waits in {options.session}")
    else:
        _print(output, mail)
    return Exit.DONE


def deliver(options: Namespace, output: Output) -> int:
    """Deliver one D-Mail: the one that is named, else the one that waits."""
    with connected(options) as client:
        session = client.session(options.session)
        mail_id, mail = options.mail_id or _delivered_by(session, options.key), None
        if mail_id is None:
            mail = session.pending_dmail()
            if mail is None:
                raise NotFound(
                    "no D-Mail waits: `steno dmail send` sends one", session=options.session
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
    if ack.rotated is not None:
        output.say(f"what was there before is kept in {ack.rotated}")
    _tell_repeat(output, ack)
    return Exit.DONE


def _delivered_by(session: BlockingSession, key: str | None) -> str | None:
    """The mail that a command with this key delivered: a repeat means it, not one that waits."""
    if key is None:
        return None
    delivered = (
        entry.details.get("mail")
        for entry in session.timeline()
        if entry.kind == timeline_entries.DELIVERED and entry.key == key
    )
    mail_id = next(delivered, None)
    return None if mail_id is None else str(mail_id)


def _tell_repeat(output: Output, ack: Ack) -> None:
    if ack.duplicate:
        output.say(f"the key {ack.key} had been applied before; this is its answer of that time")


def _how(options: Namespace) -> dict[str, Any]:
    return {"key": options.key, "expect": options.expect}


def _print(output: Output, mail: Mail) -> None:
    sent = f"sent {moment(mail.at)}" if mail.at else "sent"
    by = f" by {mail.by}" if mail.by else ""
    output.write(output.style(f"{mail.id}  to checkpoint {mail.checkpoint_id}, {sent}{by}", "dim"))
    output.write(printable(mail.message) if output.is_terminal else mail.message)
