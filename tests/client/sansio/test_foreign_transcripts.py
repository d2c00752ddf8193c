"""Transcripts of Claude Code and Codex become messages."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steno._sansio.foreign.claude_code import ClaudeCode
from steno._sansio.foreign.codex import Codex
from steno._sansio.foreign.detection import FORMATS, detect
from steno._sansio.foreign.surrogates import replace_lone_surrogates
from steno._sansio.foreign.transcript import ForeignTranscript, Message


def converted(found: ForeignTranscript, records: Sequence[dict[str, Any]]) -> list[Message]:
    for record in records:
        found.scan(record)
    messages = [message for record in records for message in found.messages(record)]
    messages += found.finish()
    return [{name: each[name] for name in each if name != "timestamp"} for each in messages]


def node(
    uuid: str, parent: str | None, kind: str, content: object, **fields: Any
) -> dict[str, Any]:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "cwd": "/srv/shop",
        "isSidechain": False, "timestamp": "2026-01-02T03:04:05.000Z", "message": message, **fields,
    }  # fmt: skip


def item(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05.000Z", "type": kind, "payload": payload}


def test_an_answer_of_several_records_becomes_one_message_with_its_token_count() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 5}
    answer = {"id": "msg-1", "usage": usage}
    call = {"type": "tool_use", "id": "t-1", "name": "Read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "t-1", "content": "print()"}
    thought = {"type": "thinking", "thinking": "Look first.", "signature": "x"}
    found = ClaudeCode()
    assert converted(found, [
        node("1", None, "user", "Fix the bug\nplease"),
        node("2", "1", "assistant", [thought], message=answer),
        node("3", "2", "assistant", [{"type": "text", "text": "I look."}], message=answer),
        node("4", "3", "assistant", [call], message=answer),
        node("5", "4", "user", [result]),
    ]) == [
        {"role": "user", "content": "Fix the bug\nplease"},
        {
            "role": "assistant",
            "content": [
                {"type": "think", "think": "Look first."},
                {"type": "text", "text": "I look."},
            ],
            "tool_calls": [{
                "type": "function", "id": "t-1",
                "function": {"name": "Read", "arguments": '{"path": "a.py"}'},
            }],
        },
        {"role": "_usage", "token_count": 100},
        {"role": "tool", "content": "print()", "tool_call_id": "t-1"},
    ]  # fmt: skip
    assert (found.title, found.session, found.work_dir) == ("Fix the bug", "s-1", "/srv/shop")


def test_the_branch_below_an_edited_prompt_is_left_out() -> None:
    texts = [
        each["content"]
        for each in converted(ClaudeCode(), [
            node("1", None, "user", "one"),
            node("2", "1", "assistant", "answer", message={"id": "m1"}),
            node("3", "2", "user", "old"),
            node("4", "3", "assistant", "old answer", message={"id": "m2"}),
            node("5", "2", "user", "new"),
            node("6", "5", "assistant", "new answer", message={"id": "m3"}),
            node("7", "4", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]),
        ])
    ]  # fmt: skip
    assert texts == ["one", "answer", "new", "new answer"]


def test_results_of_parallel_calls_are_no_branches() -> None:
    def result(name: str) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": name, "content": name}]

    found = converted(ClaudeCode(), [
        node("1", None, "user", "go"),
        node("2", "1", "user", result("a")),
        node("3", "1", "user", result("b")),
    ])  # fmt: skip
    assert [each["content"] for each in found] == ["go", "a", "b"]


def test_the_conversation_before_a_compaction_is_kept() -> None:
    boundary = {
        "type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None,
        "logicalParentUuid": "2", "sessionId": "s-1",
    }  # fmt: skip
    found = converted(ClaudeCode(), [
        node("1", None, "user", "before"),
        node("2", "1", "assistant", "yes", message={"id": "m1"}),
        boundary,
        node("3", "c", "user", "Summary: before", isCompactSummary=True),
    ])  # fmt: skip
    assert [each["content"] for each in found] == ["before", "yes", "Summary: before"]


def test_records_of_a_subagent_are_no_part_of_its_parent() -> None:
    records = [node("1", None, "user", "main"), node("2", None, "user", "sub", isSidechain=True)]
    assert [each["content"] for each in converted(ClaudeCode(), records)] == ["main"]
    alone = converted(ClaudeCode(), records[1:])
    assert [each["content"] for each in alone] == ["sub"]


def test_a_title_of_the_user_comes_before_one_of_the_program() -> None:
    found = ClaudeCode()
    converted(found, [
        {"type": "custom-title", "customTitle": "Mine", "sessionId": "s-1"},
        {"type": "summary", "summary": "Theirs", "leafUuid": "1"},
        node("1", None, "user", "first prompt"),
    ])  # fmt: skip
    assert found.title == "Mine"


def test_a_ring_of_parents_ends() -> None:
    records = [node("1", "2", "user", "a"), node("2", "1", "assistant", "b", message={"id": "m"})]
    assert len(converted(ClaudeCode(), records)) == 2


def test_a_rollout_becomes_messages_calls_and_results() -> None:
    usage = {"last_token_usage": {"total_tokens": 321}}
    found = Codex()
    assert converted(found, [
        item({"id": "c-1", "cwd": "/srv/shop", "instructions": "Be brief."}, "session_meta"),
        item({"type": "message", "role": "developer", "content": [
            {"type": "input_text", "text": "rules"}]}),
        item({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "<environment_context>x</environment_context>"}]}),
        item({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Run the tests"}]}),
        item({"type": "user_message", "message": "Run the tests"}, "event_msg"),
        item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Plan"}]}),
        item({"type": "function_call", "name": "shell", "call_id": "k", "arguments": '{"a":1}'}),
        item({"type": "function_call_output", "call_id": "k", "output": "ok"}),
        item({"type": "token_count", "info": usage}, "event_msg"),
        item({"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Done."}]}),
        item({"type": "a type of tomorrow"}),
    ]) == [
        {"role": "_system_prompt", "content": "Be brief."},
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": "<environment_context>x</environment_context>"},
        {"role": "user", "content": "Run the tests"},
        {"role": "assistant", "content": [{"type": "think", "think": "Plan"}]},
        {"role": "assistant", "content": [], "tool_calls": [{
            "type": "function", "id": "k", "function": {"name": "shell", "arguments": '{"a":1}'},
        }]},
        {"role": "tool", "content": "ok", "tool_call_id": "k"},
        {"role": "_usage", "token_count": 321},
        {"role": "assistant", "content": "Done."},
    ]  # fmt: skip
    assert (found.title, found.session, found.work_dir) == ("Run the tests", "c-1", "/srv/shop")


def test_a_rollout_of_the_old_form_is_read() -> None:
    found = Codex()
    records = [
        {"id": "c-0", "timestamp": "2025-05-07T17:24:21Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "local_shell_call", "call_id": "k", "action": {"command": ["ls"]}},
    ]
    messages = converted(found, records)
    assert [each["role"] for each in messages] == ["user", "assistant"]
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == '{"command": ["ls"]}'
    assert found.session == "c-0"


def test_a_format_is_detected_by_its_records() -> None:
    assert detect([{"type": "file-history-snapshot"}, node("1", None, "user", "x")]) is ClaudeCode
    assert detect([item({"id": "c"}, "session_meta")]) is Codex
    assert detect([{"role": "user", "content": "x"}, {"role": "_usage", "token_count": 1}]) is None
    assert detect([{"timestamp": 1.0, "message": {"type": "TurnBegin", "payload": {}}}]) is None


FIELDS = [
    "type", "uuid", "parentUuid", "sessionId", "message", "content", "role", "payload", "summary",
    "text", "info", "usage", "id", "input", "output", "source", "last_token_usage", "instructions",
]  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "1", "2", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=12,
)

TYPES = st.sampled_from([
    "user", "assistant", "summary", "response_item", "event_msg", "compacted", "message",
    "session_meta", "reasoning", "function_call", "function_call_output", "tool_result", "image",
])  # fmt: skip


@given(st.lists(st.tuples(TYPES, st.dictionaries(st.sampled_from(FIELDS), JSON)), max_size=8))
def test_any_records_convert_to_messages_that_can_be_written(
    drawn: list[tuple[str, dict[str, Any]]],
) -> None:
    records = [{**fields, "type": kind} for kind, fields in drawn]
    for each in FORMATS:
        each.recognises(records[0] if records else {})
        for message in converted(each(), records):
            assert isinstance(message["role"], str)
            json.dumps(message)


HALF = st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), min_size=1, max_size=3)
CUT_TEXT = st.lists(st.one_of(st.text('\\"/ud83d\n', max_size=6), st.text(), HALF)).map("".join)


def whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@given(CUT_TEXT, CUT_TEXT)
def test_lone_surrogates_are_replaced_in_texts_and_keys(key: str, text: str) -> None:
    line = json.dumps({key: [text]}).encode()
    assert msgspec.json.decode(replace_lone_surrogates(line)) == {whole(key): [whole(text)]}


def test_pairs_and_escaped_backslashes_are_no_lone_surrogates() -> None:
    line = rb'{"\uD83D\uDE00":"\\ud83d \\\ud83d\ude00 \u00e9 \n"}'
    assert replace_lone_surrogates(line) == line
