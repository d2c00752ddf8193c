"""A list with edits on a stream, on asyncio and on trio."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from steno import (
    BadRequest,
    Client,
    Conflict,
    NotFound,
    OutcomeUnknown,
    RecordList,
    TooLarge,
    connect,
)
from steno._connect import spawn
from steno_protocol import limits
from support import warm_daemon
from support.daemon_in_thread import DaemonInThread
from support.daemons import end_daemon_of

pytestmark = [pytest.mark.anyio]


async def list_of(client: Client, session: str = "demo") -> RecordList:
    opened = await client.open(session, follow=False)
    return await opened.record_list("todo")


def item(text: str) -> dict[str, Any]:
    return {"text": text}


async def texts(todo: RecordList, last: int | None = None) -> list[str]:
    return [each["text"] for each in (await todo.read(last)).items]


async def test_500_random_changes_equal_those_of_a_list(daemon: DaemonInThread, seed: int) -> None:
    drawn = random.Random(seed)
    plain: list[str] = []
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        for number in range(500):
            at = drawn.randint(-len(plain) - 2, len(plain) + 1)
            is_there = -len(plain) <= at < len(plain)
            match drawn.choice(["append", "append", "replace", "delete", "read", "last", "all"]):
                case "append":
                    added = [f"{number}-{each}" for each in range(drawn.randint(1, 3))]
                    await todo.append([item(text) for text in added])
                    plain += added
                case "replace" if is_there:
                    await todo.replace(at, item(str(number)))
                    plain[at] = str(number)
                case "delete" if is_there:
                    assert await todo.delete(at) == item(plain.pop(at))
                case "replace" | "delete":
                    with pytest.raises(NotFound, match=f"no item {at} now"):
                        await todo.delete(at)
                case "all" if drawn.random() < 0.2:
                    await todo.replace_all([item("new")])
                    plain = ["new"]
                case "last":
                    last = drawn.randint(0, 8)
                    assert await texts(todo, last) == plain[max(0, len(plain) - last) :]
                case _:
                    assert await texts(todo) == plain


async def test_the_last_item_of_a_name_wins_in_its_place(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        await todo.put("a", item("1"))
        await todo.append(item("unnamed"))
        await todo.put("a", item("2"))
        state = await todo.read()
        assert (state.names, [each["text"] for each in state.items]) == (
            ["a", None],
            ["2", "unnamed"],
        )
        assert (await todo.get("a"), await todo.get("b")) == (item("2"), None)
        await todo.replace("a", item("3"))
        assert await todo.delete("a") == item("3")
        assert await todo.get("a") is None
        for change in (todo.delete("a"), todo.replace("a", item("4"))):
            with pytest.raises(NotFound, match="no item named 'a' now"):
                await change


async def test_a_name_is_found_behind_changes_by_number(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        await todo.put("a", item("1"))
        await todo.put("b", item("2"))
        await todo.replace(0, item("3"))
        await todo.delete(-1)
        assert (await todo.get("a"), await todo.get("b")) == (item("3"), None)


async def test_a_change_with_an_old_head_is_refused(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        await todo.append([item("a"), item("b")])
        old = (await todo.read()).head
        await todo.append(item("c"))
        for change in (
            todo.append(item("x"), expect=old),
            todo.put("x", item("x"), expect=old),
            todo.replace(0, item("x"), expect=old),
            todo.replace_all([item("x")], last=1, expect=old),
            todo.delete(0, expect=old),
            todo.delete(7, expect=old),
        ):
            with pytest.raises(Conflict) as caught:
                await change
            assert caught.value.head == "0:3"
        assert await texts(todo) == ["a", "b", "c"]
        head = (await todo.read(1)).head
        await todo.replace_all([item("x")], last=2, expect=head)
        assert await texts(todo) == ["a", "x"]


async def test_a_change_with_a_key_is_made_once(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        for _ in range(2):
            await todo.append([item(text) for text in "abcdef"], key="add")
        for _ in range(2):
            assert await todo.delete(1, key="once") == item("b")
            assert await todo.delete(-1, key="again") == item("f")
            assert (await todo.replace(0, item("A"), key="edit")).key == "edit"
            assert await texts(todo) == ["A", "c", "d", "e"]
        await todo.put("name", item("x"), key="put")
        assert await todo.delete("name", key="by-name") == item("x")
        await todo.put("name", item("y"))
        assert await todo.delete("name", key="by-name") == item("x")
        assert await todo.get("name") == item("y")
        with pytest.raises(Conflict, match="with other contents"):
            await todo.delete(0, key="again")
        with pytest.raises(Conflict, match="with other contents"):
            await todo.replace(0, item("B"), key="edit")


async def test_two_writers_delete_each_item_once(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client, connect(daemon.root) as other:
        lists = [await list_of(client), await list_of(other)]
        await lists[0].append([item(str(number)) for number in range(40)])
        taken: list[str] = []

        async def take(todo: RecordList) -> None:
            while True:
                try:
                    taken.append((await todo.delete(0))["text"])
                except NotFound:
                    return

        async with anyio.create_task_group() as group:
            for todo in lists:
                group.start_soon(take, todo)
        assert sorted(taken, key=int) == [str(number) for number in range(40)]


async def test_a_change_survives_the_death_of_the_daemon(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "subprocess", warm_daemon.Subprocess)
    monkeypatch.setenv(warm_daemon.ADDRESS, warm_daemon.address())
    async with connect(root) as client:
        todo = await list_of(client)
        for number in range(3):
            await todo.append([item(str(number)), item("gone")])
            os.kill(client.welcome.pid, signal.SIGKILL)
            assert await todo.delete(-1) == item("gone")
        assert await texts(todo) == ["0", "1", "2"]
    end_daemon_of(root)


async def test_the_end_of_a_long_list_is_read_alone(
    daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        for start in range(0, 10_000, limits.BATCH_RECORDS_MAX):
            stop = min(start + limits.BATCH_RECORDS_MAX, 10_000)
            await todo.append([item(str(number)) for number in range(start, stop)])
        spans: list[tuple[Any, Any]] = []
        lines = todo.stream.lines
        monkeypatch.setattr(
            todo.stream,
            "lines",
            lambda after, until: (spans.append((after, until)), lines(after, until))[1],
        )
        assert await texts(todo, 3) == ["9997", "9998", "9999"]
        assert await todo.delete(-2) == item("9998")
        assert [end.line - start.line for start, end in spans] == [64, 64]
        assert len(await texts(todo)) == 9_999


async def test_odd_values_are_kept_or_refused_before_anything_is_stored(
    daemon: DaemonInThread,
) -> None:
    odd = [item("cut \ud83d"), {"n": 12345678901234567890123}, {"": [1.5, None, {"a": []}]}]
    async with connect(daemon.root) as client:
        todo = await list_of(client)
        await todo.append(odd)
        await todo.put("\ud83d", item("half"))
        await todo.put("", item("empty"))
        state = await todo.read()
        assert state.items == [*odd, item("half"), item("empty")]
        assert state.names == [None, None, None, "\ud83d", ""]
        assert await todo.get("\ud83d") == item("half")
        for bad in (float("nan"), {1, 2}, object(), b"x"):
            with pytest.raises(BadRequest):
                await todo.append([item("a"), {"value": bad}])
        for bad in ("text", b"{}", 5, ["text"], [b"{}"]):
            with pytest.raises(BadRequest):
                await todo.append(bad)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="the name of an item is 5"):
            await todo.put(5, item("a"))  # type: ignore[arg-type]
        for at in (1.5, None, b"x"):
            with pytest.raises(BadRequest, match="the place of an item is"):
                await todo.delete(at)  # type: ignore[arg-type]
        with pytest.raises(TooLarge, match="make it in several steps"):
            await todo.replace_all([item("a")] * limits.BATCH_RECORDS_MAX)
        assert (await todo.read()).head == state.head


async def test_a_missing_session_is_not_found_and_not_made(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        todo = await client.session("missing").record_list("todo")
        for call in (todo.append(item("a")), todo.read(), todo.get("a"), todo.delete(0)):
            with pytest.raises((NotFound, OutcomeUnknown)):
                await call
        assert await client.sessions() == []
