"""The watcher brings many files up to their ends, whatever one of them is."""

import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

import pytest

import steno
from steno_agents.claude_code import ClaudeCode
from steno_agents.following import lines_of
from steno_agents.limits import FOLLOWED_READER_BYTES
from steno_agents.origin import read_origin
from steno_follow.aside import folder_aside
from steno_follow.context import FollowedContext
from steno_follow.file_watch import FileWatch
from steno_follow.following import Follower
from steno_follow.limits import (
    WATCH_BACKOFF_MAX_S,
    WATCH_BACKOFF_MIN_S,
    WATCH_PROGRESS_S,
    WATCH_SETTLED_S,
)
from steno_follow.naming import id_of_copy
from steno_follow.search import find_one
from steno_follow.source_tree import SourceTree
from steno_follow.watching import Seen, Watcher
from steno_protocol import compression
from support.compressed import compress_streams
from support.daemon_in_thread import DaemonInThread

SESSION = "11111111-2222-4333-8444-{:012}"


def node(number: int, kind: str, content: object, session: str) -> dict[str, Any]:
    parent = str(number - 1) if number > 1 else None
    return {
        "type": kind, "uuid": str(number), "parentUuid": parent, "sessionId": session,
        "cwd": "/srv/shop", "isSidechain": False,
        "message": {"role": kind, "content": content, "id": str(number)},
    }  # fmt: skip


class World:
    """A daemon, a folder of transcripts, and a clock that a test moves on."""

    def __init__(self, client: steno.BlockingClient, root: Path, folder: Path) -> None:
        self.client = client
        self.root = root
        self.folder = folder
        self.now = 0.0
        self.watch = FileWatch([folder])
        self.watcher = self.new_watcher()

    def new_watcher(self) -> Watcher:
        self.watch.close()
        self.watch = FileWatch([self.folder])
        self.watcher = Watcher(
            self.client, self.root / "sessions", lambda _: None, self.watch, lambda: self.now
        )
        return self.watcher

    def close(self) -> None:
        self.watch.close()

    def file(self, number: int) -> Path:
        return self.folder / "-srv-shop" / f"{SESSION.format(number)}.jsonl"

    def session(self, number: int) -> str:
        return f"claude-code/srv-shop/{SESSION.format(number)}"

    def write(self, number: int, *texts: str) -> Path:
        """Let a transcript have these texts, the questions and the answers."""
        file = self.file(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        kinds = ("user", "assistant")
        file.write_text("".join(
            json.dumps(node(
                at + 1, kinds[at % 2],
                words if at % 2 == 0 else [{"type": "text", "text": words}],
                SESSION.format(number),
            )) + "\n"
            for at, words in enumerate(texts)
        ))  # fmt: skip
        return file

    def look(self, after: float = 2.0) -> list[Seen]:
        self.now += after
        self.watcher.look()
        return list(self.watcher.work())

    def notes(self) -> list[str]:
        """What a look says of files and folders."""
        seen = self.look()
        return [
            *(f"{path}: {why}" for path, why in self.watch.left_out),
            *(f"{each.path}: {note}" for each in seen for note in each.notes),
        ]

    def states(self, after: float = 2.0) -> dict[str | None, str]:
        return {each.session: each.state for each in self.look(after)}

    def context(self, number: int) -> list[str]:
        records = self.client.session(self.session(number)).records()
        return [each.record["content"] for each in records]


@pytest.fixture
def world(daemon: DaemonInThread, tmp_path: Path) -> Iterator[World]:
    with steno.connect_sync(daemon.root, spawn=False) as client:
        world = World(client, daemon.root, tmp_path / "projects")
        with closing(world):
            yield world


def test_new_files_become_sessions_and_grow(world: World) -> None:
    assert world.look() == []
    world.write(1, "one")
    world.write(2, "eins")
    assert world.states() == {world.session(1): "imported", world.session(2): "imported"}
    world.write(1, "one", "two", "three")
    assert world.states() == {world.session(1): "grown"}
    assert world.context(1) == ["one", "two", "three"]
    assert world.look() == []


def test_a_last_answer_is_added_once_the_file_is_silent(world: World) -> None:
    world.write(1, "one")
    world.look()
    world.write(1, "one", "two")
    [seen] = world.look()
    assert (seen.messages, world.context(1)) == (0, ["one"])
    [seen] = world.look(WATCH_SETTLED_S)
    assert (seen.messages, world.context(1)) == (1, ["one", "two"])
    assert world.look(WATCH_SETTLED_S) == []


def test_the_next_watcher_reads_no_file_that_is_complete(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        world.write(number, "one", "two")
    world.look()
    world.look(WATCH_SETTLED_S)
    world.write(1, "one", "two", "three")
    opened: list[Path] = []

    def noting(tree: Any, inside: Any) -> Any:
        opened.append(tree.path(inside))
        return find_one(tree, inside)

    monkeypatch.setattr("steno_follow.watching.find_one", noting)
    world.new_watcher()
    assert world.states() == {world.session(1): "grown"}
    assert opened == [world.file(1)]
    assert world.watcher.idle == 2


def test_a_session_that_was_left_half_done_is_completed_by_the_next_watcher(world: World) -> None:
    world.write(1, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    world.write(1, "one", "two", "three")
    # The stream has the lines, and the context has not: the watcher was killed in between.
    source = world.watcher.sources[str(world.file(1))]
    follower = Follower(world.client, source, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FollowedContext, "update", _die)
        with pytest.raises(RuntimeError):
            follower.look()
    assert world.context(1) == ["one"]
    world.new_watcher()
    world.look()
    assert world.context(1) == ["one", "two", "three"]


def _die(*_: object, **__: object) -> None:
    raise RuntimeError


def test_a_deleted_file_is_marked_and_a_moved_one_is_the_same_session(world: World) -> None:
    world.write(1, "one")
    world.write(2, "eins")
    world.look()
    world.file(1).unlink()
    assert world.states() == {}
    assert world.states(WATCH_SETTLED_S) == {world.session(1): "deleted"}
    assert "source-deleted" in world.client.stat(world.session(1)).labels
    moved = world.folder / "-srv-store" / world.file(2).name
    moved.parent.mkdir()
    world.file(2).rename(moved)
    assert world.states() == world.states(WATCH_SETTLED_S) == {}
    with moved.open("a") as more:
        more.write(json.dumps(node(2, "user", "zwei", SESSION.format(2))) + "\n")
    assert world.states() == {world.session(2): "grown"}
    assert world.context(2) == ["eins", "zwei"]
    assert "source-deleted" not in world.client.stat(world.session(2)).labels


def test_a_file_that_was_deleted_while_nobody_watched_is_marked(world: World) -> None:
    world.write(1, "one")
    world.look()
    world.file(1).unlink()
    world.new_watcher()
    assert world.states() == {world.session(1): "deleted"}
    world.new_watcher()
    assert world.states() == {}


def test_a_file_that_was_moved_while_nobody_watched_is_the_same_session(world: World) -> None:
    world.write(1, "one")
    world.look()
    moved = world.folder / "-srv-store" / world.file(1).name
    moved.parent.mkdir()
    world.file(1).rename(moved)
    world.new_watcher()
    with folder_aside(world.root / "sessions"):
        world.write(2, "a new one waits")
        assert world.look() == [], "the file may be found behind it"
    assert world.states() == {world.session(2): "imported"}
    assert "source-deleted" not in world.client.stat(world.session(1)).labels
    with moved.open("a") as more:
        more.write(json.dumps(node(2, "user", "two", SESSION.format(1))) + "\n")
    assert world.states() == {world.session(1): "grown"}
    assert world.context(1) == ["one", "two"]


def test_a_file_that_was_complete_as_the_watch_began_is_marked_when_it_goes(world: World) -> None:
    world.write(1, "one")
    world.write(2, "eins")
    world.look()
    world.look(WATCH_SETTLED_S)
    world.new_watcher()
    assert world.states() == {}
    assert world.watcher.idle == 2
    world.file(1).unlink()
    (world.folder / "-srv-store").mkdir()
    world.file(2).rename(world.folder / "-srv-store" / world.file(2).name)
    world.look()
    assert world.states(WATCH_SETTLED_S) == {world.session(1): "deleted"}


def more(file: Path, number: int, words: str, session: str) -> None:
    with file.open("a") as content:
        content.write(json.dumps(node(number, "user", words, session)) + "\n")


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "while nobody watched"])
@pytest.mark.parametrize("grows", [True, False], ids=["and growth", "alone"])
def test_a_file_that_was_renamed_is_the_same_session(
    world: World, is_watched: bool, grows: bool
) -> None:
    world.write(1, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    # Claude Code goes on with it under the id that is its name now.
    world.file(1).rename(world.file(2))
    if grows:
        more(world.file(2), 2, "two", SESSION.format(2))
    if not is_watched:
        world.new_watcher()
    assert world.states() == ({world.session(1): "grown"} if grows else {})
    assert world.states(WATCH_SETTLED_S) == {}
    more(world.file(2), 3, "three", SESSION.format(2))
    assert world.states() == {world.session(1): "grown"}
    world.file(2).rename(world.file(3))
    assert world.states() == world.states(WATCH_SETTLED_S) == {}
    assert [each.session for each in world.client.sessions()] == [world.session(1)]
    assert world.client.stat(world.session(1)).labels == ("claude-code",)
    origin = read_origin(world.client.session(world.session(1)))
    assert origin is not None
    assert origin.id == SESSION.format(3)


def test_a_new_file_at_the_old_name_of_a_renamed_one_is_a_session_of_its_own(world: World) -> None:
    world.write(1, "one")
    world.look()
    world.file(1).rename(world.file(2))
    world.look()
    world.write(1, "eins")
    [seen] = world.look()
    assert seen.state == "imported"
    assert seen.session == id_of_copy(world.session(1), world.file(1))
    world.new_watcher()
    more(world.file(1), 2, "zwei", SESSION.format(1))
    assert world.states() == {seen.session: "grown"}
    assert world.context(1) == ["one"]


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "while nobody watched"])
def test_a_copy_is_a_session_of_its_own_and_the_first_goes_on(
    world: World, is_watched: bool
) -> None:
    world.write(1, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    if not is_watched:
        world.new_watcher()
    shutil.copy(world.file(1), world.file(2))
    assert world.states() == {world.session(2): "imported"}
    more(world.file(1), 2, "two", SESSION.format(1))
    more(world.file(2), 2, "zwei", SESSION.format(2))
    assert world.states() == {world.session(1): "grown", world.session(2): "grown"}
    assert (world.context(1), world.context(2)) == (["one", "two"], ["one", "zwei"])


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "while nobody watched"])
def test_a_file_with_the_inode_of_one_that_is_gone_is_another_session(
    world: World, is_watched: bool
) -> None:
    world.write(1, "one", "two")
    world.look()
    world.look(WATCH_SETTLED_S)
    inode = world.file(1).stat().st_ino
    world.file(1).rename(world.file(2))
    world.write(2, "one")
    assert world.file(2).stat().st_ino == inode
    if not is_watched:
        world.new_watcher()
    found = world.states() | world.states(WATCH_SETTLED_S)
    assert found == {world.session(1): "deleted", world.session(2): "imported"}
    assert world.context(1) == ["one", "two"]


def test_a_file_with_the_inode_and_the_name_of_one_that_is_gone_is_a_new_generation(
    world: World,
) -> None:
    world.write(1, "one")
    world.look()
    inode = world.file(1).stat().st_ino
    world.write(1, "eins", "zwei", "drei")
    assert world.file(1).stat().st_ino == inode
    assert world.states() == {world.session(1): "rewritten"}
    session = world.client.session(world.session(1))
    assert [each.record["content"] for each in session.records("0:0")] == ["one"]


def codex_rollout(world: World) -> Path:
    """A rollout of Codex, whose session the first record names."""
    file = world.folder / "2026" / f"rollout-1-{SESSION.format(1)}.jsonl"
    file.parent.mkdir(parents=True)
    payload = {"id": SESSION.format(1), "cwd": "/srv"}
    head = {"timestamp": "t", "type": "session_meta", "payload": payload}
    file.write_text(json.dumps(head) + "\n")
    codex_says(file, "one")
    return file


def codex_says(file: Path, words: str) -> None:
    content = [{"type": "input_text", "text": words}]
    payload = {"type": "message", "role": "user", "content": content}
    item = {"timestamp": "t", "type": "response_item", "payload": payload}
    with file.open("a") as rollout:
        rollout.write(json.dumps(item) + "\n")


def test_a_copy_whose_records_name_the_session_of_another_file_is_its_own_once_it_grows(
    world: World,
) -> None:
    file = codex_rollout(world)
    session = f"codex/{SESSION.format(1)}"
    assert world.states() == {session: "imported"}
    copy = file.with_name("rollout-2.jsonl")
    shutil.copy(file, copy)
    assert world.states() == world.states(WATCH_SETTLED_S) == {}
    codex_says(copy, "zwei")
    own = id_of_copy(session, copy)
    assert world.states() == {own: "imported"}
    codex_says(file, "two")
    codex_says(copy, "drei")
    assert world.states() == {session: "grown", own: "grown"}
    contexts = [
        [each.record["content"] for each in world.client.session(name).records()]
        for name in (session, own)
    ]
    assert contexts == [["one", "two"], ["one", "zwei", "drei"]]


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "while nobody watched"])
def test_a_copy_takes_the_place_of_its_original_that_goes(world: World, is_watched: bool) -> None:
    file = codex_rollout(world)
    world.look()
    copy = file.with_name("rollout-2.jsonl")
    shutil.copy(file, copy)
    world.look()
    file.unlink()
    if not is_watched:
        world.new_watcher()
    assert world.states() == world.states(WATCH_SETTLED_S) == {}
    codex_says(copy, "two")
    session = f"codex/{SESSION.format(1)}"
    assert world.states() == {session: "grown"}
    assert world.client.stat(session).labels == ("codex",)


def test_what_is_no_transcript_is_passed_over_until_it_becomes_one(world: World) -> None:
    world.folder.mkdir()
    (world.folder / "notes.jsonl").write_text('{"note": 1}\n')
    file = world.write(1)
    assert world.look() == []
    file.write_text('{"type":"summary","summary":"x","leafUuid":"1"}\n')
    assert world.look() == []
    world.write(1, "one")
    assert world.states() == {world.session(1): "imported"}


def test_a_transcript_that_no_reader_understands_is_named_with_a_guess(world: World) -> None:
    world.write(1, "one")
    other = world.file(2)
    other.write_text('{"type": "session_start", "sessionId": "s"}\n')
    seen = {each.path: each for each in world.look()}
    assert "it looks like a transcript of CodeBuddy" in seen[str(other)].notes[0]
    assert world.look(WATCH_BACKOFF_MIN_S) == []


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


def too_long(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x" * 3000 + b"\n")


def half_utf8(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"a":"\xf0\x9f"}\n')


def test_a_new_file_is_named_with_its_damaged_lines(world: World) -> None:
    file = world.write(1, "one")
    place = file.stat().st_size
    with file.open("ab") as content:
        content.write(b"torn\nthe program writes the rest of this")
    [seen] = world.look()
    assert seen.state == "imported"
    [note] = seen.notes
    assert f"is no record, kept in its stream only: byte {place}" in note


@pytest.mark.parametrize("damage", [unreadable, too_long, half_utf8])
def test_the_others_go_on_beside_a_file_that_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("steno_follow.lines.TRANSCRIPT_LINE_BYTES_MAX", 1000)
    for number in range(1, 4):
        world.write(number, "one")
    world.look()
    for number in range(1, 4):
        world.write(number, "one", "two", "three")
    damage(world.file(2))
    world.look()
    assert world.context(1) == world.context(3) == ["one", "two", "three"]


def test_a_failure_is_said_once_and_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.write(1, "one")
    world.look()
    world.write(1, "one", "two", "three")
    monkeypatch.setattr("steno_follow.lines.TRANSCRIPT_LINE_BYTES_MAX", 10)
    [seen] = world.look()
    assert (seen.state, seen.path) == ("left_out", str(file))
    assert "more than steno reads" in seen.notes[0]
    assert world.look() == []
    monkeypatch.undo()
    assert world.states(WATCH_BACKOFF_MIN_S) == {world.session(1): "grown"}


def test_a_file_waits_while_another_import_runs(world: World) -> None:
    world.write(1, "one")
    with folder_aside(world.root / "sessions"):
        assert world.look() == []
    assert world.states() == {world.session(1): "imported"}


def test_nothing_is_lost_while_the_daemon_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> Any:
        raise steno.Unreachable("no daemon answers")

    world.write(1, "one")
    world.look()
    world.write(1, "one", "two", "three")
    with monkeypatch.context() as patched:
        patched.setattr(world.client, "request", away)
        with pytest.raises(steno.Unreachable):
            world.look()
    assert world.states() == {world.session(1): "grown"}
    assert world.context(1) == ["one", "two", "three"]


def test_readers_of_large_files_leave_the_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_follow.watching.WATCH_READERS_MAX", 2)
    for number in range(4):
        world.write(number, "one")
    world.look()
    for number in range(4):
        world.write(number, "one", "two", "three")
    world.look()
    assert len(world.watcher.followers) == 2
    records = 3 * ClaudeCode.record_bytes
    monkeypatch.setattr("steno_follow.watching.WATCH_READERS_BYTES_MAX", records)
    for number in range(4):
        world.write(number, "one", "two", "three", "four", "five")
    world.look()
    assert len(world.watcher.followers) == 1
    assert world.context(0) == ["one", "two", "three", "four", "five"]


def test_a_long_file_is_taken_in_bit_by_bit_and_others_come_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_follow.watching.WATCH_LOOK_BYTES", 1000)
    texts = [f"text {number}" for number in range(20)]
    world.write(1, *texts)
    [seen] = world.look()
    assert seen.state == "imported"
    assert 1 < len(world.context(1)) < 10
    world.write(2, "one")
    looks = 0
    while world.context(1) != texts:
        seen, *rest = world.look(WATCH_PROGRESS_S)
        assert (seen.session, len(rest)) == (
            (world.session(1), 0) if looks else (world.session(2), 1)
        )
        looks += 1
    assert looks > 2
    world.write(1, *texts, "more")
    world.look()
    assert world.context(1) == [*texts, "more"]


def test_of_a_long_file_a_line_is_said_now_and_then_and_at_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_follow.watching.WATCH_LOOK_BYTES", 1000)
    texts = [f"text {number}" for number in range(100)]
    file = world.write(1, *texts)
    [seen] = world.look()
    assert seen.state == "imported"
    [begun], imported = world.context(1)[:1], len(world.context(1))
    assert begun == texts[0]
    [first] = world.client.session(world.session(1)).stream("source").last(1)
    looks, said = 0, list[Seen]()
    while world.context(1) != texts:
        said += world.look(WATCH_PROGRESS_S / 5)
        looks += 1
    said += world.look(WATCH_SETTLED_S)
    assert looks > 10
    assert 1 < len(said) <= looks / 5 + 2
    assert {each.state for each in said} == {"grown"}
    assert sum(each.messages for each in said) == len(texts) - imported
    assert sum(each.file_bytes for each in said) == file.stat().st_size - first.record["offset"]
    # A note waits for nothing.
    with file.open("ab") as content:
        content.write(b"no record\n" + b"".join(file.read_bytes().splitlines(keepends=True)))
    notes = [note for _ in range(5) for seen in world.look(0.1) for note in seen.notes]
    assert len(notes) == 1


def test_a_conversation_is_followed_up_to_a_number_of_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaudeCode, "record_bytes", FOLLOWED_READER_BYTES // 3)
    world.write(1, "one")
    world.look()
    file = world.write(1, "one", "two", "three", "four", "five")
    [seen] = world.look()
    assert "only its stream claude-code grows" in seen.notes[0]
    assert world.context(1) == ["one"]
    world.new_watcher()
    with file.open("ab") as content:
        content.write(b'{"more": 1}\n')
    world.look()
    stream = world.client.session(world.session(1)).stream("claude-code")
    assert b"".join(lines_of(each.data for each in stream.records())) == file.read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_named(world: World) -> None:
    file = world.write(1, "one")
    file.chmod(0)
    [seen] = world.look()
    assert seen.state == "left_out"
    assert "Permission denied" in seen.notes[0]


def test_a_title_follows_the_name_in_the_index_and_in_the_file(world: World) -> None:
    def event(**payload: Any) -> str:
        return json.dumps({"timestamp": "t", "type": "event_msg", "payload": payload}) + "\n"

    def name(title: str) -> None:
        with (world.folder / "session_index.jsonl").open("a") as index:
            index.write(json.dumps({"id": session, "thread_name": title}) + "\n")

    session = SESSION.format(1)
    rollout = world.folder / "2026" / f"rollout-1-{session}.jsonl"
    rollout.parent.mkdir(parents=True)
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    head = {"timestamp": "t", "type": "session_meta", "payload": {"id": session, "cwd": "/srv"}}
    item = {"timestamp": "t", "type": "response_item", "payload": said}
    rollout.write_text(json.dumps(head) + "\n" + json.dumps(item) + "\n")

    def title() -> str:
        return world.client.stat(f"codex/{session}").title

    world.look()
    assert title() == "hi"
    with rollout.open("a") as more:
        more.write(event(type="thread_name_updated", thread_name="Till"))
    world.look()
    assert title() == "Till"
    world.look(WATCH_SETTLED_S + 1)
    for wanted in ("Door", "Roof"):
        name(wanted)
        world.look()
        assert title() == wanted
    name("Wall")
    world.new_watcher()
    world.look()
    assert title() == "Wall", "the name came while nobody watched"


def test_sessions_with_compressed_streams_are_known_and_grow(
    world: World, daemon: DaemonInThread
) -> None:
    world.write(1, "one")
    world.write(2, "eins")
    world.look()
    daemon.stop()
    folders = [world.root / "sessions" / world.session(number) for number in (1, 2)]
    names = ["stream-claude-code.jsonl.zst", "stream-source.jsonl.zst"]
    assert [compress_streams(folder) for folder in folders] == [names, names]
    with (
        DaemonInThread(world.root),
        steno.connect_sync(world.root, spawn=False) as client,
        closing(World(client, world.root, world.folder)) as later,
    ):
        assert later.look() == []
        later.write(1, "one", "two", "three")
        assert later.states() == {later.session(1): "grown"}
        assert later.context(1) == ["one", "two", "three"]
        # Nothing else was opened for it.
        assert {path.name for path in folders[1].glob("stream-*.zst")} == set(names)
        assert not list(folders[0].glob("stream-*.zst"))
    daemon.start()


def test_a_note_that_nothing_can_expand_makes_no_second_session(
    world: World, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(1, "one")
    world.look()
    daemon.stop()
    compress_streams(world.root / "sessions" / world.session(1))
    daemon.start()

    def missing(what: str) -> object:
        raise steno.BadRequest(f"{what} needs zstd: install it")

    monkeypatch.setattr(compression, "_package", missing)
    with pytest.raises(steno.BadRequest, match=r"stream-source\.jsonl\.zst needs zstd: install it"):
        world.new_watcher().look()
    assert [each.session for each in world.client.sessions()] == [world.session(1)]


# --- network file systems -----------------------------------------------------------------------


class Torn(io.FileIO):
    """A file whose server does not answer."""

    def __init__(self, handle: int, number: int) -> None:
        super().__init__(handle, closefd=True)
        self._number = number

    def readinto(self, *_: object) -> int:
        raise OSError(self._number, os.strerror(self._number))

    def readall(self) -> bytes:
        raise OSError(self._number, os.strerror(self._number))


class Faults:
    """A file system that does not answer: calls that name the file get an error."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, call: str, number: int) -> None:
        def failing(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(first: Any, *more: Any, **named: Any) -> Any:
                if name in str(first) or name in "".join(map(str, more)):
                    raise OSError(number, os.strerror(number), str(first))
                return real(first, *more, **named)

            return call

        match call:
            case "stat":
                patch.setattr("os.lstat", failing(os.lstat))
            case "open":
                patch.setattr("os.open", failing(os.open))
            case _:
                patch.setattr(SourceTree, "open", self._torn(SourceTree.open, name, number))

    @staticmethod
    def _torn(real: Callable[..., Any], name: str, number: int) -> Callable[..., Any]:
        def call(tree: SourceTree, inside: PurePath) -> Any:
            file = real(tree, inside)
            if name not in str(inside):
                return file
            with file:
                return io.BufferedReader(Torn(os.dup(file.fileno()), number))

        return call


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES, errno.EIO], ids=os.strerror)
@pytest.mark.parametrize("call", ["stat", "open", "read"])
def test_a_file_that_the_file_system_does_not_give_is_named_and_not_deleted(
    world: World, call: str, number: int
) -> None:
    for each in range(1, 4):
        world.write(each, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    for each in range(1, 4):
        world.write(each, "one", "two", "three")
    with pytest.MonkeyPatch.context() as patch:
        Faults(patch, world.file(2).name, call, number)
        notes = [note for note in world.notes() if world.file(2).name in note]
        assert len(notes) == 1
        assert os.strerror(number) in notes[0]
        for _ in range(3):
            assert not any("deleted" in each.state for each in world.look(WATCH_SETTLED_S))
            assert world.watch.left_out == []
        # Nor by a watcher that begins meanwhile, or an import.
        world.new_watcher()
        world.look()
        assert not any("deleted" in each.state for each in world.look(WATCH_SETTLED_S))
    assert world.context(1) == world.context(3) == ["one", "two", "three"]
    assert world.context(2) == ["one"]
    world.look(WATCH_BACKOFF_MAX_S)
    assert world.context(2) == ["one", "two", "three"]
    assert "source-deleted" not in world.client.stat(world.session(2)).labels


@pytest.mark.parametrize("call", ["stat", "open"])
def test_a_folder_that_the_file_system_does_not_give_is_named_and_searched_again(
    world: World, call: str
) -> None:
    world.write(1, "one")
    world.look()
    with pytest.MonkeyPatch.context() as patch:
        world.write(2, "eins")
        Faults(patch, "-srv-shop", call, errno.ESTALE)
        [note] = [each for each in world.notes() if each.startswith(str(world.file(2).parent))
                  and ".jsonl" not in each]  # fmt: skip
        assert "Stale file handle" in note
        world.look()
        assert world.watch.left_out == []
    assert world.states() == {world.session(2): "imported"}
    assert "source-deleted" not in world.client.stat(world.session(1)).labels


def test_of_a_folder_that_does_not_answer_no_file_is_named(world: World) -> None:
    for each in range(1, 4):
        world.write(each, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    with pytest.MonkeyPatch.context() as patch:
        Faults(patch, "-srv-shop", "stat", errno.ENOTCONN)
        [note] = world.notes()
        assert note.startswith(f"{world.file(1).parent}: it cannot be read")
    assert world.notes() == []


def test_a_file_system_that_is_mounted_again_has_other_numbers_and_the_same_files(
    world: World, tmp_path: Path
) -> None:
    world.write(1, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    again = tmp_path / "again"
    shutil.copytree(world.folder, again)
    # The watch has a handle of what was there before.
    world.folder.rename(tmp_path / "before")
    again.rename(world.folder)
    assert world.states() == world.states(WATCH_SETTLED_S) == {}
    more(world.file(1), 2, "two", SESSION.format(1))
    world.write(2, "eins")
    assert world.states() == {world.session(1): "grown", world.session(2): "imported"}
    assert (world.context(1), world.client.stat(world.session(1)).generation) == (["one", "two"], 0)


@pytest.mark.parametrize("is_watched", [True, False])
def test_what_an_unmounted_folder_marked_is_unmarked_when_its_files_return(
    world: World, tmp_path: Path, is_watched: bool
) -> None:
    world.write(1, "one")
    world.write(2, "eins")
    world.look()
    world.look(WATCH_SETTLED_S)
    away = tmp_path / "away"
    world.folder.rename(away)
    world.folder.mkdir()
    sessions = [world.session(1), world.session(2)]
    found = world.states() | world.states(WATCH_SETTLED_S)
    assert found == dict.fromkeys(sessions, "deleted")

    def marks() -> list[bool]:
        origins = [read_origin(world.client.session(each)) for each in sessions]
        labels = [world.client.stat(each).labels for each in sessions]
        assert ["source-deleted" in each for each in labels] == [
            each.is_gone for each in origins if each
        ]
        return [each.is_gone for each in origins if each]

    assert marks() == [True, True]
    if not is_watched:
        world.new_watcher()
        world.look()
        assert marks() == [True, True]
    world.folder.rmdir()
    away.rename(world.folder)
    if not is_watched:
        world.new_watcher()
    world.look()
    world.look(WATCH_SETTLED_S)
    assert marks() == [False, False]
    more(world.file(1), 2, "two", SESSION.format(1))
    assert world.states() == {world.session(1): "grown"}
    assert (world.context(1), world.client.stat(world.session(1)).generation) == (["one", "two"], 0)


def test_a_size_that_comes_later_than_its_bytes_delays_them_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.write(1, "one")
    world.look()
    world.look(WATCH_SETTLED_S)
    kept, real = os.lstat(file), os.lstat
    with monkeypatch.context() as patch:
        patch.setattr("os.lstat", lambda path: kept if str(path) == str(file) else real(path))
        more(file, 2, "two", SESSION.format(1))
        assert world.states() == {}
    assert world.states() == {world.session(1): "grown"}
    assert world.context(1) == ["one", "two"]


def test_a_file_that_was_deleted_and_is_open_elsewhere_is_deleted(world: World) -> None:
    file = world.write(1, "one")
    world.look()
    # What NFS makes of the name of such a file.
    file.rename(file.with_name(".nfs000000000000012300000001"))
    found = world.states() | world.states(WATCH_SETTLED_S)
    assert found == {world.session(1): "deleted"}
