"""`steno import` of transcripts that other agents wrote."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol.limits import MIB, RECORD_BYTES_MAX
from support.command import Steno

SESSION = "11111111-2222-4333-8444-555555555555"
CLAUDE = f"claude-code/srv-shop/{SESSION}"


def node(
    uuid: str, parent: str | None, kind: str, content: object, **fields: Any
) -> dict[str, Any]:
    message = {"role": kind, "content": content, "id": uuid}
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "cwd": "/srv/shop",
        "isSidechain": False, "message": message, **fields,
    }  # fmt: skip


def write(path: Path, records: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """A folder like that of Claude Code, with one session and its subagent."""
    folder = tmp_path / "projects"
    main = write(folder / "-srv-shop" / f"{SESSION}.jsonl", [
        {"type": "file-history-snapshot", "messageId": "1", "snapshot": {}},
        node("1", None, "user", "Mend the till"),
        node("2", "1", "assistant", [{"type": "text", "text": "It is mended."}]),
        {"type": "a type of tomorrow", "kept": [1, 2, 3]},
    ])  # fmt: skip
    agent = main.with_suffix("") / "subagents" / "agent-7.jsonl"
    write(agent, [node("9", None, "user", "explore", isSidechain=True)])
    return folder


def test_a_project_folder_becomes_sessions_that_every_command_reads(
    root: Path, projects: Path
) -> None:
    run = Steno(root)
    imported = run("import", str(projects))
    assert imported.code == 0
    assert imported.out.split() == [CLAUDE, f"{CLAUDE}/subagents/agent-7"]
    shown = run("show", CLAUDE).out
    assert "Mend the till" in shown
    assert "It is mended." in shown
    assert CLAUDE in run("grep", "mended").out
    assert run("verify", "--all").code == 0
    listed = {each["session"]: each for each in run("sessions", "--json").document["sessions"]}
    assert listed[CLAUDE]["title"] == "Mend the till"
    assert run("fork", CLAUDE, "mine").code == 0
    assert run("append", "mine", "and the door").code == 0
    run("stop")


def test_the_file_of_the_other_program_is_kept_byte_for_byte_and_not_changed(
    root: Path, projects: Path
) -> None:
    file = projects / "-srv-shop" / f"{SESSION}.jsonl"
    before, torn = file.read_bytes(), b'{"type":"user","uuid":"half'
    file.write_bytes(before + torn)
    run = Steno(root)
    imported = run("import", str(file), "till")
    assert imported.code == 0
    assert f"the last line of {file} ({len(torn)} bytes) has no end and is left out" in imported.err
    assert file.read_bytes() == before + torn
    kept = root / "sessions" / "till" / "stream-claude-code.jsonl"
    assert kept.read_bytes() == before
    run("stop")


def test_an_import_is_repeated_without_harm_and_a_longer_file_asks_for_replace(
    root: Path, projects: Path
) -> None:
    run = Steno(root)
    run("import", str(projects))
    again = run("import", str(projects))
    assert again.code == 0
    assert "was imported before and is unchanged" in again.err
    file = projects / "-srv-shop" / f"{SESSION}.jsonl"
    with file.open("a") as more:
        more.write(json.dumps(node("3", "2", "user", "and the lamp")) + "\n")
    refused = run("import", str(projects))
    assert refused.code == 1
    assert f"steno import --replace {file} {CLAUDE}" in refused.err
    assert run("import", "--replace", str(file), CLAUDE).code == 0
    assert "and the lamp" in run("show", CLAUDE).out
    run("stop")


def test_rollouts_of_codex_become_sessions_named_by_their_ids(root: Path, tmp_path: Path) -> None:
    def item(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload}

    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    day = tmp_path / "sessions" / "2026" / "01" / "02"
    file = write(day / f"rollout-2026-01-02T03-04-05-{SESSION}.jsonl", [
        item("session_meta", {"id": SESSION, "cwd": "/srv"}), item("response_item", said),
    ])  # fmt: skip
    os.utime(file, (1_700_000_000, 1_700_000_000))
    run = Steno(root)
    assert run("import", str(tmp_path)).out.split() == [f"codex/{SESSION}"]
    with steno.connect_sync(root, spawn=False) as client:
        history = client.open(f"codex/{SESSION}").history
        (entry,) = client.sessions()
    assert [message["content"] for message in history] == ["hello"]
    assert entry.title == "hello"
    run("stop")


def test_half_an_emoji_is_replaced_in_the_context_and_kept_in_the_stream(
    root: Path, tmp_path: Path
) -> None:
    cut = [{"type": "text", "text": "It is mended \ud83d", "\udc00": 1}]
    file = write(tmp_path / "cut.jsonl", [
        node("1", None, "user", "Mend the till"), node("2", "1", "assistant", cut),
    ])  # fmt: skip
    run = Steno(root)
    imported = run("import", str(file), "till")
    assert (imported.code, imported.err) == (0, "")
    assert "It is mended \N{REPLACEMENT CHARACTER}" in run("show", "till").out
    assert run("grep", "mended").code == 0
    kept = root / "sessions" / "till" / "stream-claude-code.jsonl"
    assert kept.read_bytes() == file.read_bytes()
    run("stop")


def test_an_import_names_the_lines_that_are_no_json_object(root: Path, tmp_path: Path) -> None:
    bad = node("2", "1", "assistant", "lost", cost=float("nan"))
    file = write(tmp_path / "bad.jsonl", [node("1", None, "user", "Mend the till"), bad])
    with file.open("a") as more:
        more.write("\n \n")
    run = Steno(root)
    imported = run("import", str(file), "one")
    assert imported.code == 0
    assert "1 line of one is no JSON object, kept in its stream only" in imported.err
    with file.open("a") as more:
        more.write("7\n")
    imported = run("import", str(file), "two")
    assert "2 lines of two are no JSON objects, kept in its stream only" in imported.err
    assert run("import", str(file), "three", "--json").document["damaged"] == 2
    run("stop")


def test_a_transcript_that_begins_with_a_long_record_is_imported_whole(
    root: Path, tmp_path: Path
) -> None:
    def image(size: int) -> list[dict[str, Any]]:
        source = {"type": "base64", "media_type": "image/png", "data": "A" * size}
        return [{"type": "image", "source": source}]

    write(tmp_path / "long.jsonl", [
        node("1", None, "user", image(9 * MIB)), node("2", "1", "assistant", "a cat"),
    ])  # fmt: skip
    longer = write(tmp_path / "longer.jsonl", [
        node("1", None, "user", image(RECORD_BYTES_MAX)), node("2", "1", "assistant", "a dog"),
    ])  # fmt: skip
    assert f"{longer} (Claude Code): 2 records" in Steno(root)("verify", str(longer)).err
    run = Steno(root)
    imported = run("import", str(tmp_path), "pictures")
    assert imported.code == 0
    folder = tmp_path.name
    assert imported.out.split() == [f"pictures/{folder}/long", f"pictures/{folder}/longer"]
    assert f"1 message of pictures/{folder}/longer too long for a record" in imported.err
    with steno.connect_sync(root, spawn=False) as client:
        roles = [
            [message["role"] for message in client.open(session).history]
            for session in imported.out.split()
        ]
    assert roles == [["user", "assistant"], ["assistant"]]
    run("stop")


def test_a_folder_without_transcripts_says_so(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "notes.jsonl", [{"note": 1}])
    run = Steno(root)
    refused = run("import", str(tmp_path))
    assert refused.code != 0
    assert "has no session" in refused.err
    run("stop")


def test_verify_and_repair_name_the_program_whose_file_it_is(root: Path, projects: Path) -> None:
    run = Steno(root)
    file = projects / "-srv-shop" / f"{SESSION}.jsonl"
    assert f"{file} (Claude Code): 4 records" in run("verify", str(file)).err
    with file.open("a") as more:
        more.write('{"type":"user","uuid":"half')
    checked = run("verify", str(file), "--json")
    assert checked.document["program"] == "Claude Code"
    assert f"{file} (Claude Code): 1 place to repair" in run("repair", str(file)).err
    assert run("repair", str(file), "--json").document["program"] == "Claude Code"
