"""D-Mail beside a writer: events of followers, one delivery, and expiry."""

import errno

import pytest

from steno_protocol import paths
from steno_protocol.errors import BadRequest, Exists, NotFound, StorageFailed
from steno_protocol.events import DmailEvent, Live
from support.lines import append, checkpoint, clear, compact, deliver, foreign, mail, revert, user
from support.simulated_disk import Effect
from support.writing import PATH, Desk, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

FILE = f"{PATH}/{paths.CONTEXT}"


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


async def test_a_mail_event_without_room_is_sent_with_the_next_records() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        _, reader = desk.subscribe()
        await desk.wait_for(lambda: "Live" in reader.kinds)
        reader.is_full = True
        await desk.do(mail("m", 1))
        reader.is_full = False
        await desk.do(append("k"), user("later"))

        await desk.wait_for(lambda: mails(reader) == [("sent", "m")])
        assert reader.data == desk.file()


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


async def test_a_reconnected_follower_receives_only_the_pending_mail() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        subscriber, _ = desk.subscribe("now")
        await desk.do(mail("m", 1))
        desk.feed.remove(subscriber)
        await desk.do(deliver("d", "m"))
        await desk.do(mail("n", 0))

        _, again = desk.subscribe("0:4")
        await desk.wait_for(lambda: bool(mails(again)))

        assert mails(again) == [("sent", "n")]


async def test_a_follower_behind_receives_the_mail_once_it_caught_up() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        subscriber, reader = desk.subscribe(credit=1)
        await desk.do(mail("m", 1))
        await desk.settle()
        assert mails(reader) == []

        desk.feed.grant(subscriber, 1 << 20)
        await desk.wait_for(lambda: bool(mails(reader)))

        assert reader.kinds[-2:] == ["Live", "DmailEvent"]


async def test_a_live_follower_without_credit_receives_mail_events() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        subscriber, reader = desk.subscribe("now")
        subscriber.credit = 0

        await desk.do(mail("m", 1))

        assert reader.events[0][0] == Live(head="0:4")
        assert mails(reader) == [("sent", "m")]


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


# --- delivery ---------------------------------------------------------------------------------


async def test_of_two_deliveries_at_once_one_gets_the_mail() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        await desk.do(mail("m", 1))
        first, second = desk.send(deliver("d1", "m")), desk.send(deliver("d2", "m"))
        await desk.wait_for(lambda: second.answer is not None)

        assert first.ack.checkpoint_id == 2
        assert isinstance(second.error, NotFound)
        assert "it was delivered as generation 1" in second.error.message
        assert desk.file().count(b"turn back") == 1


async def test_a_repeated_delivery_gets_the_first_answer_and_no_other_mail() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        await desk.do(mail("m", 1))
        first = await desk.do(deliver("d", "m"))
        await desk.do(mail("n", 0))

        again = await desk.do(deliver("d", "m", repeat=True))

        assert (again.ack.duplicate, again.ack.head) == (True, first.ack.head)
        assert isinstance((await desk.do(deliver("d2", "m"))).error, NotFound)
        assert isinstance((await desk.do(deliver("d3", "stranger"))).error, NotFound)
        assert isinstance((await desk.do(deliver("n", "n"))).error, BadRequest)
        assert (waiting := desk.stored.mail()) is not None
        assert waiting.id == "n"


async def test_only_one_mail_waits_at_a_time() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        sent = [
            desk.send(mail("m", 1)),
            desk.send(mail("n", 0)),
            desk.send(mail("m", 1, repeat=True)),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert not sent[0].ack.duplicate
        assert isinstance(sent[1].error, Exists)
        assert sent[2].ack.duplicate
        await desk.do(deliver("d", "m"))
        assert (await desk.do(mail("n", 0))).ack.checkpoint_id == 0


async def test_a_mail_to_a_checkpoint_of_the_same_burst_is_bound_to_it() -> None:
    async with Desk().open() as desk:
        sent = [
            desk.send(append("k"), user("0")),
            desk.send(checkpoint("c")),
            desk.send(mail("m", 0)),
            desk.send(append("l"), user("1")),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert (sent[2].ack.head, sent[3].ack.first) == ("0:2", "0:2")
        assert (waiting := desk.stored.mail()) is not None
        assert waiting.cursor == "0:1"


async def test_a_mail_waits_for_the_next_daemon() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        await desk.do(mail("m", 1))
    async with Desk(desk.disk).open() as again:
        _, reader = again.subscribe("now")
        await again.settle()
        assert mails(reader) == [("sent", "m")]
        assert (await again.do(mail("m", 1, repeat=True))).ack.duplicate

        assert (await again.do(deliver("d", "m"))).ack.checkpoint_id == 2
    async with Desk(desk.disk).open() as third:
        assert (await third.do(deliver("d", "m", repeat=True))).ack.duplicate
        assert isinstance((await third.do(deliver("d2", "m"))).error, NotFound)


# --- failures ----------------------------------------------------------------------------------


async def test_a_mail_that_could_not_be_stored_is_an_error_without_an_event() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        _, reader = desk.subscribe("now")
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.TIMELINE)

        failed = await desk.do(mail("m", 1))

        assert isinstance(failed.error, StorageFailed)
        await desk.settle()
        assert mails(reader) == []
        assert not (await desk.do(mail("m", 1, repeat=True))).ack.duplicate
        assert mails(reader) == [("sent", "m")]


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


async def test_a_mail_ends_when_another_program_rotates_the_session() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        _, reader = desk.subscribe("now")
        await desk.do(mail("m", 1))
        desk.disk.foreign.rename(FILE, "context_1.jsonl")
        desk.disk.foreign.replace(FILE, foreign("theirs"))

        refused = await desk.do(deliver("d", "m"))
        await desk.settle()

        assert isinstance(refused.error, NotFound)
        assert mails(reader) == [("sent", "m"), ("expired", "m")]
        _, late = desk.subscribe("now")
        await desk.settle()
        assert mails(late) == []
