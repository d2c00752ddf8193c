"""Sessions that the programs wrote, shortened, become the messages that they sent."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from steno_agents.copilot_cli import CopilotCli
from steno_agents.detection import FORMATS, Detector
from steno_agents.gemini_cli import GeminiCli
from steno_agents.kimi_code import KimiCode
from steno_agents.opencode import Opencode
from steno_agents.pi import Pi
from steno_agents.qwen_code import QwenCode
from steno_agents.transcript import ForeignTranscript, Message, text_of
from support.agent_files import detect

RECORDED = Path(__file__).parent / "recorded"
"""One session each: a greeting, a call, two calls at once, and a call that fails."""

Records = list[dict[str, Any]]


class Program(NamedTuple):
    """A program, and the records of it that its recorded session does not have.

    Attributes:
        reader: the reader.
        titled: records that name a session.
        title_file: the content of the file with the title, if the records have none.
    """

    reader: type[ForeignTranscript]
    titled: Sequence[dict[str, Any]] = ()
    title_file: str | None = None


PROGRAMS = [
    Program(QwenCode, [
        {"type": "system", "subtype": "custom_title", "uuid": "t", "parentUuid": None,
         "sessionId": "s", "systemPayload": {"customTitle": "The shop"}},
    ]),
    Program(GeminiCli, [{"$set": {"summary": "The shop"}}]),
    Program(Pi, [{"type": "session_info", "id": "t", "parentId": "x", "name": "The shop"}]),
    Program(KimiCode, title_file='{"title": "The shop", "isCustomTitle": true}'),
    Program(Opencode, [
        {"table": "session", "id": "s", "parents": [], "directory": "/srv/shop",
         "title": "The shop", "revert": None},
    ]),
    Program(CopilotCli, title_file="id: 1\nname: The shop\nuser_named: true\n"),
]  # fmt: skip

each_program = pytest.mark.parametrize(
    "program", PROGRAMS, ids=[each.reader.stream for each in PROGRAMS]
)


def recorded(name: str) -> Records:
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def histories(
    reader: type[ForeignTranscript], records: Sequence[dict[str, Any]]
) -> list[tuple[str, list[Message]]]:
    """The messages of each history, without notes of the program."""
    transcript = reader()
    for place, record in enumerate(records):
        transcript.scan(place, record)
    found: list[tuple[str, list[Message]]] = []
    for history in transcript.histories():
        converter = transcript.converter()
        messages = [
            each for at in history.places for each in converter.messages(at, records[at])
        ] + list(converter.finish())
        found.append((history.end, [each for each in messages if not is_note(each)]))
    return found


def live(reader: type[ForeignTranscript], records: Sequence[dict[str, Any]]) -> list[Message]:
    end, messages = histories(reader, records)[-1]
    assert end == "live"
    return messages


def is_note(message: Message) -> bool:
    is_control = message["role"].startswith("_")
    return is_control or text_of(message["content"]).startswith("<system-reminder>")


def texts(messages: Sequence[Message]) -> list[str]:
    """The role and the last words of each message."""
    return [f"{each['role']}: {text_of(each['content']).split(chr(10))[-1]}" for each in messages]


def after(messages: Sequence[Message], prompt: str) -> list[Message]:
    """The messages between a prompt and the next one."""
    begin = next(
        at for at, each in enumerate(messages) if text_of(each["content"]).endswith(prompt)
    )
    rest = messages[begin + 1 :]
    end = next((at for at, each in enumerate(rest) if each["role"] == "user"), len(rest))
    return list(rest[:end])


def calls_of(message: Message) -> list[tuple[str, str]]:
    """The id and the command of each call of an answer."""
    return [
        (call["id"], json.loads(call["function"]["arguments"])["command"])
        for call in message.get("tool_calls", ())
    ]


def results_of(messages: Sequence[Message]) -> dict[str, str]:
    return {each["tool_call_id"]: text_of(each["content"]) for each in messages
            if each["role"] == "tool"}  # fmt: skip


@each_program
def test_a_session_is_recognised_and_named(program: Program) -> None:
    records = recorded(program.reader.stream)
    assert detect(records) is program.reader
    transcript = program.reader()
    for place, record in enumerate(records):
        transcript.scan(place, record)
    assert transcript.odd == 0
    assert transcript.title(transcript.histories()) == "Hello there"
    if program.reader is not KimiCode:
        assert transcript.session is not None
    if program.reader is not GeminiCli:
        assert transcript.work_dir == "/srv/shop"


@each_program
def test_plain_turns_are_the_prompt_and_the_answer(program: Program) -> None:
    messages = live(program.reader, recorded(program.reader.stream))
    assert texts(messages)[:2] == ["user: Hello there", "assistant: Hello."]
    assert [each["role"] for each in messages].count("user") == 4


@each_program
def test_a_call_has_its_result(program: Program) -> None:
    messages = live(program.reader, recorded(program.reader.stream))
    call, result, said = after(messages, "List the folder")
    assert text_of(call["content"]) == "I will look."
    [(identity, command)] = calls_of(call)
    assert command == "ls"
    assert result["tool_call_id"] == identity
    assert "a.txt" in text_of(result["content"])
    assert "is_error" not in result
    assert texts([said]) == ["assistant: The folder is listed."]


@each_program
def test_calls_at_once_are_one_message_with_all_results(program: Program) -> None:
    messages = live(program.reader, recorded(program.reader.stream))
    calls, *results, said = after(messages, "List it twice")
    commands = dict(calls_of(calls))
    assert list(commands.values()) == ["ls", "ls -a"]
    found = results_of(results)
    assert list(found) == list(commands)
    assert all((".." in found[each]) == (commands[each] == "ls -a") for each in commands)
    assert texts([said]) == ["assistant: The folder is listed."]


@each_program
def test_a_failed_tool_is_marked(program: Program) -> None:
    records = recorded(program.reader.stream)
    if program.reader is GeminiCli:
        # A command with an error code is no failure for Gemini CLI; an unknown tool is.
        records = [as_failed(each) for each in records]
    messages = live(program.reader, records)
    failed = [each for each in messages if each.get("is_error")]
    assert failed == [after(messages, "List what is missing")[1]]
    assert "cannot access" in text_of(failed[0]["content"])


def as_failed(record: dict[str, Any]) -> dict[str, Any]:
    for call in record.get("toolCalls", ()):
        if "missing" in call["args"]["command"]:
            response = call["result"][0]["functionResponse"]["response"]
            response["error"] = response.pop("output")
            call["status"] = "error"
    return record


@each_program
def test_a_lost_record_costs_only_itself(program: Program) -> None:
    records = recorded(program.reader.stream)
    prompt = next(at for at, each in enumerate(records) if "List the folder" in json.dumps(each)
                  and each.get("type") != "turn.prompt")  # fmt: skip
    rest = records[:prompt] + records[prompt + 1 :]
    # The next snapshot of Gemini CLI repeats what was lost.
    lost = [] if program.reader is GeminiCli else ["user: List the folder"]
    whole = texts(live(program.reader, records))
    assert texts(live(program.reader, rest)) == [each for each in whole if each not in lost]


@each_program
def test_a_title_that_was_given_is_the_title(program: Program) -> None:
    records = [*recorded(program.reader.stream), *program.titled]
    transcript = program.reader()
    for place, record in enumerate(records):
        transcript.scan(place, record)
    if program.title_file is None:
        assert transcript.title(transcript.histories()) == "The shop"
    else:
        assert transcript.title_in(program.title_file) == "The shop"
        assert transcript.title_in("") is None


def test_every_program_has_a_session_in_the_table() -> None:
    tested = {each.reader.stream for each in PROGRAMS} | {"claude-code", "codex"}
    assert {each.stream for each in FORMATS} == tested


@pytest.mark.parametrize("name", sorted(each.stem for each in RECORDED.iterdir()))
def test_no_other_reader_takes_a_record_of_a_program(name: str) -> None:
    own = detect(recorded(name))
    for record in recorded(name):
        detector = Detector()
        detector.feed(record)
        assert detector.format in {None, own}


def qwen(uuid: str, parent: str | None, text: str, **fields: Any) -> dict[str, Any]:
    content = {"role": "user", "parts": [{"text": text}]}
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": "user",
            "message": content, **fields}  # fmt: skip


def test_a_prompt_that_qwen_code_returned_from_is_another_branch() -> None:
    found = histories(QwenCode, [
        qwen("1", None, "first"),
        qwen("2", "1", "withdrawn"),
        qwen("3", "1", "", type="system", subtype="rewind", message=None, systemPayload={}),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("branch", ["user: first", "user: withdrawn"]),
        ("live", ["user: first"]),
    ]


def test_a_compression_of_qwen_code_replaces_what_was_before() -> None:
    kept = [{"role": "user", "parts": [{"text": "summary"}]},
            {"role": "model", "parts": [{"text": "Understood.", "thought": False}]}]  # fmt: skip
    found = histories(QwenCode, [
        qwen("1", None, "first"),
        qwen("2", "1", "", type="system", subtype="chat_compression", message=None,
             systemPayload={"compressedHistory": kept}),
        qwen("3", "2", "second"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("compaction", ["user: first"]),
        ("live", ["user: summary", "assistant: Understood.", "user: second"]),
    ]


def test_a_thought_of_the_model_is_no_text() -> None:
    parts = [{"text": "I think.", "thought": True}, {"text": "I say."}]
    [message] = live(QwenCode, [
        qwen("1", None, "", type="assistant", message={"role": "model", "parts": parts})
    ])  # fmt: skip
    assert message["content"] == [
        {"type": "think", "think": "I think."},
        {"type": "text", "text": "I say."},
    ]


def pi(identity: str, parent: str | None, text: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "message", "id": identity, "parentId": parent, "message": message, **fields}


def test_a_compaction_of_pi_keeps_the_last_messages_behind_its_summary() -> None:
    found = histories(Pi, [
        pi("1", None, "old"),
        pi("2", "1", "kept"),
        {"type": "compaction", "id": "3", "parentId": "2", "summary": "sum",
         "firstKeptEntryId": "2"},
        pi("4", "3", "new"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("compaction", ["user: old", "user: kept"]),
        ("live", ["user: </summary>", "user: kept", "user: new"]),
    ]
    summary = text_of(found[-1][1][0]["content"])
    assert summary.startswith("The conversation history before this point was compacted")
    assert "<summary>\nsum\n</summary>" in summary


def test_a_branch_of_pi_that_was_left_is_kept_and_its_summary_is_live() -> None:
    found = histories(Pi, [
        pi("1", None, "first"),
        pi("2", "1", "left"),
        {"type": "branch_summary", "id": "3", "parentId": "1", "summary": "seen", "fromId": "2"},
        pi("4", "3", "other"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("branch", ["user: first", "user: left"]),
        ("live", ["user: first", "user: seen</summary>", "user: other"]),
    ]


def gemini(identity: str, text: str, kind: str = "user") -> dict[str, Any]:
    return {"id": identity, "timestamp": "t", "type": kind, "content": [{"text": text}]}


def test_a_message_of_gemini_cli_with_the_same_id_takes_the_place_of_the_first() -> None:
    messages = live(GeminiCli, [
        gemini("1", "ask"), gemini("2", "half", "gemini"), gemini("3", "more"),
        gemini("2", "whole", "gemini"),
    ])  # fmt: skip
    assert texts(messages) == ["user: ask", "assistant: whole", "user: more"]


def test_what_gemini_cli_removes_or_compresses_is_a_past_generation() -> None:
    found = histories(GeminiCli, [
        gemini("1", "first"), gemini("2", "withdrawn"),
        {"$rewindTo": "2"},
        gemini("3", "second"),
        {"$set": {"messages": [gemini("1", "first"), gemini("3", "second")]}},
        {"$set": {"messages": [gemini("4", "summary")]}},
        gemini("5", "/stats"), gemini("6", "third"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("roll-back", ["user: first", "user: withdrawn"]),
        ("compaction", ["user: first", "user: second"]),
        ("live", ["user: summary", "user: third"]),
    ]


def test_a_compaction_of_kimi_code_keeps_the_prompts_before_its_summary() -> None:
    found = histories(KimiCode, recorded("kimi-code-compacted"))
    assert [end for end, _ in found] == ["compaction", "compaction", "live"]
    assert [text_of(each["content"])[:21] for each in found[-1][1]] == [
        "Hello there", "Read the book", "Hello after", "The conversation so f",
        "<summary>the user ask",
    ]  # fmt: skip


def kimi(text: str, **origin: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}],
               "origin": origin or {"kind": "user"}}  # fmt: skip
    return {"type": "context.append_message", "message": message, "time": 1}


def test_what_kimi_code_withdraws_or_clears_is_a_past_generation() -> None:
    found = histories(KimiCode, [
        kimi("cleared"),
        {"type": "context.clear", "time": 1},
        kimi("first"), kimi("second"), kimi("note", kind="injection"),
        {"type": "context.undo", "count": 1, "time": 1},
        {"type": "context.undo", "count": 5, "time": 1},
        kimi("third"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("roll-back", ["user: cleared"]),
        ("roll-back", ["user: first", "user: second", "user: note"]),
        ("live", ["user: first", "user: third"]),
    ]


def step(kind: str, **event: Any) -> dict[str, Any]:
    return {"type": "context.append_loop_event", "event": {"type": kind, **event}, "time": 1}


def says(of_step: str, text: str) -> dict[str, Any]:
    return step("content.part", stepUuid=of_step, part={"type": "text", "text": text})


def test_of_two_writers_kimi_code_sends_the_step_that_began_last() -> None:
    found = live(KimiCode, [
        kimi("first"), step("step.begin", uuid="1"),
        kimi("second"), step("step.begin", uuid="2"), says("2", "two"), step("step.end", uuid="2"),
        says("1", "one"), step("tool.call", stepUuid="1", toolCallId="c", name="Bash", args={}),
        step("tool.result", toolCallId="c", result={"output": "lost"}), step("step.end", uuid="1"),
        kimi("third"), step("step.begin", uuid="3"), says("3", "three"),
        step("step.begin", uuid="4"), says("3", "late"), says("4", "four"),
    ])  # fmt: skip
    assert [each["content"] for each in found] == [
        "first", "second", "two", "third", "three", "four",
    ]  # fmt: skip


def test_results_of_kimi_code_have_the_order_of_their_calls() -> None:
    found = live(KimiCode, [
        kimi("first"), step("step.begin", uuid="1"),
        *(step("tool.call", stepUuid="1", toolCallId=each, name="Bash", args={}) for each in "ab"),
        *(step("tool.result", toolCallId=each, result={"output": each}) for each in "ba"),
        kimi("a note", kind="injection"), step("step.end", uuid="1"),
    ])  # fmt: skip
    assert [each["content"] for each in found] == ["first", [], "a", "b", "a note"]


def test_an_older_compaction_of_kimi_code_keeps_the_last_messages() -> None:
    found = live(KimiCode, [
        kimi("first"), kimi("second"), kimi("third"),
        {"type": "context.apply_compaction", "summary": "sum", "compactedCount": 2, "time": 1},
    ])  # fmt: skip
    assert texts(found) == ["user: sum", "user: third"]


def test_a_session_of_kimi_code_is_named_by_its_folder() -> None:
    parts = ("/", "sessions", "wd_shop", "session_1", "agents", "main", "wire.jsonl")
    assert KimiCode.path_segments(parts) == ("session_1",)
    assert KimiCode.path_segments((*parts[:-2], "a2", "wire.jsonl")) == (
        "session_1",
        "agents",
        "a2",
    )
    assert KimiCode.path_segments(("/", "wire.jsonl")) == ()


def copilot(identity: str, kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": identity, "parentId": None}


def test_what_copilot_removes_or_compacts_is_a_past_generation() -> None:
    found = histories(CopilotCli, [
        copilot("0", "system.message", role="system", content="Be brief."),
        copilot("1", "user.message", content="first"),
        copilot("2", "user.message", content="withdrawn"),
        copilot("3", "session.snapshot_rewind", upToEventId="2", eventsRemoved=1),
        copilot("4", "assistant.message", content="of a subagent", parentToolCallId="c"),
        copilot("5", "session.compaction_complete", success=False, error="no"),
        copilot("6", "session.compaction_complete", success=True, summaryContent="sum"),
        copilot("7", "user.message", content="second"),
    ])  # fmt: skip
    assert [(end, texts(messages)) for end, messages in found] == [
        ("roll-back", ["user: first", "user: withdrawn"]),
        ("compaction", ["user: first"]),
        ("live", ["user: sum", "user: second"]),
    ]
