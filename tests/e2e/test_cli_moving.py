"""`steno export` and `steno import`: sessions moved whole or not at all."""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import resource
import subprocess
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from steno import connect_sync
from steno._connect.folders import sync_folder
from steno_cli import destination
from steno_cli.export import kimi_folder
from steno_follow import session_folders, taking_in
from steno_protocol.errors import Exists
from support.command import Steno
from support.kimi_tree import STRANGE, furnish, plant, tree_of

pytestmark = pytest.mark.served

OWN_KEYS = {"_id", "_by", "_at"}


def _told(root: Path) -> Steno:
    """A session with all kinds of lines in both of its files."""
    call = {"type": "function", "id": "c1", "function": {"name": "Shell", "arguments": '{"a":1}'}}
    messages = [
        {"role": "assistant", "content": [{"type": "think", "think": "hm"}], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "```\nfenced\n```"},
    ]
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.write_system_prompt("be kind")
        session.append_message({"role": "user", "content": "What is `this`?"})
        session.checkpoint()
        session.update_token_count(1472)
        session.append_wire("TurnBegin", {"user_input": "hi"}, durability="synced")
        session.describe(title="A title", labels=["red"])
        session.append_message(messages)
    return Steno(root)


@pytest.mark.parametrize("form", ["markdown", "kimi"])
def test_an_export_into_a_missing_folder_names_the_folder(
    root: Path, tmp_path: Path, form: str
) -> None:
    steno = _told(root)
    ran = steno("export", "demo", "--format", form, "-o", str(tmp_path / "no" / "x"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"steno: {tmp_path}/no is no folder: create it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_an_export_to_a_dash_goes_to_stdout(root: Path, form: str) -> None:
    steno = _told(root)
    plain = steno("export", "demo", "--format", form)
    dashed = steno("export", "demo", "--format", form, "-o", "-")
    assert (dashed.code, dashed.out) == (plain.code, plain.out)
    assert "What is `this`?" in dashed.out
    assert not Path("-").exists()


def test_an_import_refuses_an_empty_id(root: Path, tmp_path: Path) -> None:
    steno = _told(root)
    assert steno("export", "demo", "--format", "kimi", "-o", str(tmp_path / "demo")).code == 0
    for folder in (tmp_path / "demo", tmp_path):
        ran = steno("import", str(folder), "")
        assert (ran.code, ran.out) == (1, "")
        assert "'' is not a session id" in ran.err


def lines_in(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- export --------------------------------------------------------------------------------------


def test_markdown_is_the_conversation_with_its_calls_and_results(root: Path) -> None:
    text = _told(root)("export", "demo").out
    for expected in (
        "# A title\n",
        "session `demo`, up to `0:6`, labels red",
        "## system prompt\n\n> be kind\n",
        "*checkpoint 0*",
        "*1 472 tokens*",
        "<details><summary>thought</summary>\n\n> hm\n",
        'Calls `Shell`:\n\n> ```json\n> {"a":1}\n> ```\n',
        "## tool · Shell · ",
        "> ````\n> ```\n> fenced\n> ```\n> ````\n",
    ):
        assert expected in text


def test_json_has_all_records_events_and_the_timeline(root: Path) -> None:
    steno = _told(root)
    document = json.loads(steno("export", "demo", "--json").out)
    assert set(document) == {
        "session", "title", "labels", "archived", "forked_from", "head", "generation", "records",
        "events", "streams", "timeline", "damaged",
    }  # fmt: skip
    assert [each["record"] for each in document["records"]] == lines_in(
        root / "sessions" / "demo" / "context.jsonl"
    )
    assert [each["cursor"] for each in document["records"]] == [f"0:{n}" for n in range(6)]
    assert [each["record"]["message"]["type"] for each in document["events"]] == ["TurnBegin"]
    assert [each["kind"] for each in document["timeline"]] == ["created"]
    assert (document["title"], document["labels"], document["damaged"]) == ("A title", ["red"], 0)
    assert json.loads(steno("export", "demo", "--format", "json").out) == document


def test_a_file_is_created_whole_and_never_overwritten(root: Path, tmp_path: Path) -> None:
    steno = _told(root)
    path = tmp_path / "demo.md"
    ran = steno("export", "demo", "-o", str(path))
    assert (ran.code, ran.out) == (0, f"{path}\n")
    assert path.read_text() == steno("export", "demo").out
    again = steno("export", "demo", "-o", str(path), "--json")
    assert (again.code, again.error["code"]) == (1, "exists")
    assert names_in(tmp_path) == ["demo.md"]
    printed = steno("export", "demo", "--format", "json", "-o", str(tmp_path / "x"), "--json")
    assert printed.document == {
        "session": "demo", "format": "json", "path": str(tmp_path / "x"), "command": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.md", "# "),
        ("a.HTML", "<!doctype html>"),
        ("a.json", '{"ses'),
        ("a.jsonl", '{"role"'),
    ],
)
def test_the_name_of_the_file_gives_its_format(
    root: Path, tmp_path: Path, name: str, begins: str
) -> None:
    assert _told(root)("export", "demo", "-o", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_text().lower().startswith(begins)


def test_a_name_that_no_format_has_is_taken_with_a_format(root: Path, tmp_path: Path) -> None:
    steno = _told(root)
    assert steno("export", "demo", "-o", str(tmp_path / "a.pdf"), "--format", "json").code == 0


def test_exported_lines_are_those_of_read(root: Path) -> None:
    steno = _told(root)
    assert steno("export", "demo", "--format", "jsonl").out == steno("read", "demo").out


def test_a_kimi_folder_has_the_lines_without_the_keys_of_steno(root: Path, tmp_path: Path) -> None:
    steno = _told(root)
    folder = tmp_path / "copy"
    assert steno("export", "demo", "--format", "kimi", "-o", str(folder)).code == 0
    assert names_in(folder) == ["context.jsonl", "state.json", "wire.jsonl"]
    for name in ("context.jsonl", "wire.jsonl"):
        ours = lines_in(root / "sessions" / "demo" / name)
        plain = [{key: line[key] for key in line.keys() - OWN_KEYS} for line in ours]
        assert lines_in(folder / name) == plain
    state = json.loads((folder / "state.json").read_text())
    assert state == {
        "version": 1, "custom_title": "A title", "title_generated": True, "labels": ["red"],
    }  # fmt: skip
    assert (
        folder.joinpath("state.json").read_bytes()
        == (root / "sessions" / "demo" / "state.json").read_bytes()
    )
    assert steno("export", "demo", "--format", "kimi", "-o", str(folder)).code == 1
    assert names_in(tmp_path) == ["copy"]


def test_an_export_of_an_imported_session_equals_its_source(steno: Steno, tmp_path: Path) -> None:
    session = plant(tmp_path / "sessions", strange=True)[1]
    furnish(session)
    (session.folder / "link").symlink_to("/etc/hostname")
    assert steno("import", str(session.folder), "kimi/demo").code == 0
    copy = tmp_path / "copy"
    assert steno("export", "kimi/demo", "--format", "kimi", "-o", str(copy)).code == 0
    (session.folder / "link").unlink()
    assert tree_of(copy) == tree_of(session.folder)
    times = [
        folder.joinpath("context.jsonl").stat().st_mtime_ns for folder in (session.folder, copy)
    ]
    assert times[0] == times[1]


def test_export_and_import_in_turn_change_nothing_more(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    session = plant(tmp_path / "sessions", strange=False)[1]
    furnish(session)
    assert steno("import", str(session.folder), "demo").code == 0
    # A revert and stamps, here and in the subagent, and labels, which kimi-cli does not have.
    assert steno("append", "demo", "ours").code == 0
    assert steno("revert", "demo", "1").code == 0
    assert steno("emit", "demo", "TurnEnd").code == 0
    assert steno("append", "demo/subagents/a1b2", "ours").code == 0
    assert steno("label", "demo", "red").code == 0

    first, second = tmp_path / "first", tmp_path / "second"
    assert steno("export", "demo", "--format", "kimi", "-o", str(first)).code == 0
    assert steno("import", str(first), "again").code == 0
    assert steno("export", "again", "--format", "kimi", "-o", str(second)).code == 0

    assert tree_of(second) == tree_of(first)
    own = root / "sessions" / "demo"
    for name in ("context.jsonl", "context_3.jsonl", "wire.jsonl", "subagents/a1b2/context.jsonl"):
        plain = [
            {key: line[key] for key in line.keys() - OWN_KEYS} for line in lines_in(own / name)
        ]
        assert lines_in(first / name) == plain
    assert (first / "state.json").read_bytes() == (own / "state.json").read_bytes()
    assert steno("label", "again").out == "red\n"
    assert not [name for name in tree_of(first) if "timeline" in name or "mark" in name]
    old, new = (json.loads(steno("show", name, "--json").out) for name in ("demo", "again"))
    # The timeline, which kimi-cli does not have, knows the ids of checkpoints that are gone.
    assert (old.pop("n_checkpoints"), new.pop("n_checkpoints")) == (2, 1)
    assert {**new, "session": "demo"} == old


def test_an_export_from_another_machine_has_lines_and_title_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steno = _told(root)
    (root / "sessions" / "demo" / "uploads").mkdir()
    assert steno("clear", "demo").code == 0
    copy = tmp_path / "copy"
    monkeypatch.setattr(kimi_folder, "local_root", lambda _client: None)
    ran = steno("export", "demo", "--format", "kimi", "-o", str(copy))
    assert (ran.code, "run the export there for uploads" in ran.err) == (0, True)
    assert names_in(copy) == ["context.jsonl", "context_1.jsonl", "state.json", "wire.jsonl"]
    assert json.loads((copy / "state.json").read_text()) == {
        "version": 1, "custom_title": "A title", "title_generated": True, "labels": ["red"],
    }  # fmt: skip


def test_a_session_without_events_and_state_is_exported_without_them(
    steno: Steno, tmp_path: Path
) -> None:
    assert steno("append", "demo", "hi").code == 0
    assert steno("export", "demo", "--format", "kimi", "-o", str(tmp_path / "copy")).code == 0
    assert names_in(tmp_path / "copy") == ["context.jsonl"]


def test_damaged_lines_are_left_out_of_an_export_and_counted(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    folder = root / "sessions" / "demo"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text(
        '{"role":"user","content":"a"}\nnot json\n{"role":"user", "content":"b"}\n'
    )
    for arguments in (("--json",), ("--format", "kimi", "-o", str(tmp_path / "copy")), ()):
        ran = steno("export", "demo", *arguments)
        assert ran.code == 0
        assert "1 line was no record and was skipped" in ran.err
    # A line without a stamp of steno is unchanged byte for byte.
    assert (tmp_path / "copy" / "context.jsonl").read_text() == (
        '{"role":"user","content":"a"}\n{"role":"user", "content":"b"}\n'
    )


# --- import --------------------------------------------------------------------------------------


def test_an_imported_kimi_export_equals_the_session(root: Path, tmp_path: Path) -> None:
    steno = _told(root)
    copy = str(tmp_path / "copy")
    steno("export", "demo", "--format", "kimi", "-o", copy)
    ran = steno("import", copy, "team/again", "--json")
    assert ran.code == 0
    assert ran.document == {
        "session": "team/again", "folder": copy, "head": "0:6", "damaged": 0,
        "state": "imported", "why": None,
        "bytes": (tmp_path / "copy" / "context.jsonl").stat().st_size,
    }  # fmt: skip
    old, new = (steno("show", name, "--json").document for name in ("demo", "team/again"))
    assert {**new, "session": "demo"} == old
    assert steno("title", "team/again").out == "A title\n"
    assert steno("append", "team/again", "more").out == "0:6\n"


def test_a_tree_is_imported_byte_for_byte_and_a_repeat_changes_nothing(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    planted = plant(tmp_path / "kimi" / "sessions", strange=True)
    uploads = planted[0].folder / "uploads"
    uploads.mkdir()
    (uploads / "picture.png").write_bytes(b"\x89PNG")
    (planted[0].folder / "link").symlink_to("/etc/hostname")
    ran = steno("import", str(tmp_path / "kimi"), "kimi")
    assert ran.code == 0
    assert ran.out.splitlines() == [f"kimi/{session.id}" for session in planted]
    for session in planted:
        folder = root / "sessions" / "kimi" / session.id
        before = session.bytes()
        before.pop("link", None)
        assert {name: (folder / name).read_bytes() for name in before} == before
        assert not (folder / "link").exists()
        assert (folder / "context.jsonl").stat().st_mode & 0o777 == 0o600
    assert (root / "sessions" / "kimi" / planted[0].id / "uploads" / "picture.png").exists()

    assert steno("append", f"kimi/{planted[1].id}", "ours").code == 0
    assert steno("revert", f"kimi/{planted[1].id}", "0").code == 0
    again = steno("import", str(tmp_path / "kimi"), "kimi", "--json")
    assert (again.code, {printed["state"] for printed in again.documents}) == (0, {"there"})
    assert len(steno("sessions").out.splitlines()) == len(planted)
    assert STRANGE in b"".join(
        path.read_bytes()
        for path in (root / "sessions" / "kimi" / planted[1].id).glob("context*.jsonl")
    )


def test_a_context_outside_a_folder_becomes_a_session(steno: Steno, tmp_path: Path) -> None:
    name = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / f"{name}.jsonl").write_text('{"role":"user","content":"old"}\n')
    assert steno("import", str(tmp_path)).out == f"work/{name}\n"
    assert "old" in steno("show", f"work/{name}").out


@pytest.mark.served(False)
@pytest.mark.parametrize("kind", ["root", "mount"])
def test_a_session_in_the_old_format_is_listed_and_imported(
    root: Path, steno: Steno, tmp_path: Path, kind: str
) -> None:
    name = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
    tree, prefix = root / "sessions", ""
    if kind == "mount":
        tree, prefix = tmp_path / "kimi", "kimi:"
        root.joinpath("config.toml").write_text(f'[mounts]\nkimi = "{tree}"\n')
    (tree / "work").mkdir(parents=True)
    file = tree / "work" / f"{name}.jsonl"
    file.write_text('{"role":"user","content":"old"}\n')

    ran = steno("sessions")
    assert ran.out.split()[0] == f"{prefix}work/{name}"
    assert ran.out.endswith("(old format)\n")
    assert "`steno import FILE ID` imports one" in ran.err
    printed = steno("sessions", "--json").document
    assert printed["sessions"] == []
    assert [each["session"] for each in printed["flat"]] == [f"{prefix}work/{name}"]
    for refused in (("show",), ("append", "x", "--create")):
        ran = steno(refused[0], f"{prefix}work/{name}", *refused[1:])
        assert ran.code in {1, 4}
        assert f"`steno import {file} work/{name}` imports it" in ran.err
    assert not (tree / "work" / name).exists()

    assert steno("import", str(file), f"work/{name}").out == f"work/{name}\n"
    assert "old" in steno("show", f"work/{name}").out
    assert file.exists()
    listed = [line.split()[0] for line in steno("sessions").out.splitlines()]
    assert (
        listed == {"root": [f"work/{name}"], "mount": [f"kimi:work/{name}", f"work/{name}"]}[kind]
    )


@pytest.mark.served(False)
def test_work_directories_and_their_last_sessions_are_imported_and_shown(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    home = tmp_path / "kimi"
    work, other = "/srv/project", "/srv/other"
    folder = hashlib.md5(work.encode(), usedforsecurity=False).hexdigest()
    for name in ("one", "two"):
        session = home / "sessions" / folder / name
        session.mkdir(parents=True)
        (session / "context.jsonl").write_text('{"role":"user","content":"hi"}\n')

    def kimi_notes(last: str | None) -> None:
        dirs = [
            {"path": work, "kaos": "local", "last_session_id": last},
            {"path": other, "kaos": "local", "last_session_id": "x"},
        ]
        (home / "kimi.json").write_text(json.dumps({"work_dirs": dirs, "thinking": True}))

    def shown(*arguments: str) -> list[tuple[str, str, bool]]:
        listed = steno("sessions", *arguments, "--sort", "id", "--json").document["sessions"]
        return [(each["session"], each["work_dir"], each["last_in_work_dir"]) for each in listed]

    kimi_notes("one")
    root.joinpath("config.toml").write_text(f'[mounts]\nkimi = "{home}/sessions"\n')
    assert shown("kimi:") == [
        (f"kimi:{folder}/one", work, True), (f"kimi:{folder}/two", work, False),
    ]  # fmt: skip

    assert steno("import", str(home), "taken").code == 0
    noted = root / "sessions" / "taken" / "kimi.json"
    assert json.loads(noted.read_text()) == {
        "work_dirs": [{"path": work, "kaos": "local", "last_session_id": "one"}]
    }
    assert noted.stat().st_mode & 0o777 == 0o600
    line, _ = steno("sessions", "taken/", "--sort", "id").out.splitlines()
    assert line.endswith(f"in {work}, the last one there")

    kimi_notes("two")
    assert steno("import", str(home / "sessions"), "taken").code == 0
    kimi_notes(None)
    assert steno("import", str(home / "sessions" / folder), f"taken/{folder}").code == 0
    assert shown("taken/") == [
        (f"taken/{folder}/one", work, False), (f"taken/{folder}/two", work, True),
    ]  # fmt: skip
    assert names_in(root / "sessions" / ".imports") == []


def test_an_upload_named_like_an_old_session_is_no_session(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    name = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
    (tmp_path / "demo" / "uploads").mkdir(parents=True)
    (tmp_path / "demo" / "context.jsonl").write_text('{"role":"user","content":"hi"}\n')
    (tmp_path / "demo" / "uploads" / f"{name}.jsonl").write_text("{}\n")
    assert steno("import", str(tmp_path / "demo")).out == "demo\n"
    assert (root / "sessions" / "demo" / "uploads" / f"{name}.jsonl").exists()
    assert steno("sessions", "--json").document["flat"] == []


def test_an_import_keeps_and_reports_damaged_lines(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    folder = tmp_path / "hurt"
    folder.mkdir()
    content = b'{"role":"user","content":"a"}\n\xff\xfe\n[1]\n{"role":"user","content":"b"}\n'
    (folder / "context.jsonl").write_bytes(content)
    (folder / "wire.jsonl").write_text("not json\n")
    ran = steno("import", str(folder))
    assert (ran.code, ran.out) == (0, "hurt\n")
    assert ran.err == "steno: 3 lines are no records in hurt: kept, and skipped by readers\n"
    assert (root / "sessions" / "hurt" / "context.jsonl").read_bytes() == content
    assert [each["record"]["content"] for each in steno("read", "hurt", "--json").documents] == [
        "a", "b",
    ]  # fmt: skip


def test_an_import_reports_failures_and_continues(steno: Steno, tmp_path: Path) -> None:
    for name in ("good", "taken", "has space"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "context.jsonl").write_text('{"role":"user","content":"x"}\n')
    steno("append", "taken", "something else")
    ran = steno("import", str(tmp_path))
    assert (ran.code, ran.out) == (1, "good\n")
    assert "has space is left out: its path " in ran.err
    assert "steno: taken is left out: another session is at" in ran.err
    assert "steno: 2 sessions of 3 left out" in ran.err
    printed = steno("import", str(tmp_path), "--json").documents
    assert {(each["session"], each["state"]) for each in printed} == {
        (None, "left_out"), ("good", "there"), ("taken", "left_out"),
    }  # fmt: skip
    assert {frozenset(each) for each in printed} == {
        frozenset({"session", "folder", "head", "bytes", "damaged", "state", "why"})
    }
    one = steno("import", str(tmp_path / "taken"), "--json")
    assert (one.code, one.out, one.error["code"]) == (1, "", "exists")
    assert "something else" in steno("show", "taken").out


def test_an_import_of_a_lone_file_names_the_command_that_takes_it(
    steno: Steno, tmp_path: Path
) -> None:
    file = tmp_path / "my notes.jsonl"
    file.write_text("hi\n")
    ran = steno("import", str(file), "demo")
    assert (ran.code, "must be an export as JSON Lines" in ran.err) == (4, True)
    assert f"`steno append ID < '{file}'` appends its records" in ran.err

    moved = tmp_path / f"{uuid4()}.jsonl"
    moved.write_text("")
    moved.with_suffix("").mkdir()
    (moved.with_suffix("") / "context.jsonl").write_text("")
    ran = steno("import", str(moved), "demo")
    assert (ran.code, f"import {moved.with_suffix('')}\n" in ran.err) == (4, True)


@pytest.mark.served(False)
def test_exported_lines_are_imported_without_a_folder_beside_them(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    for record in ('{"role":"user","content":"hi"}', '{"role":"_usage","token_count":7}'):
        assert steno("append", "demo", stdin=record).code == 0
    file = tmp_path / "talk.jsonl"
    assert steno("export", "demo", "-o", str(file)).code == 0
    file.with_suffix("").mkdir()
    (file.with_suffix("") / "context.jsonl").write_text('{"role":"user","content":"other"}\n')
    (file.with_suffix("") / "notes.txt").write_text("other")
    assert steno("import", str(file)).out == "talk\n"
    assert steno("import", str(file), "copies/talk").out == "copies/talk\n"
    for session in ("talk", "copies/talk"):
        assert steno("read", session).out == steno("read", "demo").out
        assert not (root / "sessions" / session / "notes.txt").exists()
    spaced = file.rename(tmp_path / "my talk.jsonl")
    refused = steno("import", str(spaced))
    assert (refused.code, "is no name of a session: name one" in refused.err) == (2, True)
    assert steno("import", str(spaced), "mine").out == "mine\n"


def test_an_import_refuses_other_files_and_impossible_ids(steno: Steno, tmp_path: Path) -> None:
    missing = steno("import", str(tmp_path / "nowhere"))
    assert (missing.code, "nowhere does not exist" in missing.err) == (4, True)
    assert steno("import", str(tmp_path)).code == 4
    (tmp_path / "context.jsonl").symlink_to("/etc/hostname")
    assert steno("import", str(tmp_path)).code == 4
    (tmp_path / "context.jsonl").unlink()
    (tmp_path / "context.jsonl").write_text("")
    assert steno("import", str(tmp_path), "kimi:x").code == 2
    assert steno("import", str(tmp_path), "../x").code == 1


def test_a_killed_import_leaves_nothing_visible_or_permanent(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    (tmp_path / "context.jsonl").write_text('{"role":"user","content":"x"}\n')
    left = root / "sessions" / ".imports" / "session"
    left.mkdir(parents=True)
    (left / "context.jsonl").write_text('{"role":"us')
    assert steno("sessions").out == ""
    assert steno("import", str(tmp_path), "demo").code == 0
    assert names_in(root / "sessions" / ".imports") == []
    assert steno("sessions").out.startswith("demo ")


def test_a_second_import_at_the_same_time_is_refused(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    (tmp_path / "context.jsonl").write_text('{"role":"user","content":"x"}\n')
    (root / "sessions" / ".imports").mkdir(parents=True)
    handle = os.open(root / "sessions" / ".imports", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        ran = steno("import", str(tmp_path), "demo", "--json")
        assert (ran.code, ran.error["code"]) == (1, "busy")
    finally:
        os.close(handle)
    assert steno("import", str(tmp_path), "demo").code == 0


def test_a_copy_that_fails_leaves_no_session(
    root: Path, steno: Steno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "context.jsonl").write_text('{"role":"user","content":"x"}\n')

    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(session_folders, "sync_folder", full)
    ran = steno("import", str(tmp_path), "demo")
    assert (ran.code, "No space left on device" in ran.err) == (1, True)
    assert not (root / "sessions" / "demo").exists()
    assert names_in(root / "sessions" / ".imports") == []


def test_a_repeated_import_syncs_every_folder_on_the_path(
    root: Path, steno: Steno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "context.jsonl").write_text('{"role":"user","content":"x"}\n')
    synced: list[Path] = []

    def record(path: Path) -> None:
        synced.append(path)
        sync_folder(path)

    monkeypatch.setattr(taking_in, "sync_folder", record)
    above = {root, root / "sessions", root / "sessions" / "team"}
    assert steno("import", str(tmp_path), "team/demo").code == 0
    synced.clear()
    # The daemon may have been killed between the move and its sync.
    assert steno("import", str(tmp_path), "team/demo").code == 0
    assert set(synced) == above


def test_a_session_rewritten_during_the_copy_is_not_imported(
    root: Path, steno: Steno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tmp_path / "context.jsonl"
    context.write_text('{"role":"user","content":"x"}\n')
    copy = taking_in.copy_session

    def copy_while_rewritten(*arguments: object) -> None:
        copy(*arguments)  # type: ignore[arg-type]
        context.rename(tmp_path / "context_1.jsonl")
        context.write_text("")

    monkeypatch.setattr(taking_in, "copy_session", copy_while_rewritten)
    ran = steno("import", str(tmp_path), "demo")
    assert (ran.code, "was rewritten while it was copied" in ran.err) == (1, True)
    assert not (root / "sessions" / "demo").exists()


@pytest.mark.parametrize("has_call", [True, False])
def test_a_folder_never_replaces_another_even_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool
) -> None:
    if not has_call:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    aside, there = tmp_path / "aside", tmp_path / "there"
    aside.mkdir()
    there.mkdir()
    with pytest.raises(Exists):
        destination.put_in_place(aside, there)
    there.rmdir()
    destination.put_in_place(aside, there)
    assert not aside.exists()
    with pytest.raises(FileNotFoundError):
        destination.put_in_place(aside, tmp_path / "else")


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_is_created_whole_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"

    def write(content: bytes, meanwhile: bytes | None = None) -> None:
        with destination.new_file(path) as file:
            file.write(content)
            if meanwhile is not None:
                path.write_bytes(meanwhile)

    write(b"first")
    assert path.read_bytes() == b"first"
    path.unlink()
    with pytest.raises(Exists):
        write(b"second", meanwhile=b"another's")
    assert path.read_bytes() == b"another's"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["json", "kimi"])
def test_a_full_disk_error_names_the_file(root: Path, tmp_path: Path, kind: str) -> None:
    call, path = Steno(root), tmp_path / "out"
    call("append", "demo", "x" * 1000)
    ran = subprocess.run(
        call.words("export", "demo", "--format", kind, "-o", str(path)),
        # Without bytecode, of which it would write only the beginning.
        env={**call.environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (99, resource.RLIM_INFINITY)),
    )  # fmt: skip
    assert (ran.returncode, ran.stderr.strip()) == (1, f"steno: File too large: {path}")
    assert list(tmp_path.iterdir()) == []


def test_only_one_of_two_concurrent_exports_creates_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    barrier = threading.Barrier(2)
    outcomes: list[bool] = []

    def make(content: bytes) -> None:
        try:
            with destination.new_file(path) as file:
                file.write(content)
                barrier.wait()
            outcomes.append(True)
        except Exists:
            outcomes.append(False)

    threads = [threading.Thread(target=make, args=(content,)) for content in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]
    assert path.read_bytes() in {b"a", b"b"}
    assert names_in(tmp_path) == ["file"]


def test_no_session_is_imported_under_an_id_with_uploads(steno: Steno, tmp_path: Path) -> None:
    source = tmp_path / "uploads"
    source.mkdir()
    (source / "context.jsonl").write_text('{"role":"user","content":"hi"}\n')
    for given in ([], ["uploads/a"], ["a/uploads"]):
        ran = steno("import", str(source), *given)
        assert (ran.code, ran.out) == (2, "")
        assert "no new session can have 'uploads' in its id" in ran.err
    assert steno("import", str(source), "a").code == 0
