"""Where a session comes from, as the records of each program say, and the line that resumes it."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.values import StreamRecord
from steno_agents.detection import FORMATS
from steno_agents.origin import Origin, format_named, origin_of, reader_among
from steno_agents.traces import time_of
from steno_protocol.positions import Position
from steno_redact.redactor import Redactor, mask_of
from support.agent_files import CLAUDE, CODEX, claude_file, codex_file

RECORDED = Path(__file__).with_name("recorded")
SECRET = "sk-proj-0123456789abcdefghij"


def read(file: Path) -> Iterator[StreamRecord]:
    for at, line in enumerate(file.read_bytes().splitlines()):
        yield StreamRecord(Position(0, at), json.loads(line), line, None, None)


def note(**fields: Any) -> list[StreamRecord]:
    return [StreamRecord(Position(0, 0), fields, b"", None, None)]


def origin(program: str, file: Path, path: str | None = None) -> Origin:
    kind = reader_among([program])
    assert kind is not None
    return origin_of(kind, note(path=path or str(file), identity="x"), read(file))


@pytest.mark.parametrize(
    ("program", "work_dir", "model", "resume"),
    [
        ("copilot-cli", "/srv/shop", "small-model", "copilot --resume"),
        ("kimi-code", "/srv/shop", "local", "kimi -r"),
        ("opencode", "/srv/shop", "small-model", "opencode --session"),
        ("pi", "/srv/shop", "small-model", "pi --session"),
        ("qwen-code", "/srv/shop", "small-model", "qwen --resume"),
    ],
)
def test_recorded_transcripts_name_their_directory_model_and_resumption(
    program: str, work_dir: str, model: str, resume: str
) -> None:
    path = "/srv/me/.kimi-code/sessions/wd_x/session_7/agents/main/wire.jsonl"
    found = origin(program, RECORDED / f"{program}.jsonl", path if program == "kimi-code" else None)
    assert (found.work_dir, found.model) == (work_dir, model)
    assert found.id is not None
    assert found.resume == f"cd {work_dir} && {resume} {found.id}"


def test_gemini_is_resumed_without_a_directory_that_it_does_not_name() -> None:
    found = origin("gemini-cli", RECORDED / "gemini-cli.jsonl")
    assert found.model == "gemini-3.8-flash"
    assert found.resume == f"gemini --resume {found.id}"


def test_claude_code_finds_a_session_by_the_name_of_its_file(tmp_path: Path) -> None:
    found = origin("claude-code", claude_file(tmp_path))
    assert (found.program, found.branch, found.model) == (
        "Claude Code",
        "fix/till",
        "claude-test-1",
    )
    assert found.resume == f"cd /srv/shop && claude --resume {CLAUDE}"
    agent = origin("claude-code", claude_file(tmp_path), "/x/subagents/agent-7.jsonl")
    assert agent.resume is None
    copy = origin("claude-code", claude_file(tmp_path), "/x/another.jsonl")
    assert copy.id == "another"


def test_qwen_code_finds_a_session_by_the_name_of_its_file() -> None:
    path = "/srv/me/.qwen/projects/-srv-shop/chats/another.jsonl"
    assert origin("qwen-code", RECORDED / "qwen-code.jsonl", path).id == "another"


def test_codex_names_a_branch_and_the_model_of_the_last_turn(tmp_path: Path) -> None:
    later = {"timestamp": "x", "type": "turn_context", "payload": {"model": "codex-test-2"}}
    found = origin("codex", codex_file(tmp_path, later))
    assert (found.branch, found.model) == ("main", "codex-test-2")
    assert found.resume == f"cd /srv/bakery && codex resume {CODEX}"


@pytest.mark.parametrize("cwd", ["/srv/my shop", "/srv/$(rm -rf ~)", "/srv/'; true '", "/srv/ü"])
def test_a_directory_is_one_word_for_the_shell(tmp_path: Path, cwd: str) -> None:
    found = origin("codex", codex_file(tmp_path, cwd=cwd))
    assert found.resume is not None
    assert shlex.split(found.resume) == ["cd", cwd, "&&", "codex", "resume", CODEX]


@pytest.mark.parametrize(
    "cwd", ["/srv/a\nb", "/srv/\x1b[2J", "/srv/\u202ex", f"/srv/{mask_of('x')}"]
)
def test_a_directory_that_cannot_be_typed_gives_no_command(tmp_path: Path, cwd: str) -> None:
    assert origin("codex", codex_file(tmp_path, cwd=cwd)).resume is None


@pytest.mark.parametrize("identity", ["-rf", "a b", "a;b", "", mask_of("openai-key"), "x" * 999])
def test_an_id_that_is_no_word_gives_no_command(tmp_path: Path, identity: str) -> None:
    file = codex_file(tmp_path)
    file.write_text(file.read_text().replace(CODEX, identity))
    assert origin("codex", file).resume is None


def test_a_command_with_a_mask_in_it_is_none(tmp_path: Path) -> None:
    redactor = Redactor()
    file = codex_file(tmp_path, cwd=f"/srv/{SECRET}")
    shown = origin("codex", file).masked(redactor.text)
    assert SECRET not in repr(shown)
    assert shown.resume is None
    file.write_text(codex_file(tmp_path).read_text().replace(CODEX, SECRET))
    named = origin("codex", file)
    assert named.resume is not None
    shown = named.masked(redactor.text)
    assert SECRET not in repr(shown)
    assert shown.resume is None
    clean = origin("codex", codex_file(tmp_path), "/srv/rollout.jsonl")
    assert clean.masked(redactor.text) == clean


def test_a_subagent_of_codex_names_its_session_and_is_not_resumed(tmp_path: Path) -> None:
    file = codex_file(tmp_path)
    spawned = '"source": {"subagent": {"thread_spawn": {"parent_thread_id": "above"}}}'
    file.write_text(file.read_text().replace('"source": "cli"', spawned))
    found = origin("codex", file)
    assert (found.parent, found.resume) == ("above", None)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.stream)
def test_odd_records_name_nothing(kind: Any) -> None:
    for value in (None, 5, "x", [], [None], {}, {"x": []}):
        record = dict.fromkeys(
            ("payload", "message", "cwd", "gitBranch", "model", "usage", "tokens", "event", "data",
             "timestamp", "time", "directories", "usageMetadata", "environmentDisclosure"), value,
        )  # fmt: skip
        for name in ("turn_context", "assistant", "event_msg"):
            odd = {**record, "type": name, "table": "part"}
            assert all(each is None or each == "x" for each in kind.circumstances(odd))
            assert kind.spent(odd) is None or sum(kind.spent(odd).tokens) == 0
            kind.written_at(odd)


def test_names_of_programs_are_those_that_people_type() -> None:
    assert [format_named(each) for each in ("Codex", "claude", "qwen", "kimi", "vi")] == [
        "codex", "claude-code", "qwen-code", "kimi-code", None,
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, True, -1, 0, 1e300, "yesterday", "9999-99-99", [], "", {}])
def test_what_is_no_time_has_none(value: object) -> None:
    assert time_of(value) is None
