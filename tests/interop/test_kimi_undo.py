"""Fork and undo of sessions that kimi-cli's twins compacted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import steno
from interop.peers import peer
from steno.adapters.kimi import Context, WireFile

pytestmark = pytest.mark.interop

message = peer("kosong.message")
types = peer("kimi_cli.wire.types")


async def live_turn(context: Any, wire: Any, text: str) -> None:
    """A turn as kimi-cli's soul has it."""
    await wire.append_message(types.TurnBegin(user_input=text))
    await context.checkpoint(add_user_message=True)
    await context.append_message(message.Message(role="user", content=text))
    await context.append_message(message.Message(role="assistant", content=f"{text}!"))
    await context.update_token_count(10)
    await wire.append_message(types.TurnEnd())


async def compact(context: Any) -> None:
    """A compaction as kimi-cli's soul writes it into its context."""
    kept = list(context.history[-2:])
    await context.clear()
    await context.write_system_prompt("be kind")
    await context.checkpoint(add_user_message=True)
    summary = message.Message(role="user", content="In short.")
    await context.append_message([summary, *kept])
    await context.update_token_count(5)


async def live(folder: Path, turns: list[list[str]]) -> None:
    """Turns, with a compaction between one list of them and the next."""
    context, wire = Context(folder / "context.jsonl"), WireFile(folder / "wire.jsonl")
    await context.restore()
    for number, texts in enumerate(turns):
        if number:
            await compact(context)
        for text in texts:
            await live_turn(context, wire, text)


def texts_of(session: Any) -> list[str]:
    found = [each["content"] for each in session.history]
    return [text for text in found if isinstance(text, str) and "CHECKPOINT" not in text]


@pytest.mark.parametrize(
    ("undone", "expected"),
    [
        (1, ["In short.", "two", "two!", "three", "three!"]),
        (2, ["In short.", "two", "two!"]),
        (3, ["one", "one!"]),
        (4, []),
    ],
)
def test_an_undone_turn_is_gone_also_when_it_was_compacted(
    folder: Path, undone: int, expected: list[str]
) -> None:
    asyncio.run(live(folder, [["one", "two"], ["three", "four"]]))
    with steno.connect_sync() as client:
        session = client.open(f"kimi:{folder.name}")
        name = f"{session.id}-undone"
        made = session.undo(undone, name)
        assert texts_of(made) == expected
        assert len(made.turns()) == 4 - undone
        client.delete(name)


def test_ambiguous_turn_is_refused(folder: Path) -> None:
    asyncio.run(live(folder, [["go on", "again"], ["again"]]))
    with steno.connect_sync() as client:
        session = client.open(f"kimi:{folder.name}")
        with pytest.raises(steno.BadRequest, match="fork at a position instead"):
            session.undo(1, f"{session.id}-undone")
