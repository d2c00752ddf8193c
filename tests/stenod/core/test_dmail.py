"""The pending D-Mail according to a timeline: sent, delivered, expired, or voided."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_rotation_by_another_program_ends_a_mail() -> None:
    assert waiting(sent(), present=1) is None
    assert waiting(sent(), rewrite("prompted", 2), present=2) is None


def test_a_rotation_that_was_there_before_a_mail_does_not_end_it() -> None:
    assert waiting(sent(generation=3), present=3) == "m"
    assert waiting(sent(generation=3), rewrite("compacted", 4), present=4) == "m"


def test_the_next_mail_waits_after_the_last_one_was_delivered() -> None:
    entries = [sent("m"), rewrite("delivered", 1, mail="m"), sent("n", 0, generation=1)]

    assert waiting(*entries, present=1) == "n"
    assert dmail.delivered_last(entries) == "m"
    assert dmail.delivered_last([sent()]) is None


@pytest.mark.parametrize(
    ("entries", "fate"),
    [
        ([], "it was never sent"),
        ([sent("other")], "it was never sent"),
        ([sent(), rewrite("delivered", 3, mail="m")], "it was delivered as generation 3"),
        (
            [sent(), rewrite("reverted", 2, expired_mail="m")],
            "it expired when the session was reverted as generation 2",
        ),
        ([sent()], "it expired when its checkpoint was removed"),
    ],
)
def test_a_delivery_of_another_mail_is_refused_with_the_reason(
    entries: list[TimelineEntry], fate: str
) -> None:
    assert dmail.what_became_of(entries, "m").startswith(fate)


def test_a_damaged_entry_is_a_mail_of_little_worth_and_no_crash() -> None:
    entry = TimelineEntry(
        kind=timeline_entries.SENT, generation=1, details={"checkpoint_id": "x", "cursor": "0:1"}
    )

    assert dmail.mail_of(entry).checkpoint_id == 0
    assert dmail.applied_of(entry).first == Position(1, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.integers(0, 4)),
        st.tuples(st.just("reverted"), st.integers(0, 4)),
        st.tuples(st.sampled_from(["compacted", "prompted", "cleared", "restored", "delivered"])),
        st.tuples(st.just("voided")),
    ),
    max_size=12,
)


@given(STEPS)
def test_fold_equals_a_session_that_was_always_open(
    steps: list[tuple[Any, ...]],
) -> None:
    """A session in memory: its generations as lists of checkpoint ids, and the mail's own line."""
    entries: list[TimelineEntry] = []
    generation, undo = 0, None
    held: tuple[str, int] | None = None
    for number, step in enumerate(steps):
        if step[0] == "voided":
            if undo is not None:
                entries.append(TimelineEntry(kind=timeline_entries.VOIDED, generation=generation))
                generation, held = undo
                undo = None
            continue
        if step[0] == "sent":
            if held is None:
                held, undo = (f"m{number}", step[1]), None
                entries.append(sent(f"m{number}", step[1], generation))
            continue
        undo = (generation, held)
        generation += 1
        is_over = step[0] in ("cleared", "restored", "delivered")
        is_cut = step[0] == "reverted" and held is not None and held[1] >= step[1]
        details = {"checkpoint_id": step[1]} if step[0] == "reverted" else {}
        entries.append(rewrite(step[0], generation, **details))
        held = None if is_over or is_cut else held

    assert waiting(*entries, present=generation) == (held[0] if held is not None else None)
