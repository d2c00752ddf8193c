"""The sessions of opencode's database are followed as its rows change."""

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_follow import opencode_database
from steno_follow.file_watch import FileWatch
from steno_follow.opencode_mirror import DatabaseMirror
from steno_follow.source_notes import GONE, last_note
from steno_follow.watching import Seen, Watcher
from steno_redact.redactor import Redactor
from support.daemon_in_thread import DaemonInThread
from support.opencode_database import connected, insert

SESSION = "opencode/ses_1"
HEAD = {"table": "session", "id": "ses_1", "parents": [], "directory": "/srv/shop",
        "title": "The till", "revert": None}  # fmt: skip


def message(number: int, role: str, text: str, **fields: Any) -> list[dict[str, Any]]:
    time = {"created": number, **({"completed": number} if role == "assistant" else {})}
    data = {"role": role, "time": time, **fields}
    owner = f"msg_{number}"
    part = {"table": "part", "id": f"prt_{number}", "message_id": owner, "session_id": "ses_1",
            "data": {"type": "text", "text": text}}  # fmt: skip
    return [{"table": "message", "id": owner, "session_id": "ses_1", "data": data}, part]


class World:
    """A daemon, a database, and a watcher of it; a clock that a test moves on."""

    def __init__(self, client: steno.BlockingClient, root: Path, folder: Path) -> None:
        self.client = client
        self.root = root
        self.path = folder / "opencode.db"
        self.database = connected(self.path)
        self.redactor: Redactor | None = None
        self._aside = folder / "aside"
        self._now, self._updated, self._number = 0.0, 1, 0
        self._watch = FileWatch([])
        self.watcher = self.new_watcher()

    def new_watcher(self) -> Watcher:
        """A watcher as after a kill: with nothing in memory."""
        self._number += 1
        folder = self._aside / str(self._number)
        folder.mkdir(parents=True)
        self._watch.close()
        self.mirror = DatabaseMirror(self.path, folder)
        self._watch = FileWatch([], {folder: self.path})
        self.watcher = Watcher(
            self.client, self.root / "sessions", lambda _: self.redactor, self._watch,
            lambda: self._now, [self.mirror],
        )  # fmt: skip
        return self.watcher

    def close(self) -> None:
        self._watch.close()
        self.database.close()

    def change(self, statement: str, *values: object) -> None:
        self.database.execute(statement, values)
        self._updated += 1
        self.database.execute("UPDATE session SET time_updated = ?", (self._updated,))

    def add(self, *rows: list[dict[str, Any]]) -> None:
        insert(self.database, [row for each in rows for row in each])
        self.change("SELECT 1")

    def look(self) -> list[Seen]:
        self._now += 2
        self.watcher.look()
        return list(self.watcher.work())

    def states(self) -> list[str]:
        return [each.state for each in self.look()]

    @property
    def context(self) -> list[str]:
        return [each.record["content"] for each in self.client.session(SESSION).records()]

    @property
    def lines(self) -> int:
        """The lines of the stream, all generations together."""
        head = self.client.session(SESSION).stream("opencode").head()
        assert head.generation == 0
        return head.line


@pytest.fixture
def world(daemon: DaemonInThread, tmp_path: Path) -> Iterator[World]:
    with (
        steno.connect_sync(daemon.root, spawn=False) as client,
        closing(World(client, daemon.root, tmp_path)) as world,
    ):
        world.add([HEAD], message(1, "user", "one"), message(2, "assistant", "two"))
        yield world


def test_a_session_is_taken_in_and_grows_row_by_row(world: World) -> None:
    assert world.states() == ["imported"]
    assert world.states() == []
    world.add(message(3, "user", "three"), message(4, "assistant", "four"))
    before = world.lines
    [seen] = world.look()
    assert (seen.session, seen.state, seen.messages) == (SESSION, "grown", 2)
    assert world.context == ["one", "two", "three", "four"]
    assert world.lines == before + 5, "two messages, their parts, and the session"
    assert world.look() == []
    note = last_note(world.client, SESSION)
    assert note is not None
    assert note.path == str(world.path / "ses_1")


def test_the_next_watcher_reads_no_session_that_is_complete(world: World) -> None:
    world.look()
    world.add(message(3, "user", "three"))
    world.look()
    world.new_watcher()
    assert world.look() == []
    assert list(world.mirror.folder.iterdir()) == []
    world.new_watcher()
    world.add(message(4, "assistant", "four"))
    assert world.states() == ["grown"]
    assert world.context == ["one", "two", "three", "four"]


def test_rows_that_change_are_kept_in_each_state_and_the_last_one_counts(world: World) -> None:
    world.look()
    changed = json.dumps({"type": "text", "text": "better"})
    world.change("UPDATE part SET data = ? WHERE id = 'prt_2'", changed)
    world.change("UPDATE session SET title = 'The lamp'")
    before = world.lines
    world.look()
    assert world.context == ["one", "better"]
    assert world.lines == before + 2
    assert world.client.stat(SESSION).title == "The lamp"
    world.change("DELETE FROM part WHERE message_id = 'msg_2'")
    world.change("DELETE FROM message WHERE id = 'msg_2'")
    world.look()
    assert world.context == ["one"]
    world.new_watcher()
    world.add(message(3, "assistant", "again"))
    world.look()
    assert world.context == ["one", "again"]


def test_withdrawn_turns_come_back_when_they_do_in_opencode(world: World) -> None:
    world.look()
    world.change("UPDATE session SET revert = ?", json.dumps({"messageID": "msg_2"}))
    world.look()
    assert world.context == ["one"]
    world.change("UPDATE session SET revert = NULL")
    world.look()
    assert world.context == ["one", "two"]


def test_an_answer_comes_once_it_is_whole(world: World) -> None:
    world.add(message(3, "user", "three"), message(4, "assistant", "fo", time={"created": 4}))
    world.look()
    assert world.context == ["one", "two", "three"]
    # opencode changes the message, and its session only with the next turn.
    done = json.dumps({"role": "assistant", "time": {"created": 4, "completed": 5}})
    world.database.execute(
        "UPDATE message SET data = ?, time_updated = 99 WHERE id = 'msg_4'", (done,)
    )
    world.look()
    assert world.context == ["one", "two", "three", "fo"]


@pytest.mark.parametrize("is_running", [True, False], ids=["watched", "while no watch ran"])
def test_a_deleted_session_is_kept_and_marked(world: World, is_running: bool) -> None:
    world.look()
    if not is_running:
        world.new_watcher()
    world.database.execute("PRAGMA foreign_keys = ON")
    world.database.execute("DELETE FROM session")
    assert world.states() == ["deleted"]
    assert world.client.stat(SESSION).labels == ("opencode", GONE)
    assert world.context == ["one", "two"]
    assert world.look() == []


def test_a_database_that_is_not_there_marks_nothing_as_deleted(world: World) -> None:
    world.look()
    world.new_watcher()
    world.database.close()
    for each in world.path.parent.glob("opencode.db*"):
        each.rename(each.with_name(f"away-{each.name}"))
    assert world.look() == []
    assert world.client.stat(SESSION).labels == ("opencode",)


def test_a_locked_database_is_said_once_and_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode_database, "_WATCH_LOCKED_S", 0.01)
    world.database.close()
    with closing(sqlite3.connect(world.path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("UPDATE session SET title = 'The lamp'")
        [seen] = world.look()
        assert (seen.state, "locked by another program" in seen.notes[0]) == ("left_out", True)
        assert world.look() == []
    assert world.states() == ["imported"]


def test_a_masked_session_grows_as_others_do(world: World) -> None:
    world.redactor = Redactor()
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    world.add(message(3, "user", f"my key is {secret}"))
    world.look()
    for number in (4, 5):
        world.new_watcher()
        world.add(message(number, "user", f"text {number}"))
        assert world.states() == ["grown"]
        assert world.lines == 7 + 3 * (number - 3)
    assert secret not in "".join(world.context)
    assert world.context[-2:] == ["text 4", "text 5"]


def test_a_row_whose_line_was_cut_by_a_kill_comes_again(world: World) -> None:
    world.look()
    half = base64.b64encode(b'{"table": "part", "id": "prt_3", "da').decode()
    command = {"steno_raw": half}
    world.client.session(SESSION).stream("opencode").append(command)
    world.new_watcher()
    world.add(message(3, "user", "three"))
    world.look()
    assert world.context == ["one", "two", "three"]
    world.new_watcher()
    world.add(message(4, "user", "four"))
    world.look()
    assert world.context == ["one", "two", "three", "four"]
