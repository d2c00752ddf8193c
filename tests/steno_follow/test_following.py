"""The session of a transcript is as its file is, whatever was killed on the way."""

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any
from unittest.mock import patch

import pytest

import steno
from steno_agents.following import lines_of
from steno_follow.aside import folder_aside
from steno_follow.first_import import write_session
from steno_follow.following import Follower
from steno_follow.foreign_source import ForeignSource
from steno_follow.outcomes import Followed
from steno_follow.search import find_one
from steno_follow.source_notes import AnotherCopy
from steno_follow.source_tree import SourceTree
from steno_follow.taking_in import take_in
from steno_protocol.commands import Command
from steno_protocol.errors import Conflict, Exists, TooLarge
from steno_protocol.limits import MIB, RECORD_DEPTH_MAX
from steno_redact.redactor import Redactor
from support.agent_files import CLAUDE, claude_node
from support.daemon_in_thread import DaemonInThread


def said(uuid: str, parent: str | None, words: str) -> dict[str, Any]:
    return claude_node(uuid, parent, "assistant", [{"type": "text", "text": words}])


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


ONE = lines(claude_node("1", None, "user", "one"), said("2", "1", "two"))
THREE = lines(claude_node("3", "2", "user", "three"), said("4", "3", "four"))
BRANCH = lines(claude_node("5", "2", "user", "another three"))


def compaction(before: str, number: int = 6) -> bytes:
    """A compaction of all up to a record, and its summary."""
    boundary = {
        "type": "system", "subtype": "compact_boundary", "uuid": f"b{number}", "parentUuid": None,
        "logicalParentUuid": before, "sessionId": CLAUDE, "isSidechain": False, "content": "",
    }  # fmt: skip
    summary = claude_node(
        str(number), f"b{number}", "user", f"summary {number}", isCompactSummary=True
    )
    return lines(boundary, summary)


SUMMARY = compaction("2")
TORN = b'{"type":"user","uuid":"torn'


class World:
    """One transcript, and the daemon that has its session."""

    def __init__(self, client: steno.BlockingClient, root: Path, folder: Path) -> None:
        self.client = client
        self.root = root
        self.file = folder / f"{CLAUDE}.jsonl"
        self.tree = SourceTree(folder)

    @property
    def source(self) -> ForeignSource:
        found = find_one(self.tree, PurePath(self.file.name))
        assert found is not None
        return found

    def take_in(self) -> None:
        with folder_aside(self.root / "sessions") as aside:
            take_in(self.client, self.source, aside, None)

    def look(self) -> Followed:
        return Follower(self.client, self.source, None).look()

    @property
    def context(self) -> list[str]:
        session = self.client.session(self.source.session)
        return [each.record["content"] for each in session.records()]

    @property
    def kept(self) -> bytes:
        stream = self.client.session(self.source.session).stream("claude-code")
        return b"".join(lines_of(each.data for each in stream.records(strict=True)))

    def check(self, context: Sequence[str]) -> None:
        content = self.file.read_bytes()
        assert self.kept == content[: content.rfind(b"\n") + 1]
        assert self.context == list(context)
        assert not self.look().has_changed, "a second look finds nothing to do"


@pytest.fixture
def world(daemon: DaemonInThread, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "projects" / "-srv-shop"
    folder.mkdir(parents=True)
    with steno.connect_sync(daemon.root, spawn=False) as client:
        world = World(client, daemon.root, folder)
        with closing(world.tree):
            world.file.write_bytes(ONE)
            world.take_in()
            yield world


CASES: dict[str, tuple[bytes, list[str], int]] = {
    "nothing": (ONE, ["one", "two"], 0),
    "more": (ONE + THREE, ["one", "two", "three", "four"], 0),
    "half a line": (ONE + THREE + TORN, ["one", "two", "three", "four"], 0),
    "a glued line": (ONE + TORN + THREE, ["one", "two", "three", "four"], 0),
    "a damaged line": (ONE + b"torn\n" + THREE, ["one", "two", "three", "four"], 0),
    "a branch": (ONE + THREE + BRANCH, ["one", "two", "another three"], 0),
    "a compaction": (ONE + SUMMARY, ["summary 6"], 1),
    "more, and a compaction": (ONE + THREE + compaction("4"), ["summary 6"], 1),
    "two compactions": (ONE + THREE + compaction("4", 6) + compaction("6", 7), ["summary 7"], 2),
    "truncated": (ONE[: ONE.index(b"\n") + 1], ["one"], 1),
    "rewritten": (lines(claude_node("1", None, "user", "other words")) + THREE,
                  ["other words", "three", "four"], 1),
    "emptied": (b"", [], 1),
}  # fmt: skip

PAST: dict[str, list[str]] = {
    "more, and a compaction": ["one", "two", "three", "four"],
    "two compactions": ["one", "two", "three", "four", "summary 6"],
}
"""What the past generations say where they have more than the context had."""


@pytest.mark.parametrize("name", CASES)
def test_a_look_makes_the_session_as_the_file_is(world: World, name: str) -> None:
    content, context, generation = CASES[name]
    source = world.source
    world.file.write_bytes(content)
    found = Follower(world.client, source, None).look()
    assert found.has_changed == (name != "nothing")
    assert world.client.stat(source.session).generation == generation
    if content:
        world.check(context)
    past = [
        each.record["content"]
        for number in range(generation)
        for each in world.client.session(source.session).records(f"{number}:0")
    ]
    assert past == PAST.get(name, ["one", "two"] if generation else [])


@pytest.mark.parametrize("is_kept", [True, False], ids=["one follower", "a new one each time"])
def test_looks_at_a_growing_file_end_as_one_look_at_all_of_it(world: World, is_kept: bool) -> None:
    follower = Follower(world.client, world.source, None)
    for grown in (
        ONE + THREE[:40],
        ONE + THREE,
        ONE + THREE + BRANCH,
        ONE + THREE + BRANCH + SUMMARY,
    ):
        world.file.write_bytes(grown)
        if not is_kept:
            follower = Follower(world.client, world.source, None)
        follower.look(is_settled=False)
    follower.look()
    world.check(["summary 6"])


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("rest", "context"),
    [
        (lines(claude_node("5", "3", "user", "five")), ["one", "two", "three", "five"]),
        (compaction("4") + lines(claude_node("7", "3", "user", "seven")),
         ["one", "two", "three", "seven"]),
    ],
    ids=["a branch", "a compaction and a branch"],
)  # fmt: skip
def test_what_one_look_added_is_gone_back_to_the_middle_of(
    world: World,
    rest: bytes,
    context: Sequence[str],
    is_done: bool,
) -> None:
    number = 0
    while True:
        number += 1
        world.file.write_bytes(ONE)
        world.look()
        world.file.write_bytes(ONE + THREE)
        world.look()
        world.check(["one", "two", "three", "four"])
        world.file.write_bytes(ONE + THREE + rest)
        if not is_killed_at(world, number, world.look, is_done=is_done):
            break
        world.look()
        world.check(context)
    world.check(context)
    session = world.client.session(world.source.session)
    past = [
        [each.record["content"] for each in session.records(f"{each}:0")]
        for each in range(session.stat().generation)
    ]
    assert ["one", "two", "three", "four"] in past


class Killed(Exception):  # what a test raises in the place of a signal
    """The follower dies here."""


def is_killed_at(world: World, number: int, look: Callable[[], object], *, is_done: bool) -> bool:
    """Look with a death before or after a request; False if there were fewer requests."""
    request, sent = world.client.request, 0

    def call(command: Command, *arguments: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == number and not is_done:
            raise Killed
        reply = request(command, *arguments)
        if sent == number:
            raise Killed
        return reply

    with patch.object(world.client, "request", call):
        try:
            look()
        except Killed:
            return True
    assert sent < number
    return False


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "more",
        "a branch",
        "a compaction",
        "two compactions",
        "rewritten",
        "a damaged line",
    ],
)
def test_a_follower_that_dies_at_any_request_is_completed_by_the_next(
    world: World, name: str, is_done: bool
) -> None:
    content, context, _ = CASES[name]
    number = 0
    while True:
        number += 1
        world.file.write_bytes(content)
        look = Follower(world.client, world.source, None).look
        if not is_killed_at(world, number, look, is_done=is_done):
            break
        world.look()
        world.check(context)
        # The next round begins as the first one did.
        world.file.write_bytes(ONE)
        world.look()
        world.check(["one", "two"])
    assert number > 2


def test_two_followers_of_one_file_write_each_line_once(world: World) -> None:
    first, second = (Follower(world.client, world.source, None) for _ in range(2))
    content = ONE
    for number in range(3, 9):
        content += lines(claude_node(str(number), str(number - 1), "user", f"text {number}"))
        world.file.write_bytes(content)
        for follower in (first, second) if number % 2 else (second, first):
            follower.look()
    world.check(["one", "two", *(f"text {number}" for number in range(3, 9))])


def test_a_follower_that_another_one_overtakes_looks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.file.write_bytes(ONE + THREE)
    request, others = world.client.request, [Follower(world.client, world.source, None)]

    def overtaken(*arguments: Any) -> Any:
        if others:
            others.pop().look()
        return request(*arguments)

    monkeypatch.setattr(world.client, "request", overtaken)
    assert not world.look().is_continued_here
    world.check(["one", "two", "three", "four"])


def test_a_session_that_others_go_on_with_keeps_its_context(world: World) -> None:
    session = world.client.session(world.source.session)
    session.append_message({"role": "user", "content": "a word of mine"})
    world.file.write_bytes(ONE + THREE)
    assert world.look().is_continued_here
    assert world.context == ["one", "two", "a word of mine"]
    assert world.kept == ONE + THREE


@pytest.mark.parametrize("replaced", [THREE + BRANCH, SUMMARY], ids=["a branch", "a compaction"])
def test_a_session_that_was_imported_with_past_generations_grows(
    world: World, replaced: bytes
) -> None:
    world.file = world.file.with_name("another.jsonl")
    world.file.write_bytes(ONE + replaced)
    world.take_in()
    before = world.context
    assert world.client.stat(world.source.session).head == f"1:{len(before)}"
    parent = "5" if replaced.endswith(BRANCH) else "6"
    for number in (7, 8):
        with world.file.open("ab") as more:
            more.write(lines(claude_node(str(number), parent, "user", f"more {number}")))
        parent = str(number)
        assert not world.look().is_continued_here
    world.check([*before, "more 7", "more 8"])


def test_a_session_whose_turns_were_dropped_keeps_them_dropped(world: World) -> None:
    session = world.client.session(world.source.session)
    session.revert_to(steno.Position(0, 1))
    world.file.write_bytes(ONE + THREE)
    assert world.look().is_continued_here
    assert world.context == ["one"]


def test_a_session_of_another_origin_is_refused(world: World) -> None:
    world.client.open("mine").append_message({"role": "user", "content": "mine"})
    source = ForeignSource("mine", world.tree, world.source.inside, world.source.format)
    with pytest.raises(Exists, match="does not come from"):
        Follower(world.client, source, None).look()


def test_a_copy_whose_original_is_there_replaces_nothing(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "backup" / "-srv-shop"
    folder.mkdir(parents=True)
    (folder / world.file.name).write_bytes(lines(claude_node("1", None, "user", "other words")))
    with closing(SourceTree(folder)) as tree:
        source = find_one(tree, PurePath(world.file.name))
        assert source is not None
        with pytest.raises(AnotherCopy):
            Follower(world.client, source, None).look()
    world.check(["one", "two"])


def test_a_line_that_takes_several_requests_is_completed_after_a_kill(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_agents.following.RAW_BYTES", 10)
    monkeypatch.setattr("steno_follow.file_stream.RAW_BYTES", 10)
    world.file.write_bytes(ONE + b"torn, and long enough for four\n" + THREE)
    assert is_killed_at(world, 3, world.look, is_done=True)
    world.look()
    world.check(["one", "two", "three", "four"])


def test_a_line_that_is_too_long_is_refused_and_its_place_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_follow.lines.TRANSCRIPT_LINE_BYTES_MAX", 1000)
    world.file.write_bytes(ONE + b"x" * 2000 + b"\n" + THREE)
    with pytest.raises(TooLarge, match=f"the line at byte {len(ONE)} of"):
        world.look()


def test_a_daemon_that_always_refuses_is_no_endless_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise Conflict("another writer was faster")

    world.file.write_bytes(ONE + THREE)
    monkeypatch.setattr(world.client, "request", refuse)
    with pytest.raises(steno.Busy, match="others write the session"):
        world.look()


def test_the_title_of_the_program_is_followed_until_a_person_gives_another(world: World) -> None:
    def titled(title: str) -> bytes:
        return lines({"type": "custom-title", "customTitle": title, "sessionId": CLAUDE})

    session = world.source.session
    world.file.write_bytes(ONE + titled("The till"))
    world.look()
    assert world.client.stat(session).title == "The till"
    world.client.session(session).describe(title="Mine")
    world.file.write_bytes(ONE + titled("The till") + titled("The door"))
    world.look()
    assert world.client.stat(session).title == "Mine"


def test_a_line_is_in_memory_once_whatever_part_of_its_file_is_taken(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 16 * MIB
    monkeypatch.setattr("steno_agents.following.FOLLOWED_LINE_BYTES", MIB)
    world.file.write_bytes(ONE + lines(claude_node("3", "2", "user", "x" * size)) + THREE)
    source = world.source
    (tmp_path / "session").mkdir()
    tracemalloc.start()
    try:
        write_session(source, tmp_path / "session", lambda _: None, None, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < peak < 2 * size


def peaks(world: World, tmp_path: Path) -> tuple[int, int]:
    """The most memory that an import of the file takes, and that a look of a watch takes."""
    found = world.source
    (tmp_path / "session").mkdir()
    tracemalloc.start()
    try:
        write_session(found, tmp_path / "session", lambda _: None, None)
        _, written = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        world.look()
        _, followed = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return written, followed


def test_a_line_that_is_read_takes_its_memory_twice(world: World, tmp_path: Path) -> None:
    data = "A" * (9 * MIB)
    shown = {"type": "image", "file": {"base64": data, "type": "image/png"}}
    source = {"type": "base64", "media_type": "image/png", "data": data}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [
        {"type": "image", "source": source},
    ]}  # fmt: skip
    line = lines(claude_node("3", "2", "user", [result], toolUseResult=shown))
    del data, shown, source, result
    world.file.write_bytes(ONE + line)
    size = len(line)
    del line
    written, followed = peaks(world, tmp_path)
    assert 2 * size < written < 2.2 * size
    assert 2 * size < followed < 2.7 * size


def test_the_text_of_a_long_line_is_in_memory_once_at_a_time(world: World, tmp_path: Path) -> None:
    # One emoji makes each character of its text take four bytes.
    text = 4 * MIB * "x" + "\U0001f600"
    line = json.dumps(claude_node("3", "2", "user", text), ensure_ascii=False).encode() + b"\n"
    del text
    world.file.write_bytes(ONE + line)
    size = len(line)
    del line
    written, followed = peaks(world, tmp_path)
    assert written < 12 * size
    assert followed < 12 * size


def test_a_file_that_is_rewritten_while_it_is_imported_is_refused(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "session").mkdir()
    shown: list[int] = []

    def rewrite(more: int) -> None:
        shown.append(more)
        if len(shown) == ONE.count(b"\n"):
            world.file.write_bytes(lines(claude_node("1", None, "user", "other")) + THREE)

    with pytest.raises(steno.Busy, match="was rewritten while it was copied"):
        write_session(world.source, tmp_path / "session", rewrite, None)


def test_a_conversation_that_its_user_cleared_is_a_past_generation(world: World) -> None:
    def message(words: str) -> dict[str, Any]:
        content = [{"type": "text", "text": words}]
        return {
            "type": "context.append_message",
            "message": {"role": "user", "content": content, "origin": {"kind": "user"}},
        }

    cleared = lines(message("one"), {"type": "context.clear"})
    world.file.write_bytes(cleared)
    world.take_in()
    session = world.client.session(world.source.session)
    assert (world.context, session.stat().head) == ([], "1:0")
    assert not world.look().has_changed
    world.file.write_bytes(cleared + lines(message("two")))
    assert world.look().messages == 1
    assert (world.context, session.stat().head) == (["two"], "1:1")


def test_an_import_leaves_out_the_messages_that_no_follower_adds(
    world: World, tmp_path: Path
) -> None:
    deep: object = "too deep"
    for _ in range(RECORD_DEPTH_MAX):
        deep = [deep]
    image = claude_node("3", "2", "user", [{"type": "image", "source": deep}])
    world.file.write_bytes(ONE + lines(image, said("4", "3", "four")))
    (tmp_path / "session").mkdir()
    found = write_session(world.source, tmp_path / "session", lambda _: None, None)
    context = (tmp_path / "session" / "context.jsonl").read_bytes()
    assert (found.skipped, context.count(b"\n")) == (1, 3)


def test_a_result_that_comes_later_than_its_line_is_taken_in_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steno_follow.companions.RAW_BYTES", 8)
    results = world.file.with_suffix("") / "tool-results"
    follower = Follower(world.client, world.source, None)
    follower.look()
    results.mkdir(parents=True)
    (results / "a.txt").write_text("one\ntwo\nha")
    (results / "link.txt").symlink_to("/etc/hostname")
    assert not follower.look(is_settled=False).has_changed, "it may be half written"
    assert follower.look().companion_bytes
    (results / "a.txt").write_text("one\ntwo\nhalf\n")
    (results / "b.png").write_bytes(b"\x89PNG")
    assert follower.look().has_changed
    world.check(["one", "two"])
    stream = world.client.session(world.source.session).stream("tool-results")
    assert [
        (each.record["file"], each.record.get("text") or each.record["base64"])
        for each in stream.records()
    ] == [
        ("a.txt", "one\ntwo\n"), ("a.txt", "ha"), ("a.txt", "lf\n"), ("b.png", "iVBORw=="),
    ]  # fmt: skip


def test_two_followers_take_a_result_in_once(world: World) -> None:
    results = world.file.with_suffix("") / "tool-results"
    results.mkdir(parents=True)
    (results / "a.txt").write_text("one\n")
    followers = [Follower(world.client, world.source, None) for _ in range(2)]
    for follower in followers:
        follower.look()
    (results / "a.txt").write_text("one\ntwo\n")
    assert [bool(each.look().companion_bytes) for each in followers] == [True, False]
    stream = world.client.session(world.source.session).stream("tool-results")
    assert [each.record["text"] for each in stream.records()] == ["one\n", "two\n"]


def test_a_result_is_masked_as_it_is_written(world: World) -> None:
    results = world.file.with_suffix("") / "tool-results"
    results.mkdir(parents=True)
    (results / "a.txt").write_text("password=hunter2\n")
    Follower(world.client, world.source, Redactor()).look()
    stream = world.client.session(world.source.session).stream("tool-results")
    [record] = [each.record for each in stream.records()]
    assert "hunter2" not in record["text"]
    assert not Follower(world.client, world.source, Redactor()).look().companion_bytes
