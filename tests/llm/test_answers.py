"""Requests to the two providers and their answers, without a network."""

import json
from typing import Any

import pytest

from steno.llm._address import checked_base_url, refuse_key_in_the_clear
from steno.llm._provider import Provider, Question, Unusable
from steno.llm._secret import Secret, secret_of
from steno.llm._thoughts import without_thoughts
from steno.llm.anthropic_messages import ANTHROPIC_MESSAGES
from steno.llm.openai_chat import OPENAI_CHAT
from steno_protocol import limits
from steno_protocol.errors import BadRequest

CANARY = "sk-canary-7f3a"
BOTH = [OPENAI_CHAT, ANTHROPIC_MESSAGES]
REQUEST = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "one"},
            {"type": "image_url", "image_url": {"url": "data:"}},
            {"type": "text", "text": "two"},
        ],
    }
]


def question(base_url: str = "https://host/v1") -> Question:
    return Question(base_url, "m", "be brief", REQUEST, 100)


def body_of(provider: Provider, base_url: str = "https://host/v1") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(provider.call(question(base_url), None).body)
    return body


def test_chat_completions_are_asked_without_tools_and_without_streaming() -> None:
    assert body_of(OPENAI_CHAT) == {
        "model": "m",
        "stream": False,
        "max_tokens": 100,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one\ntwo"},
        ],
    }


def test_openai_itself_is_given_the_limit_by_its_new_name() -> None:
    body = body_of(OPENAI_CHAT, OPENAI_CHAT.base_url)
    assert body["max_completion_tokens"] == 100
    assert "max_tokens" not in body


def test_messages_are_asked_without_tools_and_without_streaming() -> None:
    assert body_of(ANTHROPIC_MESSAGES) == {
        "model": "m",
        "stream": False,
        "max_tokens": 100,
        "system": "be brief",
        "messages": [{"role": "user", "content": "one\ntwo"}],
    }
    assert "anthropic-version" in ANTHROPIC_MESSAGES.call(question(), None).headers


@pytest.mark.parametrize(
    ("given", "openai", "anthropic"),
    [
        ("http://h:8080", "http://h:8080/v1/chat/completions", "http://h:8080/v1/messages"),
        ("http://h:8080/", "http://h:8080/v1/chat/completions", "http://h:8080/v1/messages"),
        ("https://h/api/v1/", "https://h/api/v1/chat/completions", "https://h/api/v1/messages"),
    ],
)
def test_the_endpoint_is_found_below_the_base_url(given: str, openai: str, anthropic: str) -> None:
    base = checked_base_url(given)
    assert OPENAI_CHAT.call(question(base), None).url == openai
    assert ANTHROPIC_MESSAGES.call(question(base), None).url == anthropic


@pytest.mark.parametrize(
    "url",
    [
        "", "host/v1", "ftp://host", "http://", "http://[::1", "http://host:no",
        f"https://{CANARY}@host/v1", f"https://u:{CANARY}@host", f"https://host/?key={CANARY}",
        f"https://host/v1#{CANARY}",
    ],
)  # fmt: skip
def test_invalid_base_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadRequest) as refused:
        checked_base_url(url)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("url", ["http://10.0.0.1/v1", "http://host", "http://localhost.evil/v1"])
def test_a_key_never_leaves_the_machine_in_the_clear(url: str) -> None:
    with pytest.raises(BadRequest, match="in the clear"):
        refuse_key_in_the_clear(url)


@pytest.mark.parametrize(
    "url", ["https://host", "http://127.0.0.1:1", "http://[::1]/", "http://localhost"]
)
def test_a_key_goes_over_https_or_stays_on_the_machine(url: str) -> None:
    refuse_key_in_the_clear(url)


def test_given_key_precedes_stenos_variable_and_the_providers() -> None:
    environment = {"STENO_LLM_API_KEY": "own", "OPENAI_API_KEY": "theirs"}
    found = [
        secret_of("given", environment, "OPENAI_API_KEY"),
        secret_of(None, environment, "OPENAI_API_KEY"),
        secret_of(None, {"OPENAI_API_KEY": " theirs\n"}, "OPENAI_API_KEY"),
    ]
    assert [key and key.header("") for key in found] == ["given", "own", "theirs"]
    assert secret_of(None, {"STENO_LLM_API_KEY": " "}, "OPENAI_API_KEY") is None


@pytest.mark.parametrize("text", [f"{CANARY}\r\nx: y", f"{CANARY}é"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        secret_of(text, {}, "OPENAI_API_KEY")
    assert CANARY not in str(refused.value)


def test_nothing_that_is_printed_shows_a_key() -> None:
    key = Secret(CANARY)
    for provider in BOTH:
        call = provider.call(question(), key)
        assert CANARY not in f"{key!r} {key} {call!r} {[key]}"
    assert key.hidden_in(f"no such key: {CANARY}") == "no such key: [key]"


def chat(content: Any, usage: Any = None, **message: Any) -> bytes:
    choice = {"message": {"content": content, **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


def messages(*parts: Any, usage: Any = None, ending: str = "end_turn") -> bytes:
    return json.dumps({"content": parts, "stop_reason": ending, "usage": usage}).encode()


def test_thinking_of_a_model_is_left_out_and_not_counted() -> None:
    usage = {"completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 4}}
    plain = OPENAI_CHAT.answer(chat(" notes\n", usage, reasoning_content="hm"))
    assert (plain.text, plain.output_tokens) == ("notes", 6)
    inline = OPENAI_CHAT.answer(chat("<think>hm</think>\n\nnotes", usage))
    assert (inline.text, inline.output_tokens) == ("notes", None)
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    listed = OPENAI_CHAT.answer(chat([*parts, {"type": "text", "text": "notes"}], usage))
    assert listed.text == "notes"


def test_the_thinking_parts_of_messages_are_left_out_and_not_counted() -> None:
    text = {"type": "text", "text": "notes"}
    usage = {"output_tokens": 9}
    assert ANTHROPIC_MESSAGES.answer(messages(text, usage=usage)).output_tokens == 9
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    answer = ANTHROPIC_MESSAGES.answer(messages(thought, text, usage=usage))
    assert (answer.text, answer.output_tokens) == ("notes", None)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("notes", "notes"),
        ("<think>a</think>notes", "notes"),
        ("<think>\na\n</think>\n<Thinking>b</Thinking>\nnotes", "notes"),
        ("a\nb\n</think>\n\nnotes", "notes"),
        ("<think>never ended", ""),
        ("<think></think>", ""),
        ("the parser drops <think> blocks", "the parser drops <think> blocks"),
        ("notes on <think>x</think> tags", "notes on <think>x</think> tags"),
        ("the end is `</think>` there", "the end is `</think>` there"),
    ],
)
def test_only_the_thoughts_that_a_text_begins_with_are_dropped(given: str, left: str) -> None:
    assert without_thoughts(given) == left


@pytest.mark.parametrize(
    "usage",
    [
        None, [], {}, 3, {"completion_tokens": None}, {"completion_tokens": "7"},
        {"completion_tokens": -1}, {"completion_tokens": True}, {"completion_tokens": 1.5},
        {"completion_tokens": limits.COUNT_MAX + 1},
        {"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 4}},
    ],
)  # fmt: skip
def test_a_senseless_token_count_is_ignored(usage: Any) -> None:
    assert OPENAI_CHAT.answer(chat("notes", usage)).output_tokens is None


def test_an_answer_that_ended_too_early_says_so() -> None:
    cut = json.loads(chat("not"))
    cut["choices"][0]["finish_reason"] = "length"
    assert OPENAI_CHAT.answer(json.dumps(cut).encode()).is_cut_off
    assert ANTHROPIC_MESSAGES.answer(messages(ending="max_tokens")).is_cut_off
    assert not OPENAI_CHAT.answer(chat("notes")).is_cut_off


@pytest.mark.parametrize("provider", BOTH, ids=lambda each: each.name)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"<html>", b"\xff", b'{"a":', b"{}", b'{"choices":3,"content":3}',
        b'{"choices":[],"content":[3]}', b'{"choices":[{}],"content":"x"}', b"[" * 100_000,
        b'{"error":{"message":"overloaded"}}', b'{"error":"overloaded"}',
    ],
    ids=lambda body: str(body[:20]),
)  # fmt: skip
def test_invalid_answer_is_unusable(provider: Provider, body: bytes) -> None:
    with pytest.raises(Unusable):
        provider.answer(body)


def test_a_model_refusal_is_an_error_and_no_summary() -> None:
    with pytest.raises(Unusable, match="I will not"):
        OPENAI_CHAT.answer(chat(None, refusal="I will not"))
    with pytest.raises(Unusable, match="refused"):
        ANTHROPIC_MESSAGES.answer(messages(ending="refusal"))
