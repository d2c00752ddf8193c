"""Compacted sessions and delivered D-Mail, read by kimi-cli."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.peers import peer

pytestmark = pytest.mark.interop

KimiContext = peer("kimi_cli.soul.context").Context


def summarize(_: list[dict[str, Any]]) -> steno.Summary:
    """A model that always says the same."""
    return steno.Summary("so far, so good", output_tokens=40)


def restored(file: Path) -> Any:
    """The messages that kimi-cli reads from a file."""
    context = KimiContext(file_backend=file)
    assert asyncio.run(context.restore())
    return context


def check_same(session: Any, file: Path) -> None:
    theirs = restored(file)
    session.refresh()
    assert [message.extract_text() for message in theirs.history] == [
        text_of(message["content"]) for message in session.history
    ]
    assert theirs.token_count == session.token_count
    assert theirs.n_checkpoints == session.n_checkpoints
    assert theirs.system_prompt == session.system_prompt


def text_of(content: Any) -> str:
    """The text of a message's content."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_kimi_cli_reads_a_compacted_session_and_one_whose_mail_was_delivered(home: Path) -> None:
    file = home / "sessions" / "compacted" / "context.jsonl"
    with steno.connect_sync() as client:
        session = client.open("compacted")
        session.write_system_prompt("be kind")
        for number in range(6):
            session.append_message({"role": "user", "content": f"question {number}"})
            session.checkpoint(add_user_message=number % 2 == 0)
            session.append_message({"role": "assistant", "content": f"answer {number}"})

        assert session.compact(summarize) is not None
        session.append_message({"role": "user", "content": "and then"})
        check_same(session, file)

        session.checkpoint()
        mail = session.send_dmail(3, "not that way")
        delivered = session.deliver_dmail(mail.id)
        check_same(session, file)
        assert restored(file).n_checkpoints == delivered.id + 1 == session.n_checkpoints


def test_kimi_cli_goes_on_in_a_compacted_session_and_steno_takes_it_in(home: Path) -> None:
    file = home / "sessions" / "shared" / "context.jsonl"
    kosong = peer("kosong.message")
    with steno.connect_sync() as client:
        session = client.open("shared")
        session.checkpoint()
        for number in range(4):
            session.append_message({"role": "user", "content": f"question {number}"})
        compacted = session.compact(summarize)
        assert compacted is not None

        async def go_on() -> None:
            context = KimiContext(file_backend=file)
            await context.restore()
            await context.checkpoint(True)
            await context.append_message(kosong.Message(role="user", content="theirs"))

        asyncio.run(go_on())
        ack = session.checkpoint()

        assert ack.checkpoint_id == compacted.checkpoint_id + 2
        check_same(session, file)
