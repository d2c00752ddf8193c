"""Requests to a model whose server fails."""

import logging
import socket
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm.model_server import (
    SUMMARY,
    ModelServer,
    Step,
    answer,
    chat,
    endless,
    failing,
    hanging_up_at_once,
    hanging_up_in_the_body,
    message,
    raw,
    stalling,
)
from steno._sansio.summaries import Summary, prepare
from steno.llm import ModelFailed, summarizer
from steno.llm._asking import World
from steno.llm.limits import MODEL_ANSWER_BYTES_MAX, MODEL_ATTEMPTS_MAX, MODEL_RETRY_S
from steno_protocol.errors import BadRequest, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls", "no_keys")]

CANARY = "sk-canary-7f3a"
NOW = 1_793_275_200.0
MESSAGES = prepare([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}])


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STENO_LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


class Asker:
    """Asks a server; pauses are noted and not waited for."""

    def __init__(self, server: ModelServer, **options: Any) -> None:
        self.pauses: list[float] = []
        self.progress: list[str] = []
        given = {"provider": "openai", "model": "m", "base_url": server.base_url, **options}
        world = World(sleep=self._sleep, now=lambda: NOW, draw=lambda: 0.0)
        self._summarize = summarizer(**given, tell=self.progress.append, world=world)

    async def __call__(self) -> str | Summary:
        return await self._summarize(MESSAGES)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await anyio.lowlevel.checkpoint()


async def failure_of(asker: Asker) -> ModelFailed:
    with pytest.raises(ModelFailed) as failed:
        await asker()
    return failed.value


async def test_chat_completions_give_a_summary_with_its_tokens() -> None:
    with ModelServer(chat()) as server:
        assert await Asker(server)() == Summary(SUMMARY, 17)
    [asked] = server.asked
    assert asked.path == "/v1/chat/completions"
    assert "authorization" not in asked.headers
    assert "Hello" in asked.body["messages"][1]["content"]
    assert not asked.body["stream"]
    assert "tools" not in asked.body


async def test_messages_give_a_summary_with_its_tokens() -> None:
    with ModelServer(message()) as server:
        assert await Asker(server, provider="anthropic")() == Summary(SUMMARY, 18)
    [asked] = server.asked
    assert asked.path == "/v1/messages"
    assert asked.headers["anthropic-version"]
    assert "x-api-key" not in asked.headers


async def test_a_key_goes_where_each_provider_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "two")
    with ModelServer(chat(), message(), chat(), chat()) as server:
        await Asker(server)()
        await Asker(server, provider="anthropic")()
        monkeypatch.setenv("STENO_LLM_API_KEY", "three")
        await Asker(server)()
        await Asker(server, api_key="four")()
    sent = [
        each.headers.get("authorization", each.headers.get("x-api-key")) for each in server.asked
    ]
    assert sent == ["Bearer one", "two", "Bearer three", "Bearer four"]


@pytest.mark.parametrize(
    ("refusal", "pause"),
    [
        (failing(429, retry_after="7"), 7.0),
        (failing(429, retry_after=formatdate(NOW + 20, usegmt=True)), 20.0),
        (failing(429, retry_after_ms="1500"), 1.5),
        (failing(429), MODEL_RETRY_S / 2),
        (failing(500), MODEL_RETRY_S / 2),
        (failing(529), MODEL_RETRY_S / 2),
        (raw(b"<html>bad gateway</html>", 502), MODEL_RETRY_S / 2),
        (hanging_up_at_once, MODEL_RETRY_S / 2),
        (hanging_up_in_the_body, MODEL_RETRY_S / 2),
    ],
)
async def test_a_busy_or_broken_server_is_asked_again_when_it_wants(
    refusal: Step, pause: float
) -> None:
    with ModelServer(refusal, chat()) as server:
        asker = Asker(server)
        assert await asker() == Summary(SUMMARY, 17)
    assert asker.pauses == [pause]
    assert len(server.asked) == 2
    assert f"in {pause:.1f} s" in asker.progress[0]


async def test_retries_are_bounded() -> None:
    with ModelServer(failing(503, "overloaded")) as server:
        asker = Asker(server)
        failed = await failure_of(asker)
    assert len(server.asked) == failed.attempts == MODEL_ATTEMPTS_MAX
    assert failed.status == 503
    assert failed.outcome is Outcome.NOT_APPLIED
    assert "overloaded" in str(failed)
    assert asker.pauses == sorted(asker.pauses)


async def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    with ModelServer(failing(429, retry_after="3600")) as server:
        asker = Asker(server, deadline=60)
        assert "beyond the deadline of 60 s" in str(await failure_of(asker))
    assert asker.pauses == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (failing(400, "the context has 4096 tokens"), "the context has 4096 tokens"),
        (failing(401), "it was given no key: set STENO_LLM_API_KEY or OPENAI_API_KEY"),
        (failing(404), "check the model's name and the base URL"),
        (failing(307, location="http://other/v1?secret=1"), "points to http://other/v1, where"),
        (raw(b"{", 200), "no JSON object"),
        (raw(b"<html>", 200, content_type="text/html"), "text/html"),
        (answer({"choices": "none"}), "no chat completion"),
        (answer({"error": {"message": "model not loaded"}}), "model not loaded"),
        (chat(""), "empty"),
        (chat(None, reasoning_content="hm"), "empty"),
        (chat("<think>hm</think>\n"), "nothing but thoughts"),
        (chat("<current_focus>", "length"), "cut off"),
        (raw(b"x", 200, content_encoding="gzip"), "compressed"),
    ],
)
async def test_a_permanent_error_is_raised_at_once_with_a_remedy(step: Step, words: str) -> None:
    with ModelServer(step) as server:
        asker = Asker(server)
        failed = await failure_of(asker)
    assert words in str(failed)
    assert "secret" not in str(failed)
    assert failed.url == f"{server.base_url}/chat/completions"
    assert (len(server.asked), asker.pauses) == (1, [])


async def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STENO_LLM_API_KEY", CANARY)
    with ModelServer(chat()) as thief, ModelServer(failing(308, location=thief.base_url)) as server:
        await failure_of(Asker(server))
    assert thief.asked == []


async def test_an_answer_without_end_is_cut_short() -> None:
    with ModelServer(endless) as server:
        failed = await failure_of(Asker(server))
        assert await anyio.to_thread.run_sync(server.hung_up.wait, 60)
    assert f"more than {MODEL_ANSWER_BYTES_MAX} bytes" in str(failed)


async def test_an_answer_that_is_too_slow_is_given_up_at_the_deadline() -> None:
    with ModelServer(stalling) as server:
        failed = await failure_of(Asker(server, deadline=3))
        assert await anyio.to_thread.run_sync(server.hung_up.wait, 60)
    assert "deadline of 3 s is over" in str(failed)


async def test_a_cancelled_question_hangs_up() -> None:
    with ModelServer(stalling) as server:
        asker = Asker(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asker)
            while not server.asked:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(server.hung_up.wait, 60)


@pytest.mark.parametrize(
    "url", ["http://a\0b", "http://127.0.0.1:0", "http://[::1]:1", "http://é/"]
)
async def test_an_unreachable_url_is_an_error_and_no_crash(url: str) -> None:
    with ModelServer(chat()) as server:
        assert (await failure_of(Asker(server, base_url=url))).status is None


async def test_a_server_that_is_not_there_is_named() -> None:
    with ModelServer(chat()) as server, socket.socket() as silent:
        # Nobody listens at a port that is held, and no other test's server can take it.
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        failed = await failure_of(Asker(server, base_url=url))
    assert failed.status is None
    assert url in str(failed)


@pytest.mark.parametrize(
    "step",
    [
        failing(401, f"Incorrect API key provided: {CANARY}"),
        failing(503, f"quota of {CANARY}"),
        raw(f"echo {CANARY}".encode(), 500),
        answer({"error": f"bad {CANARY}"}),
        chat(None, refusal=f"I saw {CANARY}"),
        answer({"choices": [{"message": CANARY}]}),
        hanging_up_at_once,
        chat(),
    ],
)
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_key_is_never_shown_in_an_error_a_log_or_a_traceback(
    step: Step,
    provider: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STENO_LLM_API_KEY", CANARY)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with ModelServer(step) as server:
        asker = Asker(server, provider=provider)
        try:
            await asker()
        except ModelFailed as failed:
            shown = [*whole_story(failed), repr(vars(failed))]
    captured = capfd.readouterr()
    everything = [*shown, *asker.progress, caplog.text, captured.out, captured.err]
    assert len(caplog.records) > 0
    assert [text for text in everything if CANARY in text] == []
    assert CANARY in str(server.asked[0].headers)


def whole_story(error: BaseException) -> list[str]:
    """An error and all behind it, as a debugger that prints local values would show them."""
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    return list(trace.format(chain=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": "other"}, {"model": ""}, {"deadline": 0}, {"deadline": float("nan")},
        {"max_output_tokens": 0}, {"base_url": "ftp://host"},
        {"base_url": "http://host/v1", "api_key": CANARY},
    ],
)  # fmt: skip
async def test_invalid_request_is_refused_before_it_is_sent(
    wrong: dict[str, Any],
) -> None:
    build: Callable[..., Any] = summarizer
    with pytest.raises(BadRequest) as refused:
        build(**{"model": "m", "base_url": "http://127.0.0.1:1/v1", **wrong})
    assert CANARY not in str(refused.value)
