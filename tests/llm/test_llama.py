"""Summaries by a real llama.cpp server with a tiny model."""

from pathlib import Path

import pytest

import steno
from steno._sansio.summaries import Summary, prepare
from steno.llm import ModelFailed, summarizer
from support.command import Steno

pytestmark = pytest.mark.usefixtures("no_blocking_calls")

MESSAGES = prepare([{"role": "user", "content": f"question {number}"} for number in range(20)])
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])


@pytest.mark.anyio
@PROVIDERS
async def test_real_server_returns_the_models_text(llama_url: str, provider: str) -> None:
    from llm.tiny_model import OUTPUT_TOKENS, SUMMARY

    summarize = summarizer(provider=provider, model="tiny", base_url=llama_url)
    assert await summarize(MESSAGES) == Summary(SUMMARY, OUTPUT_TOKENS)


@pytest.mark.anyio
@PROVIDERS
async def test_a_real_server_says_that_an_answer_was_cut_off(llama_url: str, provider: str) -> None:
    summarize = summarizer(provider=provider, model="tiny", base_url=llama_url, max_output_tokens=3)
    with pytest.raises(ModelFailed, match=r"cut off .* at 3 output tokens"):
        await summarize(MESSAGES)


@pytest.mark.anyio
@PROVIDERS
async def test_a_real_server_says_that_a_conversation_is_too_long(
    llama_url: str, provider: str
) -> None:
    from llm.tiny_model import CONTEXT_TOKENS

    summarize = summarizer(provider=provider, model="tiny", base_url=llama_url)
    with pytest.raises(ModelFailed, match="context size") as failed:
        await summarize(prepare([{"role": "user", "content": "x" * CONTEXT_TOKENS}]))
    assert (failed.value.status, failed.value.attempts) == (400, 1)


@pytest.mark.anyio
async def test_a_session_is_compacted_by_a_real_model(llama_url: str, root: Path) -> None:
    from llm.tiny_model import OUTPUT_TOKENS, SUMMARY

    async with steno.connect(root) as client:
        session = await client.open("demo")
        for number in range(10):
            await session.append_message({"role": "user", "content": f"question {number}"})
        done = await session.compact(summarizer(model="tiny", base_url=llama_url))
        assert done is not None
        assert (done.messages, done.tokens, done.summary) == (8, OUTPUT_TOKENS, SUMMARY)
        assert len(session.history) == 3
        await session.restore_generation(0)
        assert len(session.history) == 10


def test_the_command_compacts_with_a_real_model(llama_url: str, root: Path) -> None:
    command = Steno(root)
    for number in range(5):
        command("append", "demo", f"question {number}")
    # It has an event loop of its own, which may block.
    ran = command.forked("compact", "demo", "--model", "tiny", "--base-url", llama_url, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["messages"] == 3
    assert "one layer" in command("show", "demo").out
