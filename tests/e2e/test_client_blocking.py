"""Every verb of the blocking client against a real daemon."""

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import steno
from steno import (
    BadRequest,
    BlockingClient,
    BlockingSession,
    Conflict,
    Live,
    NotFound,
    Position,
    RecordsEvent,
    Reset,
    Unreachable,
    connect_sync,
)
from steno._connect.connection import Connection
from steno._sansio.event_merge import Followed
from support.crowd import wait_until
from support.messages import message
from support.session_files import records_in

pytestmark = pytest.mark.served


@pytest.fixture
def client(root: Path) -> Iterator[BlockingClient]:
    """A blocking client of the root."""
    with connect_sync(root) as client:
        yield client


@pytest.fixture
def session(client: BlockingClient) -> BlockingSession:
    """The session `demo`, which the blocking client follows."""
    return client.open("demo")


# From Python 3.12 on a fork beside libzmq's threads warns; these tests are about such forks.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_the_blocking_verbs_change_the_mirror_as_they_change_the_file(root: Path) -> None:
    with connect_sync(root, name="planner") as client:
        session = client.open("demo")
        session.write_system_prompt("be nice")
        ack = session.append_message([message("one"), message("two")])
        assert (ack.first, ack.last, ack.head) == (Position(0, 1), Position(0, 2), Position(0, 3))
        session.update_token_count(7)
        assert session.checkpoint(add_user_message=True).checkpoint_id == 0
        session.append_message(message("three"))
        assert session.token_count == 7
        assert session.n_checkpoints == 1
        assert session.system_prompt == "be nice"
        assert session.revert_to(0).rotated == root / "sessions" / "demo" / "context_1.jsonl"
        assert session.history == [message("one"), message("two")]
        assert {record["_by"] for record in records_in(root, "demo")} == {"planner"}
        session.clear(why="fresh start")
        assert session.history == []
        assert [entry.why for entry in session.timeline()] == [None, None, "fresh start"]
        session.restore_generation(1)
        assert session.history == [message("one"), message("two")]
        assert session.history_at("0:2").history == [message("one")]
        with pytest.raises(NotFound, match="no position 2:999"):
            session.history_at("2:999")
        assert session.stat().head == str(session.head)
        assert [entry.session for entry in client.sessions()] == ["demo"]
        assert [entry.name for entry in session.clients().clients] == ["planner"]
        assert client.status().root == str(root)


def test_both_clients_raise_the_same_errors(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")
        with pytest.raises(Conflict) as raised:
            session.append_message(message("x"), expect="0:9")
        assert raised.value.head == "0:0"
        with pytest.raises(BadRequest):
            session.append_message({"role": "user", "content": float("nan")})
        with pytest.raises(NotFound):
            session.revert_to(3)
        with pytest.raises(NotFound):
            client.open("other", create=False)
        unfollowed = client.open("demo", follow=False)
        with pytest.raises(BadRequest, match="follow=False"):
            _ = unfollowed.history
        assert not unfollowed.restore()
        session.append_message(message("x"), key="k")
        assert session.append_message(message("x"), key="k").duplicate
        with pytest.raises(RuntimeError):
            session.restore()
    with pytest.raises(BadRequest, match="closed"):
        client.status()


def test_a_refresh_takes_in_records_of_other_clients(root: Path) -> None:
    with connect_sync(root) as one, connect_sync(root) as other:
        writer, reader = one.open("demo"), other.open("demo")
        ack = writer.append_message(message("hi"))
        assert reader.wait_for(ack.head, timeout=30)
        assert reader.history == [message("hi")]
        assert not reader.wait_for("0:9", timeout=0.01)
        reader.append_message(message("ho"))
        writer.append_message(message("hu"))
        writer.refresh()
        assert writer.history == [message("hi"), message("ho"), message("hu")]


def test_a_changed_history_list_changes_no_other_history(session: BlockingSession) -> None:
    session.append_message(message("hi"))
    mine = session.history
    mine.append(message("only for my model"))
    assert session.history == [message("hi")]
    mine.clear()
    assert session.history == [message("hi")]
    session.append_message(message("ho"))
    assert session.history == [message("hi"), message("ho")]
    assert mine == []


def test_a_blocking_subscription_gives_backlog_live_and_news(root: Path) -> None:
    with connect_sync(root) as client, connect_sync(root) as other:
        session = client.open("demo", follow=False)
        session.append_message(message("a"))
        with other.open("demo", follow=False).subscribe() as events:
            assert isinstance(next(events), RecordsEvent)
            assert next(events) == Live(Position(0, 1))
            assert events.next_event(timeout=0.01) is None
            session.append_message(message("b"))
            news = next(events)
            assert isinstance(news, RecordsEvent)
            assert [record.record["content"] for record in news.records()] == ["b"]
            session.clear()
            assert isinstance(next(events), Reset)
        assert events.next_event() is None


@pytest.mark.parametrize("records", ["context", "wire", "both"])
def test_a_subscription_from_now_delivers_every_later_ack(root: Path, records: Followed) -> None:
    files = {"context", "wire"} if records == "both" else {records}
    with connect_sync(root) as client, connect_sync(root) as other:
        session, writer = client.open("demo", follow=False), other.open("demo", follow=False)
        writer.append_wire("Note", {}, durability="synced")
        with session.subscribe("now", records=records) as events:
            writer.append_message(message("a"))
            writer.append_wire("Note", {}, durability="synced")
            news: dict[str, int] = {}
            while set(news) != files:
                event = next(events)
                if isinstance(event, RecordsEvent):
                    news[event.file] = len(event.lines())
        assert set(news.values()) == {1}


def test_a_saved_position_of_an_old_incarnation_begins_with_a_reset(
    client: BlockingClient, session: BlockingSession
) -> None:
    session.append_message([message("old"), message("old")])
    unfollowed = client.open("demo", follow=False)
    with session.subscribe() as events:
        assert isinstance(next(events), RecordsEvent)
        saved = events.incarnation
    assert saved == session.incarnation == unfollowed.incarnation is not None
    assert client.session("demo").incarnation is None
    with session.subscribe("0:2", incarnation=saved) as events:
        assert next(events) == Live(Position(0, 2))
    client.delete("demo")
    again = client.open("demo")
    again.append_message([message("new") for _ in range(3)])
    assert again.incarnation != saved
    for after in ("0:2", "5:7"):
        with again.subscribe(after, incarnation=saved) as events:
            assert events.incarnation == saved
            reset = next(events)
            assert isinstance(reset, Reset)
            assert (reset.kept, reset.incarnation) == (0, again.incarnation)
            assert events.incarnation == again.incarnation
            backlog = next(events)
            assert isinstance(backlog, RecordsEvent)
            assert len(backlog.lines()) == 3


@pytest.mark.served(False)
def test_a_subscription_from_now_on_that_cannot_begin_says_so(root: Path) -> None:
    with connect_sync(root) as client:
        with pytest.raises(NotFound):
            client.session("nobody").subscribe("now")
        assert client.open("demo").subscribe("now").next_event() == Live(Position(0, 0))
        client.drain()
    with connect_sync(root) as client, connect_sync(root, spawn=False) as other:
        session = other.open("demo", follow=False)
        client.drain()
        other._link.timeout = 2.0
        with pytest.raises(Unreachable):
            session.subscribe("now")


@pytest.mark.parametrize(
    "seen",
    [
        lambda client: len(list(client.session("demo").lines())),
        lambda client: len(client.session("demo").history_at().history),
        lambda client: len(client.open("demo").history),
        lambda client: Position.parse(client.stat("demo").head).line,
        lambda client: len(next(client.session("demo").subscribe()).lines()),
    ],
    ids=["lines", "history_at", "open", "stat", "subscribe"],
)
def test_readers_see_lines_of_other_programs_in_an_open_session(
    root: Path, seen: Callable[[BlockingClient], int]
) -> None:
    file = root / "sessions" / "demo" / "context.jsonl"
    with connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(message("mine"))
        with file.open("ab") as other:
            other.write(b'{"role":"user","content":"theirs"}\n')
        assert seen(client) == 2
        # Another file under its name, as kimi-cli's revert leaves it.
        file.rename(file.with_name("context_1.jsonl"))
        file.write_bytes(b'{"role":"user","content":"a"}\n' * 3)
        assert seen(client) == 3
        session.append_message(message("last"))
        assert len(session.history) == 4


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_objects_of_a_connection_cannot_be_copied(
    root: Path, copied: Callable[[object], object]
) -> None:
    asynchronous = steno.connect(root)
    with connect_sync(root) as client:
        session = client.open("demo")
        for each in (client, session, session.subscribe(), asynchronous):
            with pytest.raises(TypeError, match="belongs to its client's connection"):
                copied(each)
        gc.collect()
        session.append_message(message("a"))
        assert session.history == [message("a")]


@forks
@pytest.mark.served(False)
def test_a_fork_disables_the_client_in_the_child_only(
    client: BlockingClient, session: BlockingSession
) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if _is_refused(client) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.append_message(message("parent"))
    assert session.history == [message("parent")]


def _is_refused(client: BlockingClient) -> bool:
    try:
        client.status()
    except BadRequest as error:
        client.close()
        return "fork" in error.message
    return False


@forks
@pytest.mark.served(False)
def test_a_client_disconnects_although_its_forked_child_lives_on(root: Path) -> None:
    wait, let_go = os.pipe()
    with connect_sync(root) as other:
        client = connect_sync(root)
        client.open("demo").append_message(message("parent"))
        child = os.fork()
        if child == 0:
            os.close(let_go)
            os.read(wait, 1)
            os._exit(0)
        assert len(other.clients().clients) == 2
        client.close()
        wait_until(lambda: len(other.clients().clients) == 1)
        os.close(let_go)
        os.close(wait)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@forks
@pytest.mark.served(False)
def test_a_child_can_connect_by_itself_after_a_fork(root: Path, client: BlockingClient) -> None:
    child = os.fork()
    if child == 0:
        with connect_sync(root) as own:
            own.open("demo").append_message(message("child"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.open("demo").history == [message("child")]


def test_blocking_client_imports_no_event_loop(root: Path) -> None:
    program = (
        "import sys, steno\n"
        "before = set(sys.modules)\n"
        "with steno.connect_sync(sys.argv[1]) as client:\n"
        "    session = client.open('demo')\n"
        "    session.append_message({'role': 'user', 'content': 'hi'})\n"
        "    assert len(session.history) == 1\n"
        "loops = {'asyncio', 'anyio', 'trio'} & set(sys.modules)\n"
        "assert not loops, loops\n"
        "assert 'steno._sync.client' not in before, 'import steno is not lazy'\n"
        "assert 'steno._sync.client' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(root)], check=True)


def test_every_public_name_is_there() -> None:
    for name in steno.__all__:
        assert getattr(steno, name) is not None
    assert set(steno.__all__) <= set(dir(steno))
    with pytest.raises(AttributeError):
        _ = steno.nonsense


def test_events_that_never_end_keep_no_change_from_being_sent(
    session: BlockingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def more_is_there(_: Connection) -> bool:
        nonlocal looks
        looks += 1
        assert looks < 1000, "it looks for ever before it sends"
        return True

    monkeypatch.setattr(Connection, "has_messages", property(more_is_there))
    assert session.append_message(message("one")).head == Position(0, 1)
