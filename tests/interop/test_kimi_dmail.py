"""kimi-cli's D-Mail tool with the twin of its DenwaRenji."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interop.peers import peer
from steno.adapters.kimi import Context, DenwaRenji

pytestmark = pytest.mark.interop

KimiDenwaRenji = peer("kimi_cli.soul.denwarenji").DenwaRenji
KimiError = peer("kimi_cli.soul.denwarenji").DenwaRenjiError
DMail = peer("kimi_cli.soul.denwarenji").DMail
SendDMail = peer("kimi_cli.tools.dmail").SendDMail
kosong = peer("kosong.message")


def answers(phone: Any, *mails: Any) -> list[bool]:
    """The mails that the tool failed to send."""

    async def send() -> list[bool]:
        tool = SendDMail(phone)
        return [(await tool(mail)).is_error for mail in mails]

    return asyncio.run(send())


def test_the_tool_sends_and_refuses_through_the_twin_as_through_the_original(
    folder: Path,
) -> None:
    context = Context(folder / "context.jsonl")

    async def begin() -> None:
        await context.checkpoint(add_user_message=True)
        await context.append_message(kosong.Message(role="user", content="one"))
        await context.checkpoint(add_user_message=True)

    asyncio.run(begin())
    ours, theirs = DenwaRenji(folder / "context.jsonl"), KimiDenwaRenji()
    mails = [
        DMail(message="there is none", checkpoint_id=2),
        DMail(message="skip it", checkpoint_id=1),
        DMail(message="too many", checkpoint_id=0),
    ]
    for phone in (ours, theirs):
        phone.set_n_checkpoints(context.n_checkpoints)
        assert answers(phone, *mails) == [True, False, True]
        assert phone.fetch_pending_dmail() == mails[1]
        assert phone.fetch_pending_dmail() is None


def test_followed_mail_is_over_and_the_next_can_be_sent(folder: Path) -> None:
    path = folder / "context.jsonl"
    context, phone = Context(path), DenwaRenji(path)

    async def travel() -> None:
        await context.checkpoint(add_user_message=False)
        await context.append_message(kosong.Message(role="user", content="one"))
        phone.set_n_checkpoints(context.n_checkpoints)
        phone.send_dmail(DMail(message="first", checkpoint_id=0))
        # What kimi-cli's loop does with a mail.
        mail = phone.fetch_pending_dmail()
        await context.revert_to(mail.checkpoint_id)
        await context.checkpoint(add_user_message=False)
        await context.append_message(kosong.Message(role="user", content=mail.message))
        phone.set_n_checkpoints(context.n_checkpoints)

    asyncio.run(travel())
    assert [message.extract_text() for message in context.history] == ["first"]
    assert DenwaRenji(path).fetch_pending_dmail() is None
    assert answers(phone, DMail(message="second", checkpoint_id=0)) == [False]
    assert DenwaRenji(path).fetch_pending_dmail() == DMail(message="second", checkpoint_id=0)


def test_twin_without_a_file_equals_the_original(seed: int) -> None:
    random = Random(seed)
    phones = [DenwaRenji(), KimiDenwaRenji()]

    def outcome(phone: Any, kind: str, number: int) -> Any:
        match kind:
            case "send":
                try:
                    phone.send_dmail(DMail(message=f"to {number}", checkpoint_id=number))
                except KimiError:
                    return "refused"
                return "sent"
            case "set":
                return phone.set_n_checkpoints(number)
            case _:
                return phone.fetch_pending_dmail()

    for _ in range(200):
        kind, number = random.choice(["send", "send", "set", "fetch"]), random.randrange(4)
        ours, theirs = (outcome(phone, kind, number) for phone in phones)
        assert ours == theirs, (kind, number)
