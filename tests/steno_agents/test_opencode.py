"""The rows of opencode become the messages that it sends."""

from collections.abc import Sequence
from typing import Any

from steno_agents.opencode import Opencode
from steno_agents.transcript import text_of

Record = dict[str, Any]


def session(**fields: Any) -> Record:
    return {"table": "session", "id": "ses_1", "parents": [], "directory": "/srv/shop",
            "title": "New session - 2026-01-02", "revert": None, **fields}  # fmt: skip


def message(identity: str, role: str, *parts: Record, **data: Any) -> list[Record]:
    """A message with its parts, whose ids are made of its own."""
    rows: list[Record] = [
        {"table": "message", "id": identity, "session_id": "ses_1",
         "data": {"role": role, "time": {"created": 1_767_323_045_000}, **data}},
    ]  # fmt: skip
    return rows + [
        {"table": "part", "id": f"{identity}-{at}", "message_id": identity, "data": part}
        for at, part in enumerate(parts)
    ]


def text(said: str, **fields: Any) -> Record:
    return {"type": "text", "text": said, **fields}


def tool(**state: Any) -> Record:
    return {"type": "tool", "tool": "bash", "callID": "c", "state": {"input": {"a": 1}, **state}}


def histories(*groups: Record | Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The messages of each history, without token counts and times."""
    rows = [each for group in groups for each in ([group] if isinstance(group, dict) else group)]
    transcript = Opencode()
    for place, row in enumerate(rows):
        transcript.scan(place, row)
    found: list[tuple[str, list[Record]]] = []
    for history in transcript.histories():
        converter = transcript.converter()
        told = [each for at in history.places for each in converter.messages(at, rows[at])]
        told += converter.finish()
        plain = [{name: each[name] for name in each if name != "timestamp"} for each in told]
        found.append((history.end, [each for each in plain if each["role"] != "_usage"]))
    return found


def said(*groups: Record | Sequence[Record]) -> list[tuple[str, list[str]]]:
    return [
        (end, [text_of(each["content"]) for each in messages])
        for end, messages in histories(*groups)
    ]


def answered(*parts: Record, **data: Any) -> list[Record]:
    """The messages of one answer."""
    [(_, messages)] = histories(session(), message("2", "assistant", *parts, **data))
    return messages


def test_a_compaction_begins_with_the_summary_and_the_messages_that_it_kept() -> None:
    compaction = {"type": "compaction", "auto": True, "tail_start_id": "3"}
    rows = [
        session(),
        message("1", "user", text("one")), message("2", "assistant", text("first")),
        message("3", "user", text("two")), message("4", "assistant", text("second")),
        message("5", "user", compaction),
        message("6", "assistant", text("in short"), summary=True, finish="stop", parentID="5"),
        message("7", "user", text("three")),
    ]  # fmt: skip
    asked = "What did we do so far?"
    assert said(*rows) == [
        ("compaction", ["one", "first", "two", "second"]),
        ("live", [asked, "in short", "two", "second", "three"]),
    ]
    del compaction["tail_start_id"]
    assert said(*rows)[-1] == ("live", [asked, "in short", "three"])


def test_a_summary_that_failed_replaces_nothing() -> None:
    rows = [
        session(),
        message("1", "user", text("one")),
        message("2", "user", {"type": "compaction"}),
        message("3", "assistant", summary=True, parentID="2", error={"name": "x"}),
    ]
    assert said(*rows) == [("live", ["one", "What did we do so far?"])]


def test_what_a_user_withdraws_is_a_past_generation() -> None:
    rows = [message("1", "user", text("one")), message("2", "assistant", text("a"), text("b"))]
    assert said(session(revert={"messageID": "2"}), *rows) == [
        ("roll-back", ["one", "a\nb"]), ("live", ["one"]),
    ]  # fmt: skip
    assert said(session(revert={"messageID": "2", "partID": "2-1"}), *rows) == [
        ("roll-back", ["one", "a\nb"]), ("live", ["one", "a"]),
    ]  # fmt: skip


def test_a_call_gets_the_result_that_opencode_sends() -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA=="}
    results = {
        "out": tool(status="completed", output="out"),
        "[Old tool result content cleared]":
            tool(status="completed", output="out", time={"compacted": 5}),
        "no": tool(status="error", error="no"),
        "half": tool(status="error", error="no", metadata={"interrupted": True, "output": "half"}),
        "[Tool execution was interrupted]": tool(status="running"),
    }  # fmt: skip
    for expected, part in results.items():
        call, result = answered(part)
        assert call["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"a": 1}'}
        assert (result["tool_call_id"], result["content"]) == ("c", expected)
        assert result.get("is_error", False) == (part["state"]["status"] != "completed")
    _, result = answered(tool(status="completed", output="seen", attachments=[image]))
    assert [each["type"] for each in result["content"]] == ["text", "image_url"]


def test_each_step_of_an_answer_is_a_message() -> None:
    step, done = {"type": "step-start"}, tool(status="completed", output="out")
    messages = answered(step, text("look"), done, step, {"type": "reasoning", "text": "hm"})
    assert [each["role"] for each in messages] == ["assistant", "tool", "assistant"]
    assert messages[2]["content"] == [{"type": "think", "think": "hm"}]


def test_an_answer_with_an_error_is_not_sent_unless_the_user_ended_it() -> None:
    assert answered(text("half"), error={"name": "APIError"}) == []
    assert len(answered(text("half"), error={"name": "MessageAbortedError"})) == 1
    assert answered({"type": "step-start"}, error={"name": "MessageAbortedError"}) == []


def test_a_prompt_has_its_images_and_the_texts_of_its_files() -> None:
    parts = [
        text("Called the Read tool", synthetic=True), text("unseen", ignored=True),
        {"type": "file", "mime": "text/plain", "url": "file:///srv/a.txt"},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA=="},
        {"type": "subtask", "prompt": "x"}, text("What is it?"),
    ]  # fmt: skip
    rows = [session(), *message("1", "user", *parts)]
    [(_, [prompt])] = histories(*rows)
    assert [each.get("text", each["type"]) for each in prompt["content"]] == [
        "Called the Read tool", "image_url", "The following tool was executed by the user",
        "What is it?",
    ]  # fmt: skip
    transcript = Opencode()
    for place, row in enumerate(rows):
        transcript.scan(place, row)
    # What opencode writes into a prompt is no title.
    assert transcript.title(transcript.histories()) == "What is it?"


def test_a_subagent_is_named_below_its_session() -> None:
    transcript = Opencode()
    transcript.scan(0, session(id="ses_2", parents=["ses_1"]))
    assert transcript.session == "ses_1/subagents/ses_2"


def test_a_part_without_its_message_is_passed_over() -> None:
    rows = [session(), *message("1", "user", text("one"))]
    stray = {"table": "part", "id": "x", "message_id": "gone", "data": text("lost")}
    assert said(*rows, stray) == [("live", ["one"])]
