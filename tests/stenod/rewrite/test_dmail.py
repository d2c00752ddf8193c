"""D-Mail beside a writer: events of followers, one delivery, and expiry."""

import errno

import pytest

from steno_protocol import paths
from steno_protocol.errors import StorageFailed
from steno_protocol.events import DmailEvent
from support.lines import append, checkpoint, clear, compact, deliver, mail, revert, user
from support.simulated_disk import Effect
from support.writing import Desk, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]


async def fill(desk: Desk) -> None:
    """Two messages, two checkpoints."""
    for number in range(2):
        await desk.do(append(f"k{number}"), user(str(number)))
        await desk.do(checkpoint(f"c{number}"))


def mails(reader: Reader) -> list[tuple[str, str]]:
    """State and id of each D-Mail event that a subscriber was sent."""
    return [(event.state, event.id) for event, _ in reader.events if isinstance(event, DmailEvent)]


# --- events ------------------------------------------------------------------------------------


async def test_followers_receive_the_sending_and_the_delivery_of_a_mail() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        _, reader = desk.subscribe()
        await desk.wait_for(lambda: "Live" in reader.kinds)
        await desk.do(mail("m", 1))
        assert reader.events[-1][0] == DmailEvent(state="sent", id="m", checkpoint_id=1)

        await desk.do(deliver("d", "m"))
        await desk.wait_for(lambda: len(mails(reader)) == 2)

        assert mails(reader) == [("sent", "m"), ("delivered", "m")]
        assert reader.kinds[-3:] == ["Reset", "Records", "DmailEvent"]


@pytest.mark.parametrize(
    ("rewrite", "states"),
    [(clear("r"), ["sent", "expired"]), (revert("r", 1), ["sent", "expired"]),
     (compact("r", "0:1", "0:4", 2), ["sent"])],
    ids=["clear", "revert", "compact"],
)  # fmt: skip
async def test_followers_receive_the_expiry_of_a_mail(rewrite: object, states: list[str]) -> None:
    async with Desk().open() as desk:
        await fill(desk)
        _, reader = desk.subscribe()
        await desk.do(mail("m", 1))
        records = [user("so far")] if states == ["sent"] else []
        await desk.do(rewrite, *records)  # type: ignore[arg-type]
        await desk.settle()

        assert [state for state, _ in mails(reader)] == states
        assert (desk.stored.mail() is not None) == (states == ["sent"])


async def test_a_late_follower_receives_the_pending_mail_after_live() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        await desk.do(mail("m", 1))
        _, late = desk.subscribe()
        await desk.wait_for(lambda: bool(mails(late)))
        assert late.kinds[-2:] == ["Live", "DmailEvent"]
        await desk.do(deliver("d", "m"))

        _, later = desk.subscribe("now")
        await desk.settle()

        assert mails(later) == []


async def test_a_full_follower_receives_the_latest_mail_event_once_it_reads() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        subscriber, reader = desk.subscribe("now")
        reader.is_full = True
        await desk.do(mail("m", 1))
        await desk.do(deliver("d", "m"))
        await desk.do(mail("n", 0))
        reader.is_full = False
        desk.feed.grant(subscriber, 1)
        await desk.wait_for(lambda: bool(mails(reader)))

        assert mails(reader) == [("sent", "n")]


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
async def test_a_delivery_in_doubt_is_looked_up_and_published(effect: Effect) -> None:
    async with Desk().open() as desk:
        await fill(desk)
        await desk.do(mail("m", 1))
        _, reader = desk.subscribe("now")
        desk.disk.fail_next("rename", errno.EIO, name=paths.REWRITE, effect=effect)

        done = await desk.do(deliver("d", "m"))
        await desk.settle()

        if isinstance(done.answer, StorageFailed):
            assert mails(reader) == [("sent", "m")]
            done = await desk.do(deliver("d", "m", repeat=True))
            await desk.settle()
        assert done.ack.checkpoint_id == 2
        assert mails(reader) == [("sent", "m"), ("delivered", "m")]
