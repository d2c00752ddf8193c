"""`steno export` for other agents, `--install`, and `steno import` of opencode's database."""

import json
import os
import shlex
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_agents.writers.programs import WRITERS
from steno_follow import opencode_database
from steno_follow.opencode_database import as_transcripts
from steno_protocol.errors import BadRequest, Busy
from support import opencode_database as database_of
from support.command import Ran, Steno

pytestmark = pytest.mark.served

SESSION = "11111111-2222-4333-8444-555555555555"
RECORDED = Path(__file__).parents[1] / "steno_agents" / "recorded"
ROWS = [json.loads(line) for line in (RECORDED / "opencode.jsonl").read_text().splitlines()]

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Mend the till"},
    {"role": "assistant", "content": [{"type": "think", "think": "Hm."}],
     "tool_calls": [{"type": "function", "id": "a",
                     "function": {"name": "Shell", "arguments": '{"command": "ls"}'}}]},
    {"role": "tool", "tool_call_id": "a", "content": "a.txt"},
    {"role": "assistant", "content": "It is mended."},
]  # fmt: skip

each_program = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def run(root: Path, home: Path) -> Steno:
    """The command for a user with a home folder of its own, and with one session."""
    unset = {each.home.variable: "" for each in WRITERS.values()}
    run = Steno(root, HOME=str(home), **unset)
    lines = "".join(json.dumps(each) + "\n" for each in MESSAGES)
    assert run("append", "demo", stdin=lines).code == 0
    return run


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def installed(run: Steno, home: Path, name: str, *more: str) -> tuple[Ran, set[Path]]:
    before = files_below(home)
    ran = run("export", "demo", "--format", name, "--install", *more)
    return ran, files_below(home) - before


@each_program
def test_an_installed_session_is_new_and_private_and_its_command_is_printed(
    run: Steno, home: Path, name: str
) -> None:
    shop = home / "shop"
    shop.mkdir()
    first, new = installed(run, home, name, "--work-dir", str(shop))
    assert first.code == 0
    assert first.out.startswith(f"cd {shop} && {WRITERS[name].program.split()[0].lower()}")
    assert "left out, because" in first.err
    assert "1 thought" in first.err
    below = home / WRITERS[name].home.default
    assert new
    for path in new:
        assert path.is_relative_to(below)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for folder in path.parents[: len(path.relative_to(home).parts) - 1]:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    _, more = installed(run, home, name, "--work-dir", str(shop))
    assert len(more) == len(new)


@each_program
def test_an_installed_session_is_imported_again_as_it_was(
    run: Steno, home: Path, tmp_path: Path, name: str
) -> None:
    installed(run, home, name)
    source = home / WRITERS[name].home.default
    if name == "opencode":
        (file,) = source.rglob("*.json")
        source = tmp_path / "opencode.db"
        database_of.write(source, database_of.imported_file(file.read_bytes()))
    back = run("import", str(source))
    assert back.code == 0, back.err
    with steno.connect_sync(run.root, spawn=False) as client:
        history = client.open(back.out.strip()).history
    told = [(each["role"], each["content"]) for each in history]
    assert told == [
        ("user", "Mend the till"), ("assistant", []), ("tool", "a.txt"),
        ("assistant", "It is mended."),
    ]  # fmt: skip


def test_a_program_that_keeps_its_sessions_elsewhere_gets_them_there(
    root: Path, home: Path, run: Steno, tmp_path: Path
) -> None:
    for name, variable in (("claude-code", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")):
        other = tmp_path / name
        there = Steno(root, HOME=str(home), **{variable: str(other)})
        assert there("export", "demo", "--format", name, "--install").code == 0
        assert len(files_below(other)) == 1
    assert files_below(home) == set()


def test_a_folder_that_is_a_link_is_not_followed(run: Steno, home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / ".codex").mkdir()
    (home / ".codex" / "sessions").symlink_to(elsewhere)
    refused, new = installed(run, home, "codex")
    assert refused.code == 1
    assert "is a link or no folder, and nothing is written behind it" in refused.err
    assert (new, files_below(elsewhere)) == (set(), set())


def test_an_imported_session_goes_on_in_its_own_directory(
    run: Steno, home: Path, tmp_path: Path
) -> None:
    shop = tmp_path / "my shop"
    shop.mkdir()
    node = {"uuid": "1", "parentUuid": None, "sessionId": SESSION, "type": "user",
            "cwd": str(shop), "message": {"role": "user", "content": "hello"}}  # fmt: skip
    file = tmp_path / f"{SESSION}.jsonl"
    file.write_text(json.dumps(node) + "\n")
    assert run("import", str(file), "till").code == 0
    ran = run("export", "till", "--format", "pi", "--install")
    assert shlex.split(ran.out)[:3] == ["cd", str(shop), "&&"]
    shop.rmdir()
    moved = run("export", "till", "--format", "pi", "--install")
    assert f"it ran in {shop}, which is not here: it goes on in {Path.cwd()}" in moved.err
    assert shlex.split(moved.out)[1] == str(Path.cwd())


def test_a_session_is_written_to_stdout_a_file_or_a_folder(run: Steno, tmp_path: Path) -> None:
    shown = run("export", "demo", "--format", "codex")
    assert json.loads(shown.out.splitlines()[0])["type"] == "session_meta"
    file, folder = tmp_path / "demo.jsonl", tmp_path / "demo"
    written = run("export", "demo", "--format", "pi", "-o", str(file), "--json")
    assert written.document == {
        "session": "demo", "format": "pi", "path": str(file), "command": None,
    }  # fmt: skip
    assert run("export", "demo", "--format", "pi", "-o", str(file)).code == 1
    assert run("export", "demo", "--format", "kimi-code", "-o", str(folder)).code == 0
    assert {str(each.relative_to(folder)) for each in files_below(folder)} == {
        "state.json", "agents/main/wire.jsonl",
    }  # fmt: skip
    put = run("export", "demo", "--format", "pi", "--install", "--json").document
    assert put["command"].endswith(f"pi --session {Path(put['path']).stem.split('_')[1]}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--format", "kimi-code"], "--format kimi-code makes a folder: name it with -o"),
        (["--format", "pi", "--install", "-o", "x"], "leave -o out"),
        (["--install"], "--install and --work-dir are for the formats of agents"),
        (["--format", "pi", "--work-dir", "/no/such/place"], "/no/such/place is no folder"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Steno, words: Sequence[str], told: str
) -> None:
    refused = run("export", "demo", *words)
    assert refused.code in {1, 2}
    assert told in refused.err


def test_a_session_without_a_message_is_not_written(run: Steno) -> None:
    run("open", "empty")
    run("prompt", "empty", "be good")
    refused = run("export", "empty", "--format", "codex", "--install")
    assert refused.code == 1
    assert "empty has no message that Codex could go on with" in refused.err


def test_an_interrupted_call_is_said(run: Steno, home: Path) -> None:
    run("append", "demo", stdin=json.dumps(MESSAGES[1]) + "\n")
    ran, (path,) = installed(run, home, "claude-code")
    assert "1 call without a result got one that says that it was interrupted" in ran.err
    assert "The call was interrupted: its result is not known." in path.read_text()


def test_secrets_stay_in_the_session_unless_they_are_to_be_masked(run: Steno) -> None:
    secret = "ghp_" + "A1b2C3d4" * 4 + "A1b2"
    run("append", "demo", f"use {secret}")
    assert secret in run("export", "demo", "--format", "pi").out
    assert secret not in run("export", "demo", "--format", "pi", "--redact").out


@pytest.fixture
def database(home: Path) -> Path:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    child = [
        {**ROWS[0], "id": "ses_0", "parents": [ROWS[0]["id"]], "title": "Sub work"},
        {**ROWS[1], "id": "msg_0", "session_id": "ses_0"},
        {**ROWS[2], "id": "prt_0", "message_id": "msg_0"},
    ]
    database_of.write(path, ROWS, child)
    return path


def test_the_sessions_of_opencode_are_imported_and_its_folder_is_untouched(
    run: Steno, database: Path
) -> None:
    before = {path.name: path.stat() for path in database.parent.iterdir()}
    session = ROWS[0]["id"]
    for source in (database, database.parent):
        imported = run("import", str(source))
        assert imported.code == 0, imported.err
        assert imported.out.split() == [
            f"opencode/{session}", f"opencode/{session}/subagents/ses_0",
        ]  # fmt: skip
    assert "was imported before and is unchanged" in imported.err
    shown = run("show", f"opencode/{session}").out
    assert "Hello there" in shown
    assert "cannot access" in shown
    listed = {each["session"]: each for each in run("sessions", "--json").document["sessions"]}
    assert listed[f"opencode/{session}"]["title"] == "Hello there"
    after = {path.name: path.stat() for path in database.parent.iterdir()}
    assert {name: (each.st_size, each.st_mtime_ns) for name, each in after.items()} == {
        name: (each.st_size, each.st_mtime_ns) for name, each in before.items()
    }


def transcript(database: Path, name: str = f"{ROWS[0]['id']}.jsonl") -> list[Any]:
    with as_transcripts(database) as folder:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    assert rows[0].pop("updated") == 1
    return rows


def test_a_database_that_opencode_has_open_is_read_with_what_is_in_its_log(
    database: Path,
) -> None:
    with closing(database_of.connected(database)) as live:
        live.execute("UPDATE session SET title = 'The till'")
        names = {path.name for path in database.parent.iterdir()}
        assert "opencode.db-wal" in names
        assert transcript(database)[0]["title"] == "The till"
        assert {path.name for path in database.parent.iterdir()} == names


def test_an_answer_that_is_being_written_is_left_out_until_it_is_whole(database: Path) -> None:
    whole = transcript(database)
    assert whole == ROWS
    growing = {"role": "assistant", "time": {"created": 1_900_000_000_000}}
    row = {"table": "message", "id": "msg_z", "session_id": ROWS[0]["id"], "data": growing}
    with closing(database_of.connected(database)) as live:
        database_of.insert(live, [row])
        assert transcript(database) == whole
        done = {**growing, "time": {**growing["time"], "completed": 1_900_000_000_001}}  # type: ignore[dict-item]
        live.execute("UPDATE message SET data = ? WHERE id = 'msg_z'", (json.dumps(done),))
        assert transcript(database) == [*whole, {**row, "data": done}]


def test_a_locked_database_is_refused_and_says_so(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode_database, "_LOCKED_S", 0.05)
    with closing(database_of.connected(database)) as live:
        live.execute("PRAGMA locking_mode = EXCLUSIVE")
        live.execute("UPDATE session SET title = 'The till'")
        with pytest.raises(Busy, match="is locked by another program"), as_transcripts(database):
            pass


def test_another_database_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as rows:
        rows.execute("CREATE TABLE till (id)")
    with pytest.raises(BadRequest, match="no such table: session"), as_transcripts(other):
        pass
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(BadRequest, match="cannot be read as a database"), as_transcripts(damaged):
        pass


def test_an_id_that_is_a_path_writes_nothing(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    database_of.write(database, [{**ROWS[0], "id": "../../evil"}])
    with pytest.raises(BadRequest, match="id is no name of a file"), as_transcripts(database):
        pass


def rollout(folder: Path, session: str, *records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-01-02T03-04-05-{session}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def line(ordinal: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05Z", "ordinal": ordinal, "type": kind,
            "payload": payload}  # fmt: skip


def prompt(ordinal: int, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return line(ordinal, "response_item", {"type": "message", "role": "user", "content": content})


@pytest.mark.parametrize("place", ["sessions/2026/01/01", "archived_sessions"])
def test_a_fork_of_codex_is_imported_with_its_beginning(
    run: Steno, tmp_path: Path, place: str
) -> None:
    other = SESSION.replace("1", "a")
    meta = {"id": SESSION, "cwd": "/srv"}
    forked = {**meta, "id": other, "forked_from_id": SESSION, "forked_from_ordinal_exclusive": 2}
    day = tmp_path / "sessions" / "2026" / "01" / "02"
    file = rollout(day, other, line(2, "session_meta", forked), prompt(3, "and the lamp"))
    alone = run("import", str(file), "alone")
    assert f"its beginning is elsewhere: the file of session {SESSION} is not beside" in alone.err
    rollout(
        tmp_path / place, SESSION,
        line(0, "session_meta", meta), prompt(1, "Mend the till"), prompt(2, "and more"),
    )  # fmt: skip
    whole = run("import", str(file), "whole")
    assert whole.err == ""
    with steno.connect_sync(run.root, spawn=False) as client:
        found = [[each["content"] for each in client.open(name).history]
                 for name in ("alone", "whole")]  # fmt: skip
    assert found == [["and the lamp"], ["Mend the till", "and the lamp"]]
    kept = run.root / "sessions" / "whole" / "stream-codex.jsonl"
    assert kept.read_bytes() == file.read_bytes()
    assert os.listdir(day) == [file.name]  # noqa: PTH208  # names are enough
