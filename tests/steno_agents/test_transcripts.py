"""Transcripts of Claude Code and Codex become messages."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_agents.claude_code import ClaudeCode
from steno_agents.codex import Codex
from steno_agents.detection import FORMATS, Detector
from steno_agents.transcript import ForeignTranscript, History, Message
from steno_protocol._json import replace_lone_surrogates
from support.agent_files import detect


def scanned(found: ForeignTranscript, records: Sequence[dict[str, Any]]) -> list[History]:
    for place, record in enumerate(records):
        found.scan(place, record)
    return found.histories()


def messages_of(
    found: ForeignTranscript, history: History, records: Sequence[dict[str, Any]]
) -> list[Message]:
    converter = found.converter()
    messages = [each for at in history.places for each in converter.messages(at, records[at])]
    messages += converter.finish()
    return [{name: each[name] for name in each if name != "timestamp"} for each in messages]


def converted(found: ForeignTranscript, records: Sequence[dict[str, Any]]) -> list[Message]:
    """The messages of the live history."""
    histories = scanned(found, records)
    return messages_of(found, histories[-1], records) if histories else []


def contents(
    found: ForeignTranscript, records: Sequence[dict[str, Any]]
) -> list[tuple[str, list[object]]]:
    """The contents of all histories, with their ends."""
    return [
        (each.end, [message["content"] for message in messages_of(found, each, records)])
        for each in scanned(found, records)
    ]


def title_of(found: ForeignTranscript, records: Sequence[dict[str, Any]]) -> str | None:
    return found.title(scanned(found, records))


def said(uuid: str, parent: str | None, text: str, **fields: Any) -> dict[str, Any]:
    return node(uuid, parent, "assistant", text, message={"id": f"m-{uuid}"}, **fields)


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
    assert (found.session, found.work_dir) == ("s-1", "/srv/shop")


def test_the_branch_of_the_last_record_is_live_and_the_others_are_kept() -> None:
    records = [
        node("1", None, "user", "one"),
        said("2", "1", "answer"),
        node("3", "2", "user", "old"),
        said("4", "3", "old answer"),
        node("5", "2", "user", "new"),
        said("6", "5", "new answer"),
        node("7", "4", "user", "continues the old one"),
    ]
    assert contents(ClaudeCode(), records) == [
        ("branch", ["one", "answer", "new", "new answer"]),
        ("live", ["one", "answer", "old", "old answer", "continues the old one"]),
    ]


def test_a_later_last_prompt_names_the_live_leaf() -> None:
    records = [
        node("1", None, "user", "one"),
        said("2", "1", "first"),
        said("3", "1", "second"),
        {"type": "last-prompt", "lastPrompt": "one", "leafUuid": "2", "sessionId": "s-1"},
    ]
    assert converted(ClaudeCode(), records)[-1]["content"] == "first"
    # One that names a record above the last one is older than that.
    records[-1]["leafUuid"] = "1"
    assert converted(ClaudeCode(), records)[-1]["content"] == "second"


def test_parallel_calls_and_their_results_are_no_branches() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": name, "name": "Read", "input": {}}

    def result(name: str) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": name, "content": name}]

    answer = {"id": "m"}
    records = [
        node("1", None, "user", "go"),
        node("2", "1", "assistant", [call("a")], message=answer),
        node("3", "2", "user", result("a")),
        node("4", "2", "assistant", [call("b")], message=answer),
        node("5", "4", "user", result("b")),
        said("6", "5", "done"),
    ]
    (history,) = scanned(found := ClaudeCode(), records)
    messages = messages_of(found, history, records)
    assert [each["content"] for each in messages] == ["go", [], "a", "b", "done"]
    assert [each["id"] for each in messages[1]["tool_calls"]] == ["a", "b"]


def test_a_compaction_begins_with_the_summary_and_what_it_kept() -> None:
    boundary = {
        "type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None,
        "logicalParentUuid": "4", "sessionId": "s-1",
        "compactMetadata": {"preservedMessages": {"anchorUuid": "s", "uuids": ["4"]}},
    }  # fmt: skip
    records = [
        node("1", None, "user", "before"),
        said("2", "1", "yes"),
        node("3", "2", "user", "more"),
        said("4", "3", "last answer"),
        boundary,
        node("s", "c", "user", "Summary", isCompactSummary=True),
        node("6", "s", "user", "after"),
    ]
    found = ClaudeCode()
    assert contents(found, records) == [
        ("compaction", ["before", "yes", "more", "last answer"]),
        ("live", ["Summary", "last answer", "after"]),
    ]
    assert found.title(found.histories()) == "before"
    # Older versions name the first and the last record that stay.
    boundary["compactMetadata"] = {
        "preservedSegment": {"anchorUuid": "s", "headUuid": "3", "tailUuid": "4"}
    }
    assert contents(ClaudeCode(), records)[-1][1] == ["Summary", "more", "last answer", "after"]


def test_a_record_whose_parent_is_missing_follows_the_one_before_it() -> None:
    records = [node("1", None, "user", "one"), said("3", "a damaged line", "two")]
    assert contents(ClaudeCode(), records) == [("live", ["one", "two"])]


def test_a_first_sidechain_is_no_part_of_the_conversation() -> None:
    records = [
        node("w", None, "user", "Warmup", isSidechain=True),
        said("x", "w", "ready", isSidechain=True),
        node("1", None, "user", "main"),
        said("2", "1", "answer"),
    ]
    found = ClaudeCode()
    assert contents(found, records) == [("live", ["main", "answer"])]
    assert found.title(found.histories()) == "main"


def queued(operation: str, **fields: Any) -> dict[str, Any]:
    return {"type": "queue-operation", "operation": operation, "sessionId": "s-1", **fields}


def test_a_prompt_typed_meanwhile_comes_where_the_model_got_it() -> None:
    call = [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
    attachment = {
        "type": "attachment", "uuid": "5", "parentUuid": "3", "sessionId": "s-1",
        "attachment": {"type": "queued_command", "prompt": "wish", "commandMode": "prompt"},
    }  # fmt: skip
    before = [
        node("1", None, "user", "go"),
        node("2", "1", "assistant", call),
        queued("enqueue", content="wish"),
        queued("enqueue", content="<task-notification>x</task-notification>"),
    ]
    new = [
        *before,
        node("3", "2", "user", result),
        attachment,
        queued("remove"),
        said("6", "5", "x"),
    ]
    old = [*before, queued("remove"), node("3", "2", "user", result), said("6", "3", "x")]
    for records in (new, old, [*old[:-1], queued("remove"), old[-1]]):
        assert [each["content"] for each in converted(ClaudeCode(), records)] == [
            "go", [], "ok", "wish", "x",
        ]  # fmt: skip
    # A prompt that got its turn has a record of its own.
    turn = [
        node("1", None, "user", "go"), queued("enqueue", content="next"), said("2", "1", "x"),
        queued("dequeue"), node("3", "2", "user", "next"),
    ]  # fmt: skip
    assert [each["content"] for each in converted(ClaudeCode(), turn)] == ["go", "x", "next"]


def test_a_failed_tool_and_the_images_of_tools_are_kept() -> None:
    def result(content: object, **fields: Any) -> list[dict[str, Any]]:
        return [{"type": "tool_result", "tool_use_id": "t", "content": content, **fields}]

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    shown = {"type": "image", "file": {"base64": "QUJD", "type": "image/png"}}
    records = [
        node("1", None, "user", result("no such file", is_error=True)),
        node("2", "1", "user", result([{"type": "image", "source": source}])),
        node(
            "3", "2", "user", result([{"type": "image", "data": "QUJD", "mimeType": "image/png"}])
        ),
        node("4", "3", "user", result([]), toolUseResult=shown),
    ]
    failed, *rest = converted(ClaudeCode(), records)
    assert failed == {
        "role": "tool", "content": "no such file", "tool_call_id": "t", "is_error": True,
    }  # fmt: skip
    assert [each["content"] for each in rest] == [[image]] * 3
    made = item({"type": "image_generation_call", "id": "i", "result": "QUJD"})
    assert converted(Codex(), [made]) == [{"role": "assistant", "content": [image]}]


def test_notes_that_the_model_gets_are_messages_and_what_is_only_shown_is_none() -> None:
    records = [
        node("1", None, "user", "go"),
        {**said("2", "1", "API Error: 400"), "isApiErrorMessage": True},
        node("3", "2", "user", "what follows was a command of the user", isMeta=True),
        node("4", "3", "user", "only shown", isVirtual=True),
        node("5", "4", "user", "on"),
        said("6", "5", "x"),
    ]
    assert [each["content"] for each in converted(ClaudeCode(), records)] == [
        "go", "what follows was a command of the user", "on", "x",
    ]  # fmt: skip
    assert title_of(ClaudeCode(), records[2:]) == "on"


def test_many_branches_are_counted_and_not_written() -> None:
    records = [node("0", None, "user", "root")]
    records += [said(f"a{at}", f"a{at - 1}" if at else "0", "on") for at in range(200)]
    records += [node(f"b{at}", "a199", "user", "edited") for at in range(1000)]
    histories = scanned(found := ClaudeCode(), records)
    assert histories[-1].end == "live"
    assert len(histories) - 1 + found.unread == 999
    assert sum(len(each.places) for each in histories[:-1]) <= 10_000


def test_records_of_a_subagent_are_no_part_of_its_parent() -> None:
    records = [node("1", None, "user", "main"), node("2", None, "user", "sub", isSidechain=True)]
    assert [each["content"] for each in converted(ClaudeCode(), records)] == ["main"]
    alone = converted(ClaudeCode(), records[1:])
    assert [each["content"] for each in alone] == ["sub"]


def test_a_title_of_the_user_comes_before_one_of_the_program() -> None:
    records = [
        {"type": "custom-title", "customTitle": "Mine", "sessionId": "s-1"},
        {"type": "summary", "summary": "Theirs", "leafUuid": "1"},
        node("1", None, "user", "first prompt"),
    ]
    assert title_of(ClaudeCode(), records) == "Mine"
    assert title_of(ClaudeCode(), records[1:]) == "Theirs"
    records[1]["leafUuid"] = "of another file"
    assert title_of(ClaudeCode(), records[1:]) == "first prompt"


COMMAND = "<command-name>/{}</command-name> <command-args>{}</command-args>"


@pytest.mark.parametrize(
    ("prompts", "title"),
    [
        (["Implement the following plan:\n\n# Mend the till\n1. Look", "Hurry"], "Hurry"),
        (["Implement the following plan:\n\n# Mend the till\n1. Look"], "Mend the till"),
        ([COMMAND.format("clear", ""), "Mend it"], "Mend it"),
        ([COMMAND.format("review", "the till")], "/review the till"),
        (["<system-reminder>\nx\n</system-reminder>\n\nMend  it\nplease"], "Mend it"),
        (["Caveat: The messages below were generated by the user while running local commands. x",
          "<local-command-stdout></local-command-stdout>", "Mend it"], "Mend it"),
        (["# Context from my IDE setup:\n\n## My request for Codex:\nMend it"], "Mend it"),
        (["<b>Mend</b> it"], "<b>Mend</b> it"),
        (["<p> is a tag without an end"], "<p> is a tag without an end"),
        (["m" * 200], "m" * 79 + "…"),
        (["<environment_context>x</environment_context>"], None),
    ],
)  # fmt: skip
def test_a_title_is_what_a_person_typed_first(prompts: list[str], title: str | None) -> None:
    parents = [None, *map(str, range(len(prompts)))]
    nodes = [node(str(at), parents[at], "user", text) for at, text in enumerate(prompts)]
    assert title_of(ClaudeCode(), nodes) == title
    if not any("<command-name>" in text for text in prompts):
        assert title_of(Codex(), [user_item(text) for text in prompts]) == title


def user_item(text: str) -> dict[str, Any]:
    return item({
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
    })  # fmt: skip


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return item({"type": kind, **fields}, "event_msg")


def answer_item(text: str) -> dict[str, Any]:
    return item({
        "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}],
    })  # fmt: skip


ENVIRONMENT = "<environment_context>x</environment_context>"


def test_a_withdrawn_turn_leaves_the_live_history() -> None:
    records = [
        user_item(ENVIRONMENT), user_item("one"), answer_item("first"),
        user_item(ENVIRONMENT), user_item("two"), answer_item("second"),
        event("thread_rolled_back", num_turns=1), user_item("better"),
    ]  # fmt: skip
    assert contents(Codex(), records) == [
        ("roll-back", [ENVIRONMENT, "one", "first", ENVIRONMENT, "two", "second"]),
        ("live", [ENVIRONMENT, "one", "first", "better"]),
    ]
    everything = [*records[:-2], event("thread_rolled_back", num_turns=99)]
    assert contents(Codex(), everything)[-1] == ("live", [ENVIRONMENT])
    nothing = [*records[:-2], event("thread_rolled_back", num_turns=0)]
    assert len(scanned(Codex(), nothing)) == 1


def test_a_rollout_has_one_system_prompt_and_the_name_of_its_thread() -> None:
    records = [
        item({"id": "fork", "instructions": "Be brief."}, "session_meta"),
        item({"id": "origin", "instructions": "Be long."}, "session_meta"),
        user_item("hello"),
        event("thread_name_updated", thread_name="Mend the till"),
    ]
    found = Codex()
    assert [each["content"] for each in converted(found, records)] == ["Be brief.", "hello"]
    assert (found.session, found.own_title) == ("fork", "Mend the till")


def test_a_compacted_rollout_begins_with_what_replaced_its_history() -> None:
    before = [item({"id": "c", "instructions": "Be brief."}, "session_meta"),
              user_item(ENVIRONMENT), user_item("one"), answer_item("first")]  # fmt: skip
    whole = item({"message": "", "replacement_history": [user_item("sum")["payload"]]}, "compacted")
    past = ("compaction", ["Be brief.", ENVIRONMENT, "one", "first"])
    assert contents(Codex(), [*before, whole, user_item("two")]) == [
        past, ("live", ["Be brief.", "sum", "two"]),
    ]  # fmt: skip
    # Older versions repeat the prompts and add a summary.
    old = item({"message": "sum"}, "compacted")
    assert contents(Codex(), [*before, old, user_item("two")]) == [
        past, ("live", ["Be brief.", "one", "sum", "two"]),
    ]  # fmt: skip


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
    assert (found.session, found.work_dir) == ("c-1", "/srv/shop")


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
    snapshot = {"type": "file-history-snapshot", "messageId": "1", "snapshot": {}}
    assert detect([*[snapshot] * 500, node("1", None, "user", "x")]) is ClaudeCode
    assert detect([item({"id": "c"}, "session_meta")]) is Codex
    assert detect([{"role": "user", "content": "x"}, {"role": "_usage", "token_count": 1}]) is None
    assert detect([{"timestamp": 1.0, "message": {"type": "TurnBegin", "payload": {}}}]) is None


@pytest.mark.parametrize(
    ("record", "guess"),
    [
        ({"uuid": "1", "type": "user",
          "message": {"role": "user", "parts": [{"text": "x"}]}}, "Qwen Code in another form"),
        ({"type": "message", "sessionId": "s", "role": "user", "content": "x"}, "CodeBuddy"),
        ({"projectHash": "h", "startTime": "t"}, "Gemini CLI in another form"),
        ({"type": "context.append_message", "message": {}}, "Kimi Code in another form"),
        ({"type": "session", "version": 3, "cwd": "/srv"}, "pi in another form"),
        ({"type": "session.start", "data": {"id": "s"}}, "GitHub Copilot CLI in another form"),
        ({"type": "text", "sessionID": "ses_1", "part": {}}, "opencode in another form"),
        ({"uuid": "1", "parentUuid": None, "sessionId": "s", "type": "user",
          "message": {"role": "user", "content": [{"text": "x"}]}}, "Claude Code in another form"),
        ({"note": 1}, None),
    ],
)  # fmt: skip
def test_what_no_reader_understands_gets_a_guess(record: dict[str, Any], guess: str | None) -> None:
    detector = Detector()
    assert not detector.feed(record)
    assert (detector.finish(), detector.guess) == (None, guess)


FIELDS = [
    "type", "uuid", "parentUuid", "sessionId", "message", "content", "role", "payload", "summary",
    "logicalParentUuid", "leafUuid", "attachment", "operation", "thread_name", "num_turns",
    "replacement_history", "text", "info",
    "usage", "id", "input", "output", "source", "last_token_usage", "instructions",
    "parentId", "subtype", "systemPayload", "compressedHistory", "parts", "functionCall",
    "functionResponse", "response", "inlineData", "usageMetadata", "toolCalls", "result", "$set",
    "$rewindTo", "messages", "projectHash", "directories", "event", "origin", "kind", "count",
    "keptUserMessageCount", "compactedCount", "systemPrompt", "data", "toolRequests", "error",
    "eventIds", "upToEventId", "success", "summaryContent", "shellExecution",
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
    "session_meta", "reasoning", "attachment", "queue-operation", "system",
    "function_call", "function_call_output", "tool_result", "image", "gemini", "compaction",
    "branch_summary", "custom_message", "context.append_message", "context.append_loop_event",
    "context.apply_compaction", "context.undo", "context.clear", "profile.bind", "user.message",
    "assistant.message", "tool.execution_complete", "session.compaction_complete",
    "session.snapshot_rewind", "step.begin", "content.part", "tool.call", "step.end",
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
