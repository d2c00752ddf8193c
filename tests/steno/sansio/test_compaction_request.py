"""The request for a summary, and the use of the model's answer."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno._sansio.compaction import Compacting, lease_ms
from steno._sansio.messages import encode_messages
from steno._sansio.summaries import (
    COMPACTION_PROMPT,
    Summary,
    prepare,
    summary_parts,
    summary_record,
    summary_text,
    summary_tokens,
)
from steno._sansio.view import should_compact
from steno.values import Checkpoint
from steno_protocol import limits, replies
from steno_protocol.context import Message
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.positions import Position
from steno_protocol.records import check_message

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["text", "think", "image_url", "tool_use", "tool_result", "odd"])
PARTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={"text": TEXTS, "think": TEXTS, "image_url": JSON, "input": JSON, "content": JSON},
)
CALLS = st.fixed_dictionaries({}, optional={"id": TEXTS, "function": JSON, "type": TEXTS})
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.none() | TEXTS | st.lists(PARTS, max_size=3),
    },
    optional={"tool_calls": JSON | st.lists(CALLS, max_size=2), "tool_call_id": JSON},
)


def texts(request: list[Message]) -> list[str]:
    """The texts of a request's parts, the prompt last."""
    [message] = request
    assert message["role"] == "user"
    assert {part["type"] for part in message["content"]} == {"text"}
    return [part["text"] for part in message["content"]]


def text_of(message: Mapping[str, Any]) -> str:
    """The text of one message in a request."""
    only, _ = texts(prepare([dict(message)]))
    return only


@given(messages=st.lists(MESSAGES, max_size=6), instruction=st.none() | TEXTS)
def test_any_messages_make_a_request_with_a_part_for_each_and_the_prompt(
    messages: list[Message], instruction: str | None
) -> None:
    request = prepare(messages, instruction)
    *parts, prompt = texts(request)
    assert len(parts) == len(messages)
    for number, (part, message) in enumerate(zip(parts, messages, strict=True), 1):
        assert part.startswith(f"[message {number}: {message['role']}")
        if isinstance(message["content"], str):
            assert message["content"] in part
    assert prompt.startswith(COMPACTION_PROMPT)
    [frame] = encode_messages(request[0])
    check_message(frame)


@given(content=st.lists(PARTS, max_size=4))
def test_message_keeps_its_text_parts_without_thoughts(
    content: list[dict[str, Any]],
) -> None:
    marked = [
        {**part, "text": f"text<{index}>", "think": f"secret<{index}>", "type": kind}
        for index, part in enumerate(content)
        for kind in [part["type"] if part["type"] in ("text", "think") else "text"]
    ]
    part = text_of({"role": "assistant", "content": marked})
    expected = [each["text"] for each in marked if each["type"] == "text"]
    assert re.findall(r"text<\d+>", part) == expected
    assert "secret" not in part


def test_calls_are_named_with_their_arguments_and_results_with_their_call() -> None:
    call = {
        "type": "function",
        "id": "call_7",
        "function": {"name": "read_file", "arguments": '{"path":"a.py"}'},
    }
    part = text_of({"role": "assistant", "content": "I look.", "tool_calls": [call]})
    assert part.splitlines() == [
        "[message 1: assistant]",
        "I look.",
        '[calls read_file, id call_7, with {"path":"a.py"}]',
    ]
    part = text_of({"role": "tool", "content": "print(1)", "tool_call_id": "call_7"})
    assert part.splitlines() == ["[message 1: tool, result of the call call_7]", "print(1)"]


def test_calls_and_results_in_content_parts_read_alike() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/"}}
    part = text_of({"role": "assistant", "content": [use]})
    assert part.splitlines()[1] == '[calls ls, id t1, with {"path":"/"}]'
    inner = [{"type": "text", "text": "bin"}, {"type": "thinking", "thinking": "hm"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": inner}
    part = text_of({"role": "user", "content": [result]})
    assert part.splitlines()[1:] == ["[result of the call t1]", "bin"]


def test_image_is_described_by_type_and_size_only() -> None:
    data = "QUJD" * 1000
    url = f"data:image/png;base64,{data}"
    part = text_of({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert part.splitlines()[1] == "[image_url: image/png, 3000 bytes]"
    url = "https://example.org/a.png"
    part = text_of({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert part.splitlines()[1] == f"[image_url: {url}]"


def test_the_callers_instruction_is_said_to_go_before_the_priorities() -> None:
    assert texts(prepare([], "  ")) == [COMPACTION_PROMPT]
    prompt = texts(prepare([], "Keep every port number.\n"))[-1]
    assert prompt.startswith(COMPACTION_PROMPT)
    assert prompt.endswith("Keep every port number.")
    assert "before the order of priority" in " ".join(prompt.split())


@given(text=TEXTS.filter(str.strip), thought=TEXTS)
def test_a_summary_is_introduced_and_bears_no_thoughts(text: str, thought: str) -> None:
    parts = [{"type": "think", "think": thought}, {"type": "text", "text": text}]
    assert summary_record(Summary(parts)) == summary_record(text) == summary_record(Summary(text))
    introduction, summary = summary_record(text)["content"]
    assert re.fullmatch(r"<system>.+</system>", introduction["text"])
    assert summary == {"type": "text", "text": text}
    assert summary_text(summary_parts(text)) == text


@pytest.mark.parametrize(
    "empty",
    ["", " \n", Summary(""), Summary([]), Summary([{"type": "think", "think": "hm"}])],
)
def test_an_empty_summary_is_an_error(empty: str | Summary) -> None:
    with pytest.raises(BadRequest, match="no text"):
        summary_record(empty)


@pytest.mark.parametrize("wrong", [None, 7, b"text", ["text"], Summary(b"text")])
def test_invalid_summary_raises_in_the_summariser(wrong: Any) -> None:
    with pytest.raises(BadRequest, match="return a str"):
        summary_record(wrong)


@pytest.mark.parametrize("odd", [None, -1, 1.5, True, "9", 2**60])
def test_invalid_token_count_is_not_sent(odd: Any) -> None:
    assert summary_tokens(Summary("text", odd)) is None
    assert summary_tokens(Summary("text", 9)) == 9
    assert summary_tokens("text") is None


@pytest.mark.parametrize(
    ("tokens", "expected"), [(84_999, False), (85_000, True), (100_000, True), (0, False)]
)
def test_a_part_of_the_context_triggers_a_compaction(tokens: int, *, expected: bool) -> None:
    assert should_compact(tokens, 100_000, reserved=0) is expected


@given(
    tokens=st.integers(0, 300_000), size=st.integers(1, 300_000), reserved=st.integers(0, 99_999)
)
def test_a_reserve_that_is_touched_triggers_a_compaction(
    tokens: int, size: int, reserved: int
) -> None:
    assert should_compact(tokens, size, reserved, 2.0) is (
        tokens >= 2 * size or tokens + reserved >= size
    )
    assert should_compact(200_000 - 50_000, 200_000)
    assert not should_compact(200_000 - 50_001, 200_000)


# --- the compaction as commands ------------------------------------------------------------------

BEGUN = replies.Compaction(
    at="2:9", cut="2:3", messages=3, checkpoint_id=5, lease_ms=60_000, incarnation="5a41f0b2"
)


def test_a_compaction_names_its_lease_and_its_commit_alike() -> None:
    job = Compacting("demo", "planner", "k1", 2, 60_000)
    assert (job.begin.lease, job.abort.lease, job.key) == ("k1", "k1", "k1")
    begun = job.begun(BEGUN)
    assert begun is not None
    assert begun.renewal_s == 20.0
    assert begun.commit_fields(Summary("text", 7), "full") == {
        "lease": "k1", "cut": "2:3", "at": "2:9", "checkpoint_id": 5, "incarnation": "5a41f0b2",
        "summary_tokens": 7, "why": "full",
    }  # fmt: skip
    read = begun.past().reader.next_command()
    assert read is not None
    assert (read.after, read.until) == ("2:0", "2:3")


def test_summarised_part_is_read_tolerantly_without_control_records() -> None:
    job = Compacting("demo", "planner", None, 2, 60_000)
    begun = job.begun(BEGUN)
    assert begun is not None
    past = begun.past()
    lines = b'{"role":"user","content":"a","_id":"x"}\nno record\n{"role":"_checkpoint","id":0}\n'
    past.reader.take(replies.Lines(first="2:0", next="2:3", offset=len(lines)), lines)
    past.absorb()
    *parts, _ = texts(begun.request(past.state(), None))
    assert parts == ["[message 1: user]\na\n"]


def test_oversized_summary_is_refused_before_it_is_sent() -> None:
    begun = Compacting("demo", "planner", None, 2, 1).begun(BEGUN)
    assert begun is not None
    with pytest.raises(TooLarge):
        begun.commit_record("x" * limits.RECORD_BYTES_MAX)


@pytest.mark.parametrize(("tokens", "expected"), [(None, 2), (77, 77)])
def test_result_has_the_models_count_or_an_estimate(tokens: int | None, expected: int) -> None:
    begun = Compacting("demo", "planner", "k1", 2, 1).begun(BEGUN)
    assert begun is not None
    place = Position(3, 6)
    ack = Checkpoint(
        place, place, place, "synced", False, 6, None, False, "k1",
        id=6, at=Position(3, 1), incarnation="5a41f0b2c3d4e5f6",
    )  # fmt: skip
    done = begun.result(ack, Summary("four by two", tokens))
    assert (done.summary, done.tokens, done.checkpoint_id) == ("four by two", expected, 6)
    assert (done.messages, done.cut, done.at) == (3, Position(2, 3), Position(2, 9))


def test_a_lease_stays_within_its_limits() -> None:
    assert [lease_ms(seconds) for seconds in (0.0, 0.5, 1e9)] == [
        1, 500, limits.COMPACTION_LEASE_MS_MAX,
    ]  # fmt: skip
