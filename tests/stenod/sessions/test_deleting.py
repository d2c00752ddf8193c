"""Deletions and descriptions of sessions, as clients of a daemon see them."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import steno
from steno import NotFound, connect
from steno_protocol import limits
from support.daemon_in_thread import DaemonInThread
from support.messages import message
from support.session_files import trash_of


@pytest.mark.usefixtures("daemon")
def test_recreated_session_is_another_session(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        session.append_message(message("one"), key="k1")
        first = session.stat()
        deleted = client.delete("demo", key="d")
        with pytest.raises(NotFound):
            session.append_message(message("two"))
        again = client.open("demo")
        assert again.history == []
        assert again.stat().incarnation != first.incarnation
        # A key of the deleted session is new in this one.
        assert not again.append_message(message("one"), key="k1").duplicate
        assert client.delete("demo", key="d") == deleted
        assert again.append_message(message("two")).last == (0, 1)
        assert len(trash_of(root)) == 1


@pytest.mark.usefixtures("daemon")
@pytest.mark.anyio
async def test_client_of_a_deleted_session_cannot_write_into_its_successor(
    root: Path,
) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        blocking = client.open("demo")
        async with connect(root, spawn=False) as other:
            session = await other.open("demo")
            client.delete("demo")
            client.open("demo", follow=False)
            # The first one each may be sent before the client receives the deletion.
            first, second = message("first"), message("second")
            with contextlib.suppress(NotFound):
                await session.append_message(first)
            with contextlib.suppress(NotFound):
                blocking.append_message(first)
            for _ in range(3):
                with pytest.raises(NotFound, match="open it again"):
                    await session.append_message(second)
                with pytest.raises(NotFound, match="open it again"):
                    blocking.append_message(second)
            assert second not in client.open("demo").history
            assert (await (await other.open("demo")).append_message(second)).last.generation == 0


@pytest.mark.usefixtures("daemon")
def test_blocking_change_fails_when_its_session_was_recreated(root: Path) -> None:
    with (
        steno.connect_sync(root, spawn=False) as client,
        steno.connect_sync(root, spawn=False) as other,
    ):
        changes: list[Callable[[steno.BlockingSession], object]] = [
            lambda session: session.append_message(message("x")),
            lambda session: session.clear(),
            lambda session: session.append_wire("TurnBegin", {}),
            lambda session: session.send_dmail(0, "x"),
            lambda session: session.fork("fork"),
            lambda session: session.undo(),
            lambda session: session.describe(title="x"),
            lambda session: session.compact(lambda _: "x"),
        ]
        for change in changes:
            session = client.open("demo")
            other.delete("demo")
            again = other.open("demo")
            again.append_message([message("1"), message("2"), message("3")])
            connection = client._link._connection
            assert connection is not None
            # The event has arrived, and no call has read it.
            assert connection.wait(time.monotonic() + 30)[0]
            with pytest.raises(NotFound, match="open it again"):
                change(session)
            assert len(again.history) == 3
            assert again.stat().generation == 0
            assert again.turns() == []
        assert [entry.session for entry in client.sessions()] == ["demo"]


@pytest.mark.usefixtures("daemon")
@pytest.mark.anyio
async def test_no_change_passes_through_an_ended_history(root: Path) -> None:
    async with connect(root, spawn=False) as client:
        session = await client.open("demo")
        await client.delete("demo")
        await client.open("demo", follow=False)
        with pytest.raises(NotFound):
            await session.wait_for("0:9")
        for change in (
            lambda: session.append_message(message("x")),
            lambda: session.append_wire("TurnBegin", {}),
            lambda: session.fork("fork"),
            lambda: session.describe(title="x"),
            lambda: session.compact(lambda _: "x"),
        ):
            with pytest.raises(NotFound, match="open it again"):
                await change()
        assert [entry.session for entry in await client.sessions()] == ["demo"]


def test_start_removes_expired_trash_and_unfinished_forks(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        for session in ("old", "young"):
            client.open(session).append_message(message(session))
            client.delete(session, key=session)
    [old, young] = sorted(trash_of(root), key=lambda entry: entry.name.split(".")[1])
    at = int(old.name.split(".")[0]) - int(limits.TRASH_EXPIRY_S) - 10
    old.rename(old.with_name(f"{at}.old.old"))
    left = root / "sessions" / ".forks" / "k" / "session"
    left.mkdir(parents=True)
    (left / "context.jsonl").write_bytes(b"")
    with DaemonInThread(root) as daemon:
        daemon.wait_for(" swept ")
        assert trash_of(root) == [young]
        assert not left.parent.exists()


@pytest.mark.usefixtures("daemon")
def test_concurrent_descriptions_keep_each_other(root: Path) -> None:
    with (
        steno.connect_sync(root, spawn=False) as client,
        steno.connect_sync(root, spawn=False) as other,
    ):
        client.open("demo", follow=False)
        threads = [
            threading.Thread(target=client.session("demo").describe, kwargs={"title": "t"}),
            threading.Thread(target=other.session("demo").describe, kwargs={"labels": ["a"]}),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stat = client.stat("demo")
        assert (stat.title, stat.labels, stat.archived) == ("t", ("a",), False)
