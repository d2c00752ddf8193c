"""The pending D-Mail of a session, derived from its timeline.

A mail is bound to the line of its checkpoint. It is pending until it is delivered, or until a
rewrite removes that line from the session's lineage: another checkpoint may get the same id, and
the mail does not apply to it.
"""

from collections.abc import Sequence
from typing import Any

from steno_protocol import timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.keys import Applied, fingerprint_of_entry


def sent(
    mail: Mail, head: Position, replaces: str | None = None, claim: str | None = None
) -> TimelineEntry:
    """Return the timeline entry of a sent mail.

    Args:
        mail: the mail.
        head: the session's head at that time.
        replaces: the id of the pending mail that it replaced.
        claim: the name that its sender claims.
    """
    replaced = {} if replaces is None else {"replaces": replaces}
    return TimelineEntry(
        kind=timeline_entries.SENT,
        generation=head.generation,
        at=mail.at,
        by=mail.by,
        claim=claim,
        key=mail.id,
        details={
            "checkpoint_id": mail.checkpoint_id,
            "cursor": mail.cursor,
            "message": mail.message,
            "head": str(head),
            **replaced,
        },
    )


def mail_of(entry: TimelineEntry) -> Mail:
    """Return the mail of an entry of kind `sent`."""
    details: dict[str, Any] = entry.details
    return Mail(
        id=entry.key or "",
        checkpoint_id=whole_number(details.get("checkpoint_id")),
        message=str(details.get("message", "")),
        cursor=str(details.get("cursor", "0:0")),
        by=entry.by,
        at=entry.at,
    )


def applied_of(entry: TimelineEntry) -> Applied:
    """Return the first answer to a `send_dmail`, from its timeline entry."""
    head = str(entry.details.get("head", f"{entry.generation}:0"))
    checkpoint_id = mail_of(entry).checkpoint_id
    asked = fingerprint_of_entry(entry)
    return Applied("send_dmail", Position.parse(head), 0, checkpoint_id, contents=asked)


def pending(entries: Sequence[TimelineEntry], present: int) -> Mail | None:
    """Return the pending mail of a session with the present generation `present`."""
    mail, generation = None, 0
    for entry in entries:
        if entry.kind == timeline_entries.SENT:
            mail, generation = mail_of(entry), entry.generation
        elif mail is not None and not outlives(mail, entry):
            mail = None
    recorded = {entry.generation for entry in entries if entry.kind in timeline_entries.REWRITES}
    # An unrecorded rewrite was another program's, and the lines that it kept are unknown.
    is_ours = all(number in recorded for number in range(generation + 1, present + 1))
    return mail if is_ours else None


def delivered_last(entries: Sequence[TimelineEntry]) -> str | None:
    """Return the id of the mail that was delivered last."""
    for entry in reversed(entries):
        if entry.kind == timeline_entries.DELIVERED:
            return str(entry.details.get("mail", ""))
    return None


def outlives(mail: Mail, entry: TimelineEntry) -> bool:
    """Whether a mail is still pending after an entry."""
    match entry.kind:
        case timeline_entries.CLEARED | timeline_entries.RESTORED | timeline_entries.DELIVERED:
            return False
        case timeline_entries.REVERTED:
            # Ids only rise along a lineage, so a lower id is a line before the cut.
            return mail.checkpoint_id < whole_number(entry.details.get("checkpoint_id"))
        case _:
            return True


def what_became_of(entries: Sequence[TimelineEntry], mail_id: str) -> str:
    """Return the reason why a mail is not pending, as a clause."""
    if not any(entry.kind == timeline_entries.SENT and entry.key == mail_id for entry in entries):
        return "it was never sent to this session"
    for entry in entries:
        if entry.kind == timeline_entries.DELIVERED and entry.details.get("mail") == mail_id:
            return f"it was delivered as generation {entry.generation}"
        if entry.kind == timeline_entries.SENT and entry.details.get("replaces") == mail_id:
            return f"the mail {entry.key} replaced it"
        if entry.details.get("expired_mail") == mail_id:
            return f"it expired when the session was {entry.kind} as generation {entry.generation}"
    return "it expired when its checkpoint was removed"
