"""The pending D-Mail according to a timeline: sent, delivered, expired, or voided."""

from typing import Any

import pytest

from steno_protocol import timeline_entries
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.keys import Applied, fingerprint_of_arguments


def mail(mail_id: str = "m", checkpoint_id: int = 2) -> Mail:
    return Mail(
        id=mail_id, checkpoint_id=checkpoint_id, message="turn back", cursor="0:4", by="a", at=5.0
    )


def sent(mail_id: str = "m", checkpoint_id: int = 2, generation: int = 0) -> TimelineEntry:
    return dmail.sent(mail(mail_id, checkpoint_id), Position(generation, 9))


def rewrite(kind: str, generation: int, **details: Any) -> TimelineEntry:
    return TimelineEntry(kind=kind, generation=generation, key=f"k{generation}", details=details)


def waiting(*entries: TimelineEntry, present: int) -> str | None:
    """The id of the pending mail, as a reader of the file finds it."""
    data = b"".join(map(timeline.encode, entries))
    found = dmail.pending(timeline.decode(data), present)
    return found.id if found is not None else None


def test_a_mail_comes_back_from_the_timeline_as_it_was_sent() -> None:
    (entry,) = timeline.decode(timeline.encode(sent()))

    assert dmail.mail_of(entry) == mail()
    applied = dmail.applied_of(entry)
    asked = fingerprint_of_arguments(2, mail().message)
    assert applied == Applied("send_dmail", Position(0, 9), 0, 2, contents=asked)
    assert dmail.pending([entry], 0) == mail()


KEEPING = ("prompted", "compacted", "mended")


@pytest.mark.parametrize("kind", KEEPING)
def test_a_rewrite_that_drops_nothing_leaves_a_mail(kind: str) -> None:
    assert waiting(sent(), rewrite(kind, 1, checkpoint_id=7), present=1) == "m"


def test_a_rotation_that_was_there_before_a_mail_does_not_end_it() -> None:
    assert waiting(sent(generation=3), present=3) == "m"
    assert waiting(sent(generation=3), rewrite("compacted", 4), present=4) == "m"


def test_the_next_mail_waits_after_the_last_one_was_delivered() -> None:
    entries = [sent("m"), rewrite("delivered", 1, mail="m"), sent("n", 0, generation=1)]

    assert waiting(*entries, present=1) == "n"
    assert dmail.delivered_last(entries) == "m"
    assert dmail.delivered_last([sent()]) is None


def test_a_damaged_entry_is_a_mail_of_little_worth_and_no_crash() -> None:
    entry = TimelineEntry(
        kind=timeline_entries.SENT, generation=1, details={"checkpoint_id": "x", "cursor": "0:1"}
    )

    assert dmail.mail_of(entry).checkpoint_id == 0
    assert dmail.applied_of(entry).first == Position(1, 0)
