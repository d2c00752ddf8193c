"""The twin of SimpleCompaction beside kimi-cli's own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interop.peers import peer
from steno.adapters.kimi import Context, SimpleCompaction

pytestmark = pytest.mark.interop

message = peer("kosong.message")
theirs = peer("kimi_cli.soul.compaction")
KimiContext = peer("kimi_cli.soul.context").Context
provider = peer("kosong.chat_provider")


class Answer:
    """A model's stream: a thought and a text."""

    id = "answer"
    usage = provider.TokenUsage(input_other=100, output=7)

    async def __aiter__(self) -> AsyncIterator[Any]:
        yield message.ThinkPart(think="what matters?")
        yield message.TextPart(text="In short.")


class Model:
    """A model that keeps what it was asked."""

    name = model_name = "model"
    thinking_effort = None

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.asked: list[Any] = []

    async def generate(self, system_prompt: str, tools: Any, history: Any) -> Answer:
        self.asked.append((system_prompt, list(tools), list(history)))
        if self.path is not None:
            other = Context(self.path)
            await other.append_message(message.Message(role="user", content="meanwhile"))
        return Answer()


async def talked(context: Any) -> None:
    await context.write_system_prompt("be kind")
    for number in range(3):
        await context.checkpoint(True)
        await context.append_message(message.Message(role="user", content=f"question {number}"))
        await context.append_message(message.Message(role="assistant", content=f"yes {number}"))


async def compacted(context: Any, compaction: Any, model: Model) -> Any:
    """Compact as kimi-cli's soul does."""
    llm = SimpleNamespace(chat_provider=model)
    result = await compaction.compact(context.history, llm, custom_instruction="Keep paths.")
    await context.clear()
    await context.write_system_prompt("be kind")
    await context.checkpoint(False)
    await context.append_message(result.messages)
    await context.update_token_count(result.estimated_token_count)
    return result


def said(context: Any) -> list[str]:
    return [each.extract_text() for each in context.history]


def test_the_same_is_asked_and_put_in_place(folder: Path, tmp_path: Path) -> None:
    async def both() -> None:
        asked, results, files = [], [], []
        for kind, compaction, path in (
            (Context, SimpleCompaction(), folder / "context.jsonl"),
            (KimiContext, theirs.SimpleCompaction(), tmp_path / "context.jsonl"),
        ):
            context, model = kind(path), Model()
            # What is new is followed from its begin on.
            await context.restore()
            await talked(context)
            results.append(await compacted(context, compaction, model))
            asked.append(model.asked)
            read = KimiContext(path)
            assert await read.restore()
            files.append((said(read), read.token_count, read.system_prompt))
        assert asked[0] == asked[1]
        assert results[0] == results[1]
        assert files[0] == files[1]

    asyncio.run(both())
    assert (folder / "context_1.jsonl").exists()
    assert not (folder / "context_2.jsonl").exists()


def test_a_message_that_comes_meanwhile_stays(folder: Path) -> None:
    async def run() -> None:
        path = folder / "context.jsonl"
        context = Context(path)
        await context.restore()
        await talked(context)
        await compacted(context, SimpleCompaction(), Model(path))
        read = KimiContext(path)
        assert await read.restore()
        assert said(read)[1:] == ["question 2", "yes 2", "meanwhile"]
        assert said(context) == said(read)

    asyncio.run(run())


def test_too_few_messages_stay_unchanged(folder: Path) -> None:
    async def run() -> None:
        context = Context(folder / "context.jsonl")
        await context.restore()
        await context.append_message(message.Message(role="user", content="question"))
        await compacted(context, SimpleCompaction(), Model())
        assert said(context) == ["question"]

    asyncio.run(run())


def test_what_prepare_returns_is_a_result_of_the_class_as_in_kimi_cli() -> None:
    messages = [message.Message(role="user", content=str(number)) for number in range(4)]
    for few in (messages, messages[:1], []):
        ours, kimis = (kind().prepare(few) for kind in (SimpleCompaction, theirs.SimpleCompaction))
        assert ours == kimis
        assert ours == SimpleCompaction.PrepareResult(
            compact_message=ours.compact_message, to_preserve=ours.to_preserve
        )
        assert isinstance(ours, SimpleCompaction.PrepareResult)
        assert ours._fields == theirs.SimpleCompaction.PrepareResult._fields
