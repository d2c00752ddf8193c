"""D-Mail through both clients, against a real daemon."""

from pathlib import Path

import anyio
import pytest

import steno
from steno import (
    BadRequest,
    Client,
    Conflict,
    DmailEvent,
    Exists,
    Live,
    Mail,
    NotFound,
    Position,
    Reset,
    Session,
    connect,
)
from support.messages import message

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("no_blocking_calls"),
    pytest.mark.served,
]


async def stepped(client: Client) -> Session:
    """A session of three checkpoints, each with a message behind it."""
    session = await client.open("demo")
    for number in range(3):
        await session.checkpoint()
        await session.append_message(message(f"step {number}"))
    return session


def text_of(entry: dict[str, object]) -> str:
    [part] = entry["content"]  # type: ignore[misc]
    return str(part["text"])  # type: ignore[index]


async def test_a_mail_waits_and_is_delivered_as_one_rewrite_by_another_process(
    root: Path,
) -> None:
    async with connect(root, name="child") as client, connect(root, name="parent") as other:
        session = await stepped(client)
        parent = await other.open("demo")
        sent = await session.send_dmail(1, "skip the large file")
        assert sent.id == sent.key
        mail = await parent.pending_dmail()
        assert mail is not None
        assert mail == Mail(sent.id, 1, "skip the large file", Position(0, 2), "child", mail.at)
        assert await session.pending_dmail() == mail
        ack = await parent.deliver_dmail(mail.id, add_user_message=True)
        assert ack.checkpoint_id == 3
        assert ack.rotated == root / "sessions" / "demo" / "context_1.jsonl"
        first, notice, arrived = parent.history
        assert (first, notice) == (message("step 0"), message("<system>CHECKPOINT 3</system>"))
        assert text_of(arrived).endswith("skip the large file</system>")
        assert [number for number, _ in parent.checkpoints] == [0, 3]
        assert await session.pending_dmail() is None


async def test_only_the_mail_that_was_named_is_delivered(client: Client) -> None:
    session = await stepped(client)
    first = await session.send_dmail(2, "first")
    with pytest.raises(Exists, match=first.id):
        await session.send_dmail(0, "second")
    ack = await session.deliver_dmail(first.id, key="delivery")
    second = await session.send_dmail(0, "second")
    with pytest.raises(NotFound, match=first.id):
        await session.deliver_dmail(first.id)
    again = await session.deliver_dmail(first.id, key="delivery")
    assert (again.duplicate, again.head) == (True, ack.head)
    waiting = await session.pending_dmail()
    assert waiting is not None
    assert waiting.id == second.id


@pytest.mark.served(False)
async def test_a_mail_is_given_up_for_another_only_by_name(root: Path) -> None:
    async with connect(root) as client:
        session = await client.open("demo")
        await session.append_message({"role": "user", "content": "one"})
        await session.checkpoint()
        first = await session.send_dmail(0, "left")
        with pytest.raises(steno.Exists, match="replaces"):
            await session.send_dmail(0, "right", replaces="another")
        second = await session.send_dmail(0, "right", replaces=first.id)
        mail = await session.pending_dmail()
        assert mail is not None
        assert (mail.id, mail.message) == (second.id, "right")
        with pytest.raises(steno.NotFound, match=f"the mail {second.id} replaced it"):
            await session.deliver_dmail(first.id)
        assert (await session.send_dmail(0, "left", key=first.id)).duplicate
        await client.drain()
    async with connect(root) as client:
        session = await client.open("demo")
        mail = await session.pending_dmail()
        assert mail is not None
        assert mail.id == second.id
        await session.deliver_dmail(second.id)


async def test_a_repeated_send_is_one_mail_also_when_it_was_delivered_since(client: Client) -> None:
    session = await stepped(client)
    sent = await session.send_dmail(1, "once", key="mail-1")
    assert (await session.send_dmail(1, "once", key="mail-1")).id == sent.id == "mail-1"
    await session.deliver_dmail("mail-1")
    again = await session.send_dmail(1, "once", key="mail-1")
    assert again.duplicate
    assert await session.pending_dmail() is None


async def test_a_mail_needs_a_checkpoint_a_text_and_the_expected_head(client: Client) -> None:
    session = await stepped(client)
    for number in (3, -1):
        with pytest.raises(NotFound):
            await session.send_dmail(number, "x")
    with pytest.raises(BadRequest):
        await session.send_dmail(0, "")
    with pytest.raises(Conflict):
        await session.send_dmail(0, "x", expect="0:1")
    assert await session.pending_dmail() is None


async def test_a_mail_expires_in_the_rewrite_that_removes_its_checkpoint(client: Client) -> None:
    session = await stepped(client)
    sent = await session.send_dmail(2, "too late")
    await session.revert_to(1)
    assert await session.pending_dmail() is None
    with pytest.raises(NotFound, match="expired"):
        await session.deliver_dmail(sent.id)


async def test_a_subscriber_gets_an_event_for_each_change_of_a_mail(root: Path) -> None:
    async with connect(root) as client, connect(root) as other:
        session = await stepped(client)
        async with other.session("demo").subscribe("now") as events:
            assert await anext(events) == Live(Position(0, 6))
            sent = await session.send_dmail(1, "wake up")
            with anyio.fail_after(30):
                assert await anext(events) == DmailEvent("sent", sent.id, 1)
            await session.deliver_dmail(sent.id)
            received = [await anext(events) for _ in range(3)]
            assert DmailEvent("delivered", sent.id, 1) in received
            assert [each.generation for each in received if isinstance(each, Reset)] == [1]


@pytest.mark.served(False)
async def test_a_later_subscriber_receives_the_pending_mail(client: Client) -> None:
    session = await stepped(client)
    sent = await session.send_dmail(1, "wake up")
    await client.drain()
    async with session.subscribe("now") as events:
        # A follower starts no daemon.
        await session.stat()
        assert await anext(events) == Live(Position(0, 6))
        assert await anext(events) == DmailEvent("sent", sent.id, 1)


async def test_a_mail_reaches_a_checkpoint_from_before_a_compaction(root: Path) -> None:
    async def summarize(_: object) -> str:
        return "notes"

    async with connect(root) as client:
        session = await stepped(client)
        assert await session.compact(summarize, preserve=1) is not None
        sent = await session.send_dmail(0, "from the start")
        await session.deliver_dmail(sent.id)
        [arrived] = session.history
        assert text_of(arrived).endswith("from the start</system>")
