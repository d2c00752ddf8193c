"""Every verb of the async client against a real daemon, on asyncio and on trio."""

import json
import os
from math import inf, nan
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from steno import (
    BadRequest,
    Busy,
    Client,
    Conflict,
    Corrupt,
    Exists,
    Live,
    NotFound,
    Position,
    RecordsEvent,
    Reset,
    Session,
    TooLarge,
    connect,
    connect_sync,
)
from steno.values import SubscriptionEvent
from steno_protocol import commands, limits
from steno_protocol.messages import Request
from support.messages import message
from support.scripted_daemon import Answers, ScriptedDaemon
from support.session_files import records_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("no_blocking_calls"),
    pytest.mark.served,
]


async def test_a_message_is_acknowledged_durable_in_the_file_and_in_the_history(
    root: Path,
) -> None:
    async with connect(root, name="planner") as client:
        session = await client.open("demo")
        ack = await session.append_message(message("hi"))
        assert (ack.first, ack.last, ack.head) == (Position(0, 0), Position(0, 0), Position(0, 1))
        assert (ack.durability, ack.duplicate) == ("synced", False)
        assert session.history == [message("hi")]
        assert session.head == ack.head
        [record] = records_in(root, "demo")
        assert record == {**message("hi"), "_by": "planner", "_id": ack.key}
        assert session.file_backend == root / "sessions" / "demo" / "context.jsonl"


async def test_a_sequence_is_one_batch_and_bytes_are_taken_as_they_are(client: Client) -> None:
    session = await client.open("demo", stamp=False)
    ack = await session.append_message([message("a"), b'{"role":"user","content":"b"}'])
    assert (ack.first, ack.last) == (Position(0, 0), Position(0, 1))
    assert session.history == [message("a"), message("b")]
    assert session.file_backend.read_bytes().endswith(b'{"role":"user","content":"b"}\n')


async def test_the_context_verbs_change_the_mirror_as_they_change_the_file(
    root: Path, session: Session
) -> None:
    await session.write_system_prompt("be nice")
    await session.append_message(message("one"))
    await session.update_token_count(1472)
    ack = await session.checkpoint(add_user_message=True)
    assert ack.checkpoint_id == 0
    await session.append_message(message("12345678"))
    assert session.system_prompt == "be nice"
    assert session.n_checkpoints == 1
    assert session.token_count == 1472
    assert session.token_count_with_pending > 1472
    assert [entry.token_count for entry in session.usage_history()] == [1472]

    ack = await session.revert_to(0, why="wrong turn")
    assert ack.rotated == root / "sessions" / "demo" / "context_1.jsonl"
    assert session.history == [message("one")]
    assert session.n_checkpoints == 1
    assert session.token_count == session.token_count_with_pending == 1472

    await session.clear()
    assert (session.history, session.system_prompt, session.token_count) == ([], None, 0)
    kinds = [happening.kind for happening in await session.timeline()]
    assert kinds == ["created", "reverted", "cleared"]

    await session.restore_generation(0)
    assert [entry["content"] for entry in session.history] == [
        "one",
        "<system>CHECKPOINT 0</system>",
        "12345678",
    ]


async def test_a_past_state_is_read_without_touching_the_present(session: Session) -> None:
    await session.append_message(message("one"))
    await session.checkpoint()
    await session.append_message(message("two"))
    await session.clear()
    assert (await session.history_at("0:1")).history == [message("one")]
    assert (await session.history_at(0)).history == [message("one"), message("two")]
    assert (await session.history_at(0, checkpoint=0)).history == [message("one")]
    assert (await session.history_at()).history == session.history == []
    with pytest.raises(NotFound):
        await session.history_at(0, checkpoint=7)
    with pytest.raises(NotFound):
        await session.history_at(9)
    ends = (("1:0", []), ("0:3", [message("one"), message("two")]))
    for end, there in ends:
        assert (await session.history_at(end)).history == there
    for behind in ("1:1", "0:4", "0:999"):
        with pytest.raises(NotFound, match=f"no position {behind}"):
            await session.history_at(behind)


async def test_two_clients_see_one_history_and_read_each_others_writes(root: Path) -> None:
    async with connect(root, name="a") as one, connect(root, name="b") as other:
        writer, reader = await one.open("demo"), await other.open("demo")
        ack = await writer.append_message(message("hi"))
        await reader.wait_for(ack.head)
        assert reader.history == [message("hi")]
        ack = await reader.clear()
        await writer.wait_for(str(ack.head))
        assert writer.history == []
        names = {entry.name for entry in (await writer.clients()).clients}
        assert names == {"a", "b"}


async def test_expect_turns_a_lost_race_into_a_conflict_that_names_the_head(
    session: Session,
) -> None:
    ack = await session.append_message(message("one"), expect=Position(0, 0))
    with pytest.raises(Conflict) as raised:
        await session.append_message(message("two"), expect="0:0")
    assert raised.value.head == str(ack.head)
    assert session.history == [message("one")]


async def test_a_key_is_applied_once_and_answered_alike_each_time(session: Session) -> None:
    first = await session.append_message(message("hi"), key="my-key")
    again = await session.append_message(message("hi"), key="my-key")
    assert (again.first, again.last, again.duplicate) == (first.first, first.last, True)
    # The key of an ack looks fresh by its shape, and is known all the same.
    generated = await session.append_message(message("ho"))
    repeated = await session.append_message(message("ho"), key=generated.key)
    assert repeated.duplicate
    assert session.history == [message("hi"), message("ho")]


async def test_a_written_ack_says_so(client: Client) -> None:
    session = await client.open("demo", follow=False)
    ack = await session.append_message(message("hi"), durability="written")
    assert ack.durability == "written"


async def test_bad_messages_are_refused_without_a_loss(session: Session) -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    cyclic: dict[str, object] = {"role": "user"}
    cyclic["content"] = [cyclic]
    bad: list[object] = [
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": [{"type": "x", "y": None, "n": float("inf")}]},
        {"role": "user", "content": "\ud800"},
        {"role": "user", "content": object()},
        {"role": "user", "content": "x", "deep": deep},
        cyclic,
        {"role": "_checkpoint", "id": 3},
        {"role": "_robot", "content": "x"},
        {"content": "x"},
        {"role": "user"},
        b"not json",
        b'{"role":"user","content":"\xff"}',
        b"[]",
        "text",
        [],
        [message("good"), {"role": "_robot"}],
    ]
    for each in bad:
        with pytest.raises(BadRequest):
            await session.append_message(each)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        await session.append_message(message("x" * limits.RECORD_BYTES_MAX))
    with pytest.raises(TooLarge):
        await session.append_message([message("x")] * (limits.BATCH_RECORDS_MAX + 1))
    await session.append_message(message("good"))
    assert session.history == [message("good")]


async def test_bad_names_keys_and_positions_are_refused(root: Path) -> None:
    async with connect(root) as client:
        with pytest.raises(BadRequest):
            await client.open("../etc")
        session = await client.open("demo")
        with pytest.raises(BadRequest):
            await session.append_message(message("x"), key="no spaces")
        with pytest.raises(BadRequest):
            await session.append_message(message("x"), expect="head")
        with pytest.raises(BadRequest):
            await session.write_system_prompt("\ud800")
    with pytest.raises(BadRequest):
        connect(root, name="no spaces")


@pytest.mark.served(False)
@pytest.mark.parametrize("timeout", [-1, nan, inf, 1e300, None, "3"])
async def test_an_impossible_timeout_is_refused_before_any_request(
    root: Path, timeout: Any
) -> None:
    for how in (connect, connect_sync):
        with pytest.raises(BadRequest, match="no number of seconds"):
            how(root, timeout=timeout)
    assert list(root.iterdir()) == []
    async with connect(root, timeout=limits.REQUEST_TIMEOUT_S_MAX) as client:
        await client.status()


async def test_bytes_in_place_of_text_are_refused(
    root: Path,
) -> None:
    odd: Any = b"demo"
    async with connect(root) as client:
        session = await client.open("demo")
        for call in (
            lambda: client.open(odd),
            lambda: client.delete(odd),
            lambda: session.fork(odd),
            lambda: session.describe(title=odd),
            lambda: session.describe(labels=[odd]),
        ):
            with pytest.raises(BadRequest, match="takes text, and was given bytes"):
                await call()
        assert [entry.session for entry in await client.sessions()] == ["demo"]


async def test_opening_says_whether_a_session_was_wanted_there(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.open("demo", create=False)
    await client.open("demo", exclusive=True)
    with pytest.raises(Exists):
        await client.open("demo", exclusive=True)
    made = await client.open("mine", exclusive=True, follow=False, key="k1")
    await made.append_message({"role": "user", "content": "hi"})
    again = await client.open("mine", exclusive=True, follow=False, key="k1")
    assert again.incarnation == made.incarnation
    with pytest.raises(Exists):
        await client.open("mine", exclusive=True, follow=False, key="k2")
    assert (await client.delete("mine")).trash
    await client.open("team/planner", follow=False)
    assert [entry.session for entry in await client.sessions()] == ["demo", "team/planner"]
    assert [entry.session for entry in await client.sessions("team/")] == ["team/planner"]


async def test_a_session_that_is_not_followed_says_so_until_it_is_restored(client: Client) -> None:
    session = await client.open("demo", follow=False)
    assert not await (await client.open("empty", follow=False)).restore()
    await session.append_message(message("hi"))
    for name in ("history", "token_count", "n_checkpoints", "system_prompt", "head"):
        with pytest.raises(BadRequest, match="follow=False"):
            getattr(session, name)
    assert await session.restore()
    assert session.history == [message("hi")]


async def test_restore_refuses_a_session_that_was_loaded_and_changed(
    client: Client, session: Session
) -> None:
    assert not await session.restore()
    await session.append_message(message("hi"))
    with pytest.raises(RuntimeError, match="demo"):
        await session.restore()
    assert await (await client.open("demo")).restore()


async def test_lines_are_the_files_bytes_and_records_have_their_cursors(session: Session) -> None:
    for number in range(5):
        await session.append_message(message(f"m{number}"))
    lines = [line async for line in session.lines()]
    assert b"".join(lines) == session.file_backend.read_bytes()
    assert [line async for line in session.lines("0:1", "0:3")] == lines[1:3]
    records = [record async for record in session.records(after="0:3")]
    assert [record.cursor for record in records] == [Position(0, 3), Position(0, 4)]
    assert [json.loads(record.raw) for record in records] == [r.record for r in records]


async def test_damaged_lines_are_passed_over_and_counted_or_stop_a_strict_reader(
    root: Path,
) -> None:
    folder = root / "sessions" / "demo"
    folder.mkdir(parents=True)
    good = b'{"role":"user","content":"x"}\n'
    (folder / "context.jsonl").write_bytes(good + b"garbage\n" + b"\n" + b"[1]\n" + good)
    async with connect(root) as client:
        session = await client.open("demo")
        stream = session.records()
        assert [record.cursor.line async for record in stream] == [0, 4]
        assert stream.damaged == 2
        assert session.damaged == 2
        assert len(session.history) == 2
        with pytest.raises(Corrupt, match="0:1") as raised:
            [record async for record in session.records(strict=True)]
        assert raised.value.session == "demo"


async def test_a_subscription_delivers_the_backlog_then_live_then_new_records(
    client: Client,
) -> None:
    session = await client.open("demo", follow=False)
    await session.append_message([message("a"), message("b")])
    async with session.subscribe() as subscription:
        backlog = await anext(subscription)
        assert isinstance(backlog, RecordsEvent)
        assert [record.record["content"] for record in backlog.records()] == ["a", "b"]
        assert await anext(subscription) == Live(Position(0, 2))
        await session.append_message(message("c"))
        new = await anext(subscription)
        assert isinstance(new, RecordsEvent)
        assert (new.first, new.next, len(new.lines())) == (Position(0, 2), Position(0, 3), 1)
        await session.clear()
        reset = await anext(subscription)
        assert isinstance(reset, Reset)
        assert (reset.generation, reset.kept, reset.why) == (1, 0, "cleared")
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    assert await anext(session.subscribe("now")) == Live(Position(1, 0))
    with pytest.raises(BadRequest):
        await anext(session.subscribe("1:9"))
    with pytest.raises(NotFound):
        await anext(client.session("nobody").subscribe())


async def test_a_subscription_from_now_delivers_every_later_ack(
    root: Path,
) -> None:
    async with connect(root) as client, connect(root) as other:
        session = await client.open("demo", follow=False)
        writer = await other.open("demo", follow=False)
        async with session.subscribe("now", records="both") as events:
            await writer.append_message(message("a"))
            await writer.append_wire("Note", {}, durability="synced")
            news = {"context": 0, "wire": 0}
            while not all(news.values()):
                event = await anext(events)
                if isinstance(event, RecordsEvent):
                    news[event.file] += len(event.lines())
        # The wire file was made by its first event, with a header.
        assert news == {"context": 1, "wire": 2}
        missing = client.session("nobody").subscribe("now")
        with pytest.raises(NotFound):
            await missing.__aenter__()
        with pytest.raises(StopAsyncIteration):
            await anext(missing)


async def test_a_second_task_waiting_on_a_subscription_gets_an_error(client: Client) -> None:
    session = await client.open("demo", follow=False)
    events = session.subscribe()
    assert isinstance(await anext(events), Live)
    first: list[SubscriptionEvent] = []

    async def take() -> None:
        first.append(await anext(events))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(30), pytest.raises(Busy, match="subscription of its own"):
            await anext(events)
        await session.append_message(message("a"))
    assert isinstance(first[0], RecordsEvent)
    with anyio.move_on_after(0):
        await anext(events)
    await session.append_message(message("b"))
    # A caller that gave up waiting does not block the next one.
    assert isinstance(await anext(events), RecordsEvent)


@pytest.mark.slow
async def test_entering_a_subscription_twice_does_not_end_it(
    root: Path,
) -> None:
    def mute(request: Request) -> Answers | None:
        return [] if isinstance(request.command, commands.Subscribe) else None

    with ScriptedDaemon(root, mute) as daemon:
        async with connect(endpoint=daemon.endpoint) as client:
            events = client.session("demo").subscribe("now")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(events.__aenter__)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(Busy):
                    await events.__aenter__()
                daemon.script = lambda _: None
            assert isinstance(await anext(events), Live)


async def test_a_cancelled_call_leaves_the_client_sound(session: Session) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.append_message(message("cancelled"), key="k")
    ack = await session.append_message(message("cancelled"), key="k")
    assert session.history == [message("cancelled")]
    assert ack.head == session.head


async def test_an_error_in_the_body_leaves_the_client_as_it_was_raised(root: Path) -> None:
    async def lose_a_race() -> None:
        async with connect(root) as client:
            session = await client.open("demo")
            await session.append_message(message("x"), expect="0:5")

    with pytest.raises(Conflict):
        await lose_a_race()


async def test_a_closed_client_says_so(root: Path) -> None:
    client: Client = connect(root)
    with pytest.raises(BadRequest, match="async with"):
        await client.status()
    async with client:
        session: Session = await client.open("demo")
    with pytest.raises(BadRequest, match="not connected"):
        await session.append_message(message("x"))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_client_is_refused_in_a_child_after_a_fork(session: Session) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if is_refused(session) else 1)
    _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await session.append_message(message("parent"))


def is_refused(session: Session) -> bool:
    """Whether a call is refused before it waits for anything."""
    try:
        session.append_message(message("child")).send(None)
    except BadRequest as error:
        return "fork" in error.message
    return False


async def test_a_closed_session_is_followed_no_longer(session: Session) -> None:
    await session.close()
    assert not session.is_following
    assert (await session.clients()).clients == []
