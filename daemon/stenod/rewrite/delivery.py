"""D-Mail: sent as a timeline entry, delivered by a rewrite."""

from steno_protocol import records, timeline_entries
from steno_protocol.commands import DeliverDmail, SendDmail
from steno_protocol.context import Checkpoint, MessageLine
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.checkpoint_search import target_of
from stenod.core.checkpoint_survival import Target
from stenod.core.machine import Machine
from stenod.rewrite.locate import check_batch_end, locate
from stenod.rewrite.plan import Plan
from stenod.store.log import Log


def send(log: Log, machine: Machine, command: SendDmail, now: float) -> TimelineEntry:
    """Record a mail in the timeline until it is delivered; durable on return.

    Returns:
        The timeline entry of the mail.

    Raises:
        NotFound: the checkpoint does not exist.
        Conflict: another checkpoint has its id.
        BadRequest: the checkpoint is inside a batch, so that no rewrite may end before it.
        OSError: the disk failed; the mail was not sent.
    """
    found = locate(log, machine, target_of(command))
    check_batch_end(log, found.generation, found.size, machine.session)
    mail = Mail(
        id=command.key,
        checkpoint_id=command.checkpoint_id,
        message=command.message,
        cursor=str(found.cursor),
        by=command.by,
        at=now,
    )
    waiting = machine.mail
    entry = dmail.sent(mail, machine.head, None if waiting is None else waiting.id, command.claim)
    log.append_timeline(timeline.encode(entry))
    return entry


def plan_delivery(log: Log, machine: Machine, command: DeliverDmail) -> Plan:
    """Plan the rewrite that delivers a mail.

    Raises:
        NotFound: the mail is not pending; the message has the reason.
    """
    mail = machine.mail
    if mail is None or mail.id != command.mail_id:
        raise _not_pending(log, machine, command.mail_id)
    found = locate(log, machine, Target(mail.checkpoint_id))
    check_batch_end(log, found.generation, found.size, machine.session)
    counters = found.replay.counters
    number = mail.checkpoint_id if machine.reuses_ids else machine.next_checkpoint_id
    data = [records.checkpoint_record(number)]
    counters.apply(Checkpoint(number))
    messages = [records.dmail_message(mail.message)]
    if command.add_user_message:
        messages.insert(0, records.checkpoint_notice(number))
    for message in messages:
        checked = records.check_message(message)
        counters.apply(MessageLine(checked.text_chars))
        data.append(checked.data)
    kept = found.replay.lines
    return Plan(
        kind=timeline_entries.DELIVERED,
        pieces=[found.before, machine.written(command, data)],
        kept=kept if found.generation == log.generation else 0,
        head=Position(log.generation + 1, kept + len(data)),
        counters=counters,
        details={
            "mail": mail.id,
            "checkpoint_id": mail.checkpoint_id,
            "from": found.generation,
            "checkpoint_line": kept,
            **({} if number == mail.checkpoint_id else {"new_checkpoint_id": number}),
        },
    )


def _not_pending(log: Log, machine: Machine, mail_id: str) -> NotFound:
    reason = dmail.what_became_of(timeline.decode(log.timeline()), mail_id)
    pending = machine.mail
    now = f"the mail {pending.id} is pending" if pending is not None else "no mail is pending"
    return NotFound(f"D-Mail {mail_id} is not pending: {reason}; {now}", session=machine.session)
