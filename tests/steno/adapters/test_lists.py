"""Lists of frameworks, whose streams begin again when most of their records are dead."""

import random
import time
from operator import methodcaller
from typing import Any

import pytest

import steno
from steno._sync.stream import BlockingStream
from steno.adapters import _stream_rewrite
from steno.adapters._either_client import without_waiting
from steno.adapters._lists import RecordLists
from steno.adapters._stream_rewrite import rewrite
from support.daemon_in_thread import DaemonInThread

Entries = list[tuple[str | None, dict[str, Any]]]


def entries(lists: RecordLists) -> Entries:
    state = without_waiting(lists.read("items"))
    return [] if state is None else list(zip(state.names, state.items, strict=True))


def test_random_changes_equal_those_of_a_list_in_bounded_space(
    daemon: DaemonInThread, seed: int
) -> None:
    draw = random.Random(seed)
    plain: Entries = []
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        stream = client.session("talk").stream("items")
        for number in range(400):
            item, name = {"n": number}, draw.choice("abc")
            match draw.choice(["add", "add", "put", "delete", "delete", "delete", "all"]):
                case "add":
                    without_waiting(lists.append("items", [item]))
                    plain.append((None, item))
                case "put":
                    without_waiting(lists.change("items", methodcaller("put", name, item)))
                    names = [each for each, _ in plain]
                    at = names.index(name) if name in names else len(plain)
                    plain[at : at + 1] = [(name, item)]
                case "delete":
                    at = draw.randint(-len(plain), len(plain))
                    deleted = plain.pop(at)[1] if -len(plain) <= at < len(plain) else None
                    assert without_waiting(lists.delete("items", at)) == deleted
                case _ if draw.random() < 0.2:
                    without_waiting(lists.replace_all("items", [item, item]))
                    plain = [(None, item), (None, item)]
            if number % 5 == 0:
                assert entries(lists) == plain
        assert entries(lists) == plain
        head = stream.head()
    assert head.generation > 2
    assert head.line < 300


@pytest.mark.parametrize("count", [0, 100])
def test_replaced_items_leave_the_stream(daemon: DaemonInThread, count: int) -> None:
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.append("items", [{"n": each} for each in range(150)]))
        without_waiting(lists.replace_all("items", [{"m": each} for each in range(count)]))
        without_waiting(lists.replace_all("items", [{"m": each} for each in range(count)]))
        assert [item for _, item in entries(lists)] == [{"m": each} for each in range(count)]
        assert client.session("talk").stream("items").head().line <= 2 * count + 2
        assert [each.name for each in client.session("talk").streams()] == ["items"]


def test_a_rewrite_that_fails_leaves_no_stream_and_the_deletion_stands(
    daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.append("items", [{"n": each} for each in range(150)]))
        monkeypatch.setattr(BlockingStream, "delete", failing_first(BlockingStream.delete))
        without_waiting(lists.replace_all("items", [{"m": 1}]))
        assert entries(lists) == [(None, {"m": 1})]
        assert [each.name for each in client.session("talk").streams()] == ["items"]


def failing_first(method: Any) -> Any:
    """A method whose first call is refused."""
    refusals = iter([steno.StorageFailed("the quota is used up")])

    def failing(*arguments: Any, **options: Any) -> Any:
        for each in refusals:
            raise each
        return method(*arguments, **options)

    return failing


@pytest.mark.parametrize("is_old", [True, False], ids=["old", "new"])
def test_a_rewrite_removes_what_a_killed_one_left(
    daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    left = f"rewrite-{0:016x}"
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.append("items", [{"n": each} for each in range(150)]))
        for name in (left, "rewrite-notes"):
            client.session("talk").stream(name).append({"n": 1})
        if is_old:
            now = time.time() + 100_000
            monkeypatch.setattr(_stream_rewrite.time, "time", lambda: now)
        without_waiting(lists.replace_all("items", [{"m": 1}]))
        found = [each.name for each in client.session("talk").streams()]
        assert found == ["items", *([] if is_old else [left]), "rewrite-notes"]


def test_a_rewrite_whose_records_are_removed_meanwhile_changes_nothing(
    daemon: DaemonInThread,
) -> None:
    with steno.connect_sync(daemon.root) as client:
        session = client.open("talk", follow=False)
        head = session.stream("items").append([{"n": 1}, {"n": 2}]).head

        async def fill(target: BlockingStream) -> None:
            target.append({"n": 1})
            target.delete()
            target.append({"n": 2})

        assert not without_waiting(rewrite(session, "items", head, fill))
        assert [each.name for each in session.streams()] == ["items"]
        assert session.stream("items").head() == head


def test_a_list_with_damage_is_not_rewritten(daemon: DaemonInThread) -> None:
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.append("items", [{"n": each} for each in range(150)]))
        client.drain()
    daemon.wait()
    path = daemon.root / "sessions/talk/stream-items.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"item":{"n":4}', b'!"item":{"n":4}'))
    damaged = path.read_bytes()
    daemon.start()
    with steno.connect_sync(daemon.root) as client:
        lists = RecordLists(client, "talk")
        without_waiting(lists.replace_all("items", [{"m": 1}]))
        assert entries(lists) == [(None, {"m": 1})]
    assert path.read_bytes().startswith(damaged)
