"""The reader of a program reads the conversation that its writer was given."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from steno_agents.claude_code import ClaudeCode
from steno_agents.codex import Codex
from steno_agents.detection import FORMATS
from steno_agents.kimi_code import KimiCode
from steno_agents.opencode import Opencode
from steno_agents.pi import Pi
from steno_agents.qwen_code import QwenCode
from steno_agents.transcript import ForeignTranscript, Message
from steno_agents.writers.programs import WRITERS
from steno_agents.writers.turns import (
    INTERRUPTED,
    Answer,
    Call,
    Conversation,
    Picture,
    Prompt,
    Result,
    Turn,
    conversation,
)
from steno_agents.writers.writer import Target, Writer, lines
from steno_cli.commands import export
from support.agent_files import detect
from support.opencode_database import imported_file

RECORDED = Path(__file__).parent / "recorded"
NOW_MS = 1_767_323_045_006
DOT = "data:image/png;base64,iVBORw0KGgo="
TARGET = Target(uuid.UUID(int=7), "/tmp/My shop", "The till", NOW_MS)

READERS: dict[str, type[ForeignTranscript]] = {
    "claude-code": ClaudeCode, "codex": Codex, "kimi-code": KimiCode, "opencode": Opencode,
    "pi": Pi, "qwen": QwenCode,
}  # fmt: skip


def call(identity: str, name: str, arguments: object) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": text}}


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


OWN: list[Message] = [
    {"role": "_system_prompt", "content": "be good"},
    {"role": "user", "content": "Mend the till", "timestamp": "2026-01-02T03:04:05Z"},
    {"role": "assistant", "content": [{"type": "think", "think": "Hm."},
                                      {"type": "text", "text": "I look twice."}],
     "tool_calls": [call("a", "Shell", {"command": "ls"}), call("b", "Shell", {})]},
    {"role": "_usage", "token_count": 7},
    {"role": "tool", "tool_call_id": "a", "content": "a.txt"},
    {"role": "tool", "tool_call_id": "b", "content": "no such command", "is_error": True},
    {"role": "assistant", "content": "It is mended. ☂"},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture(DOT)]},
    {"role": "assistant", "content": [], "tool_calls": [call("c", "Read", {"path": "a.png"})]},
    {"role": "tool", "tool_call_id": "c",
     "content": [{"type": "text", "text": "read"}, picture(DOT)]},
    {"role": "assistant", "content": [{"type": "text", "text": "A dot,"},
                                      {"type": "text", "text": "a red one."}]},
    {"role": "user", "content": "Thank you"},
]  # fmt: skip
"""A session of steno's own, with all that it may have."""


def read(reader: type[ForeignTranscript], records: Sequence[dict[str, Any]]) -> list[Message]:
    """The live conversation of a transcript."""
    transcript = reader()
    for place, record in enumerate(records):
        transcript.scan(place, record)
    converter = transcript.converter()
    live = transcript.histories()[-1]
    found = [each for at in live.places for each in converter.messages(at, records[at])]
    return [*found, *converter.finish()]


def of_json(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


SOURCES: dict[str, list[Message]] = {
    "steno": OWN,
    **{
        path.stem: read(reader, of_json(path.read_bytes()))
        for path in sorted(RECORDED.glob("*.jsonl"))
        for reader in FORMATS
        if path.stem.removesuffix("-compacted") == reader.stream
    },
}


def turns_of(messages: Sequence[Message], *, takes_links: bool = True) -> Conversation:
    return conversation(messages, NOW_MS, takes_links=takes_links)


def records_of(name: str, turns: Sequence[Turn], target: Target = TARGET) -> list[dict[str, Any]]:
    """The records that the reader of a program gets from a written session."""
    files = WRITERS[name].files(turns, target)
    if name == "opencode":
        return imported_file(files[""])
    return of_json(files["agents/main/wire.jsonl" if name == "kimi-code" else ""])


def plain(turns: Sequence[Turn], name: str) -> list[object]:
    """Turns without times; Codex has no mark for a failed tool."""
    found: list[object] = []
    for turn in turns:
        timeless = turn._replace(at_ms=0)
        if isinstance(timeless, Result) and name == "codex":
            timeless = timeless._replace(failed=False)
        found.append(timeless)
    return found


each_writer = pytest.mark.parametrize("name", WRITERS)


def test_the_command_offers_the_formats_of_the_table() -> None:
    assert set(export.PROGRAMS) == set(WRITERS) == set(READERS)


def test_there_are_sources_of_all_kinds() -> None:
    assert SOURCES.keys() >= {"steno", "opencode", "pi", "kimi-code-compacted"}
    kinds = {type(turn) for each in SOURCES.values() for turn in turns_of(each).turns}
    assert kinds == {Prompt, Answer, Result}


@each_writer
@pytest.mark.parametrize("source", SOURCES)
def test_texts_calls_and_results_come_back_through_the_reader(source: str, name: str) -> None:
    given = turns_of(SOURCES[source], takes_links=WRITERS[name].takes_links)
    records = records_of(name, given.turns)
    assert detect(records) is READERS[name]
    back = turns_of(read(READERS[name], records))
    assert plain(back.turns, name) == plain(given.turns, name)
    # Nothing more is lost on a second way.
    assert (back.left_out, back.interrupted, back.renamed) == ({}, 0, 0)


@each_writer
@pytest.mark.parametrize("through", WRITERS)
def test_a_conversation_survives_two_programs(through: str, name: str) -> None:
    given = turns_of(OWN).turns
    first = turns_of(read(READERS[through], records_of(through, given))).turns
    back = turns_of(read(READERS[name], records_of(name, first))).turns
    lossy = "codex" if "codex" in {through, name} else name
    assert plain(back, lossy) == plain(given, lossy)


@each_writer
def test_a_session_has_its_id_directory_and_title(name: str) -> None:
    transcript = READERS[name]()
    for place, record in enumerate(records_of(name, turns_of(OWN).turns)):
        transcript.scan(place, record)
    if name in {"claude-code", "codex", "pi", "qwen"}:
        assert transcript.session == str(TARGET.session)
    if name != "kimi-code":
        assert transcript.work_dir == TARGET.work_dir
    if name not in {"codex", "kimi-code"}:
        assert transcript.own_title == "The till"
    assert transcript.odd == 0


def test_kimi_code_has_directory_and_title_in_its_state() -> None:
    files = WRITERS["kimi-code"].files(turns_of(OWN).turns, TARGET)
    assert list(files) == ["agents/main/wire.jsonl", "state.json"]
    state = json.loads(files["state.json"])
    assert (state["cwd"], state["title"]) == ("/tmp/My shop", "The till")
    assert KimiCode.title_in(files["state.json"].decode()) == "The till"


@each_writer
def test_a_session_without_a_title_has_none(name: str) -> None:
    target = TARGET._replace(title=None)
    transcript = READERS[name]()
    for place, record in enumerate(records_of(name, turns_of(OWN).turns, target)):
        transcript.scan(place, record)
    assert transcript.own_title in {None, "A session of steno"}


@pytest.mark.parametrize(
    ("name", "place", "command"),
    [
        ("claude-code", "projects/-tmp-My-shop/{id}.jsonl", ["claude", "--resume", "{id}"]),
        ("codex", "sessions/2026/01/02/rollout-2026-01-02T03-04-05-{id}.jsonl",
         ["codex", "resume", "{id}"]),
        ("kimi-code", "sessions/wd_my-shop_a2c30ab4b1ad/session_{id}",
         ["kimi", "-r", "session_{id}"]),
        ("pi", "sessions/--tmp-My shop--/2026-01-02T03-04-05-006Z_{id}.jsonl",
         ["pi", "--session", "{id}"]),
        ("qwen", "projects/-tmp-My-shop/chats/{id}.jsonl", ["qwen", "--resume", "{id}"]),
    ],
)  # fmt: skip
def test_a_session_lies_where_its_program_looks(name: str, place: str, command: list[str]) -> None:
    identity = str(TARGET.session)
    writer: Writer = WRITERS[name]
    assert writer.place(TARGET) == place.replace("{id}", identity)
    expected = [each.replace("{id}", identity) for each in command]
    assert writer.command(TARGET, "/f") == [expected]


def test_opencode_imports_its_file_and_then_resumes_the_session() -> None:
    writer = WRITERS["opencode"]
    session = json.loads(writer.files([], TARGET)[""])["info"]["id"]
    assert writer.place(TARGET) == f"opencode/steno/{session}.json"
    assert writer.command(TARGET, "/f") == [
        ["opencode", "import", "/f"], ["opencode", "--session", session],
    ]  # fmt: skip


def test_claude_code_cuts_the_name_of_a_long_directory() -> None:
    # The name that Claude Code 2.1.332 gave the folder of this directory.
    long = f"/tmp/{'long' * 30}/{'deep' * 30}"
    place = WRITERS["claude-code"].place(TARGET._replace(work_dir=long))
    assert place.split("/")[1].endswith("deepdeepde-97f8ug")


@each_writer
def test_times_rise_from_record_to_record(name: str) -> None:
    turns = turns_of(OWN).turns
    assert [each.at_ms for each in turns] == sorted({each.at_ms for each in turns})
    records = records_of(name, turns)
    stamps = [str(each["timestamp"]) for each in records if "timestamp" in each]
    if name == "opencode":
        ids = [each["id"] for each in records if each["table"] == "part"]
        assert ids == sorted(ids)
        stamps = [each["id"] for each in records if each["table"] == "message"]
    assert stamps == sorted(stamps)


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    found = turns_of([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call("a", "Shell", {}),
                                                            call("b", "Shell", {})]},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "b", "content": "late"},
    ])  # fmt: skip
    assert found.interrupted == 1
    _, answer, late, synthetic, prompt = found.turns
    assert isinstance(answer, Answer)
    assert isinstance(late, Result)
    assert isinstance(synthetic, Result)
    assert (late.call.identity, late.pieces) == ("b", ("late",))
    assert (synthetic.call.identity, synthetic.pieces) == ("a", (INTERRUPTED,))
    assert synthetic.failed
    assert isinstance(prompt, Prompt)


def test_what_no_service_takes_is_left_out_and_counted() -> None:
    found = turns_of([
        {"role": "_system_prompt", "content": "be good"},
        {"role": "system", "content": "a note"},
        {"role": "developer", "content": "a note"},
        {"role": "user", "content": [picture("https://a.example/b.png"), picture("file:///x"),
                                     {"type": "audio_url", "audio_url": {}}, {"type": "text",
                                                                              "text": ""}]},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "think", "think": "Hm."}]},
        {"role": "assistant", "content": [picture(DOT), {"type": "text", "text": "hi"}]},
        {"role": "tool", "tool_call_id": "lost", "content": "x"},
        {"role": "poet", "content": "x"},
    ], takes_links=False)  # fmt: skip
    assert found.left_out == {
        "system message": 3, "linked image": 2, "unknown part": 1, "thought": 1,
        "image in an answer": 1, "result without its call": 1, "unknown message": 1,
    }  # fmt: skip
    assert [type(each) for each in found.turns] == [Prompt, Answer]


def test_a_program_that_takes_links_gets_an_image_by_its_address() -> None:
    link = "https://a.example/b.png"
    given = turns_of([{"role": "user", "content": [picture(link)]}])
    assert given.turns[0].pieces == (Picture("", "", link),)  # type: ignore[union-attr]
    for name in ("claude-code", "codex", "kimi-code", "qwen"):
        back = turns_of(read(READERS[name], records_of(name, given.turns)))
        assert plain(back.turns, name) == plain(given.turns, name)


def test_ids_and_names_are_such_that_every_service_takes_them() -> None:
    found = turns_of([
        {"role": "assistant", "content": "", "tool_calls": [
            call("a", "mcp.read it", "plain"), call("a b", "Shell", "[1]"), call("a", "Shell", ""),
        ]},
        {"role": "tool", "tool_call_id": "a b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "three"},
        {"role": "assistant", "content": "", "tool_calls": [call("a", "x" * 100, {})]},
        {"role": "tool", "tool_call_id": "a", "content": "four"},
    ])  # fmt: skip
    calls = [each for turn in found.turns if isinstance(turn, Answer) for each in turn.calls]
    assert calls == [
        Call("a", "mcp_read_it", {"input": "plain"}), Call("call_2", "Shell", {"input": [1]}),
        Call("call_3", "Shell", {}), Call("call_4", "x" * 64, {}),
    ]  # fmt: skip
    assert found.renamed == 2
    results = {each.call.identity: each.pieces for each in found.turns if isinstance(each, Result)}
    assert results == {
        "call_2": ("two",), "call_3": ("three",), "a": (INTERRUPTED,), "call_4": ("four",),
    }  # fmt: skip


def test_half_an_emoji_is_written_as_a_sign_that_is_valid() -> None:
    assert lines([{"a": "\ud83d"}]) == b'{"a":"?"}\n'
