"""Deleting sessions of a real daemon: under load, with followers, through the daemon's death."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio
import pytest

import steno
from steno import NotFound, connect
from steno_protocol import limits
from support.crowd import crowd, wait_until
from support.foreground import ForegroundDaemon
from support.session_files import contents_in


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def keys_in(file: Path) -> set[str]:
    return {json.loads(line)["_id"] for line in file.read_bytes().splitlines()}


def trash_of(root: Path) -> list[Path]:
    return sorted((root / "sessions" / ".trash").iterdir())


def test_a_session_that_is_made_again_is_another_one(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        session.append_message(message("one"), key="k1")
        first = session.stat()
        deleted = client.delete("demo", key="d")
        with pytest.raises(NotFound):
            session.append_message(message("two"))
        again = client.open("demo")
        assert again.history == []
        assert again.stat().incarnation != first.incarnation
        # What was applied to the one that is gone was not applied to this one.
        assert not again.append_message(message("one"), key="k1").duplicate
        assert client.delete("demo", key="d") == deleted
        assert again.append_message(message("two")).last == (0, 1)
        assert len(trash_of(root)) == 1


@pytest.mark.anyio
async def test_a_client_of_a_deleted_session_cannot_write_into_its_successor(
    root: Path,
) -> None:
    with steno.connect_sync(root) as client:
        blocking = client.open("demo")
        async with connect(root) as other:
            session = await other.open("demo")
            client.delete("demo")
            client.open("demo", follow=False)
            # The first one each may be sent before it is heard that the session is gone.
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


def test_a_change_looks_first_whether_its_session_was_made_again(root: Path) -> None:
    with steno.connect_sync(root) as client, steno.connect_sync(root) as other:
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
            # It has arrived, and no call took it in.
            assert connection.wait(time.monotonic() + 30)[0]
            with pytest.raises(NotFound, match="open it again"):
                change(session)
            assert len(again.history) == 3
            assert again.stat().generation == 0
            assert again.turns() == []
        assert [entry.session for entry in client.sessions()] == ["demo"]


@pytest.mark.anyio
async def test_no_change_goes_through_a_history_that_has_ended(root: Path) -> None:
    async with connect(root) as client:
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


def test_sessions_below_go_with_it_and_those_beside_stay(root: Path) -> None:
    with steno.connect_sync(root) as client:
        for session in ("a", "a/b", "a/b/c", "ab"):
            client.open(session).append_message(message(session))
        deleted = client.delete("a/b")
        assert [entry.session for entry in client.sessions()] == ["a", "ab"]
        assert keys_in(Path(deleted.trash) / "c" / "context.jsonl")
        client.session("a").append_message(message("on"))
        with pytest.raises(NotFound):
            client.session("a/b/c").append_message(message("on"))


@pytest.mark.anyio
async def test_a_follower_receives_the_deletion(root: Path) -> None:
    async with connect(root) as client:
        session = await client.open("demo/below", follow=False)
        live = {"context": anyio.Event(), "wire": anyio.Event()}
        ended: list[str] = []

        async def read(file: Literal["context", "wire"]) -> None:
            async for event in session.subscribe(records=file):
                if isinstance(event, steno.Live):
                    live[file].set()

        async def follow(file: Literal["context", "wire"]) -> None:
            with pytest.raises(NotFound, match="the session was deleted"):
                await read(file)
            ended.append(file)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, "context")
            tasks.start_soon(follow, "wire")
            for event in live.values():
                await event.wait()
            await client.open("demo", follow=False)
            await client.delete("demo")
        assert sorted(ended) == ["context", "wire"]


def test_a_start_removes_what_expired_and_what_a_fork_left_behind(root: Path) -> None:
    with steno.connect_sync(root) as client:
        for session in ("old", "young"):
            client.open(session).append_message(message(session))
            client.delete(session, key=session)
        client.drain()
    [old, young] = sorted(trash_of(root), key=lambda entry: entry.name.split(".")[1])
    at = int(old.name.split(".")[0]) - int(limits.TRASH_EXPIRY_S) - 10
    old.rename(old.with_name(f"{at}.old.old"))
    left = root / "sessions" / ".forks" / "k" / "session"
    left.mkdir(parents=True)
    (left / "context.jsonl").write_bytes(b"")
    with ForegroundDaemon(root) as daemon:
        wait_until(lambda: any(" swept " in line for line in daemon.log))
        assert trash_of(root) == [young]
        assert not left.parent.exists()


def test_the_trash_expires_as_the_configuration_says(root: Path) -> None:
    (root / "config.toml").write_text("[disk]\ntrash_days = 2\n")
    with steno.connect_sync(root) as client:
        client.open("demo", follow=False)
        deleted = client.delete("demo")
        assert deleted.expires_at == int(Path(deleted.trash).name.split(".")[0]) + 2 * limits.DAY_S


def test_a_deleted_session_can_be_put_back_by_hand(root: Path) -> None:
    with steno.connect_sync(root) as client:
        client.open("demo").append_message(message("one"))
        deleted = client.delete("demo")
        Path(deleted.trash).rename(root / "sessions" / "demo")
        session = client.open("demo")
        session.append_message(message("two"))
        assert contents_in(root, "demo") == {"one": 1, "two": 1}


def test_a_session_of_a_mount_goes_to_the_trash_of_its_mount(root: Path, tmp_path: Path) -> None:
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{tmp_path}"\n')
    with steno.connect_sync(root) as client:
        client.open("kimi:work/first").append_message(message("one"))
        deleted = client.delete("kimi:work/first")
        assert Path(deleted.trash).parent == tmp_path / ".trash"
        assert client.sessions() == []


# --- descriptions ------------------------------------------------------------------------------


def test_descriptions_from_several_processes_keep_each_other(root: Path) -> None:
    with steno.connect_sync(root) as client, steno.connect_sync(root) as other:
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


def test_a_damaged_description_fails_only_its_changes(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        state = root / "sessions" / "demo" / "state.json"
        state.write_text('{"title": "half')
        with pytest.raises(steno.Corrupt, match="`steno repair demo --apply`"):
            session.describe(title="t")
        assert state.read_text() == '{"title": "half'
        assert session.append_message(message("one")).last == (0, 0)
        assert [entry.title for entry in client.sessions()] == [""]
        assert client.stat("demo").title == ""
        state.unlink()
        assert session.describe(title="t").title == "t"
