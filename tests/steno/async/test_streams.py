"""A session's streams through the async client, on asyncio and on trio."""

import json
from typing import Any

import anyio
import pytest

from steno import (
    BadRequest,
    Client,
    Conflict,
    Exists,
    Live,
    NotFound,
    Position,
    RecordsEvent,
    Reset,
    Stream,
    connect,
)
from steno_protocol import limits
from support.daemon_in_thread import DaemonInThread

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]

ODD_RECORDS = [
    b"{}",
    b'{"b": 1,  "a":[1.0,1e3,-0.0,12345678901234567890], "b":2}',
    '{"text":"ä\u2028\\u00e4","nested":{"_id":"mine","_by":"me"}}'.encode(),
    b'{"role":"_checkpoint","id":7}',
    b'{"role":"nobody"}',
    b'{"timestamp":1,"message":{"type":"TurnBegin","payload":{}}}',
    b'{"a":"{,\\"_id\\":\\"x\\"}"}',
    b'{"empty":{},"id":"_id"}',
]


async def stream_of(client: Client, name: str = "notes", session: str = "demo") -> Stream:
    opened = await client.open(session, follow=False)
    return await opened.stream(name)


async def test_records_are_kept_byte_for_byte(daemon: DaemonInThread) -> None:
    async with connect(daemon.root, name="planner") as client:
        stream = await stream_of(client)
        for number, record in enumerate(ODD_RECORDS):
            await stream.append(record, key=f"one-{number}")
        await stream.append(ODD_RECORDS, key="all")
        found = [each async for each in stream.records()]
        assert [each.data for each in found] == ODD_RECORDS * 2
        assert [each.record for each in found] == [json.loads(each) for each in ODD_RECORDS * 2]
        count = len(ODD_RECORDS)
        assert [each.key for each in found] == [f"one-{n}" for n in range(count)] + ["all"] * count
        assert {each.by for each in found} == {"planner"}
        file = daemon.root / "sessions" / "demo" / "stream-notes.jsonl"
        assert all(json.loads(line)["_id"] for line in file.read_bytes().split(b"\n")[:-1])


async def test_record_on_several_lines_is_written_on_one(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        await stream.append(b' {\n "a": "b"\r\n}\n')
        [found] = await stream.last(1)
        assert found.data == b'{"a":"b"}'


async def test_session_without_stamps_has_the_bare_records(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        session = await client.open("demo", stamp=False, follow=False)
        stream = await session.stream("notes")
        await stream.append(ODD_RECORDS)
        file = daemon.root / "sessions" / "demo" / "stream-notes.jsonl"
        assert file.read_bytes() == b"\n".join([*ODD_RECORDS, b""])
        assert [each.data async for each in stream.records()] == ODD_RECORDS


REFUSED: list[Any] = [
    b"[1]", b"7", b"", b'{"a":1', b'{"_id":"x"}', b'{"a":1,"_by":"x"}', b'{"\\u005fat":"0:1"}',
    b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":NaN}', b'{"a":1}{"b":2}', b'{"a":"\0"}',
    {"a": float("nan")}, {"a": {1}}, {"a": "\ud800"}, [], [{"a": 1}, b"7"],
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
]  # fmt: skip


async def test_odd_records_and_names_are_refused_and_nothing_is_stored(
    daemon: DaemonInThread,
) -> None:
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        for record in REFUSED:
            with pytest.raises(BadRequest):
                await stream.append(record)
        session = client.session("demo")
        for name in ("", "wire", "context", "A", "a/b", "a" * 65, "a~1", "ü", None):
            with pytest.raises(BadRequest):
                await session.stream(name)  # type: ignore[arg-type]  # None is the mistake
        assert await stream.count() == 0
        assert [each.name for each in await session.streams()] == ["notes"]


async def test_repeat_gets_its_first_ack_and_other_contents_conflict(
    daemon: DaemonInThread,
) -> None:
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        first = await stream.append([{"n": 1}, {"n": 2}], key="k")
        again = await stream.append([{"n": 1}, {"n": 2}], key="k")
        assert (again.first, again.last, again.duplicate) == (first.first, first.last, True)
        with pytest.raises(Conflict):
            await stream.append({"n": 3}, key="k")
        assert await stream.count() == 2


async def test_expect_is_the_head_of_the_stream(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        stream, other = await stream_of(client), await stream_of(client, "other")
        await other.append({})
        assert await stream.head() == Position(0, 0)
        ack = await stream.append({"n": 0}, expect="0:0")
        with pytest.raises(Conflict) as conflict:
            await stream.append({"n": 1}, expect="0:0")
        assert conflict.value.head == str(ack.head)
        await stream.append({"n": 1}, expect=ack.head)
        assert await stream.head() == Position(0, 2)


async def test_last_reads_only_the_end(daemon: DaemonInThread) -> None:
    big = "x" * 40_000
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        for start in range(0, 200, 50):
            await stream.append([{"n": n, "text": big} for n in range(start, start + 50)])
        for count in (0, 1, 3, 77, 200, 1000):
            found = [each.record["n"] for each in await stream.last(count)]
            assert found == list(range(200))[max(0, 200 - count) :]
        spans = [each.record["n"] async for each in stream.records("0:20", "0:23")]
        assert spans == [20, 21, 22]
        info = await stream.stat()
        assert (info.name, info.head, info.records) == ("notes", Position(0, 200), 200)
        file = daemon.root / "sessions" / "demo" / "stream-notes.jsonl"
        assert info.bytes == file.stat().st_size > 8 * limits.MIB - 1_000_000


async def test_streams_are_listed_with_their_numbers(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        session = await client.open("demo", follow=False)
        assert await session.streams() == []
        for name in ("b", "a", "c.d-e_f"):
            await (await session.stream(name)).append([{"of": name}] * 3)
        found = await session.streams()
        assert [(each.name, each.records, str(each.head)) for each in found] == [
            ("a", 3, "0:3"), ("b", 3, "0:3"), ("c.d-e_f", 3, "0:3"),
        ]  # fmt: skip
        assert all(each.bytes and each.modified_at for each in found)
        with pytest.raises(NotFound):
            await client.session("missing").streams()
        with pytest.raises(NotFound):
            await (await session.stream("missing")).stat()


async def test_subscription_follows_without_gap_across_restarts(daemon: DaemonInThread) -> None:
    async with connect(daemon.root, spawn=False) as client:
        stream = await stream_of(client)
        await stream.append([{"n": 0}, {"n": 1}])
        seen: list[int] = []
        async with stream.subscribe() as events:
            await _read(events, seen, 2)
            await stream.append({"n": 2}, durability="written")
            await _read(events, seen, 3)
            assert seen == [0, 1, 2]


async def _read(events: Any, seen: list[int], count: int) -> None:
    with anyio.fail_after(20):
        while len(seen) < count:
            event = await anext(events)
            if isinstance(event, RecordsEvent):
                assert event.file == "stream-notes"
                seen += [each.record["n"] for each in event.stream_records()]
            else:
                assert isinstance(event, Live)


async def test_deletion_is_applied_once_and_begins_a_generation(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        await stream.append([{"n": 0}, {"n": 1}], key="k")
        with pytest.raises(Conflict):
            await stream.delete(expect="0:1")
        deleted = await stream.delete(key="d", expect="0:2")
        assert deleted.trash.read_bytes().count(b"\n") == 2
        assert await stream.head() == Position(1, 0)
        assert [each async for each in stream.records()] == []
        assert [each.record["n"] async for each in stream.records("0:1")] == [1]
        with pytest.raises(Conflict):
            await stream.append({"n": 2}, expect="0:2")
        ack = await stream.append({"n": 2}, expect="1:0")
        assert ack.first == Position(1, 0)
        assert (await stream.delete(key="d")).trash == deleted.trash
        assert await stream.count() == 1
        again = await stream.append([{"n": 0}, {"n": 1}], key="k")
        assert (again.duplicate, again.first) == (True, Position(0, 0))
        session = await client.open("demo", follow=False)
        with pytest.raises(BadRequest):
            await (await session.stream("other")).delete(key="d")
        with pytest.raises(NotFound):
            await (await session.stream("other")).delete()


async def test_deletion_ends_a_subscription_and_resets_an_old_position(
    daemon: DaemonInThread,
) -> None:
    async with connect(daemon.root) as client:
        stream = await stream_of(client)
        await stream.append([{"n": 0}, {"n": 1}])
        seen: list[int] = []
        async with stream.subscribe() as events:
            await _read(events, seen, 2)
            await stream.delete()
            with pytest.raises(NotFound, match="the stream was deleted"), anyio.fail_after(20):
                async for _ in events:
                    pass
        await stream.append([{"n": 2}, {"n": 3}, {"n": 4}])
        found: list[Any] = []
        with anyio.fail_after(20):
            async for event in stream.subscribe("0:1"):
                found.append(event)
                if isinstance(event, Live):
                    break
        resets = [event for event in found if isinstance(event, Reset)]
        assert [(event.generation, event.kept, event.why) for event in resets] == [
            (1, 0, "stream_deleted")
        ]
        records = [
            each.record["n"]
            for event in found
            if isinstance(event, RecordsEvent)
            for each in event.stream_records()
        ]
        assert records == [1, 2, 3, 4]


async def test_fork_copies_streams_as_they_are(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        session = await client.open("demo", follow=False)
        stream, other = await session.stream("notes"), await session.stream("other")
        await stream.append({"n": "gone"})
        await stream.delete()
        ack = await session.append_message({"role": "user", "content": "one"})
        await stream.append([{"n": 0}, {"n": 1}], key="k")
        await session.append_message({"role": "user", "content": "two"})
        await other.append({"of": "other"}, durability="written")
        for new_id, at in (("now", None), ("past", ack.head)):
            fork = await session.fork(new_id, at=at)
            copy = await fork.stream("notes")
            assert [each.record["n"] async for each in copy.records()] == [0, 1]
            assert await copy.head() == Position(1, 2)
            assert (await copy.append([{"n": 0}, {"n": 1}], key="k")).duplicate
            assert await (await fork.stream("other")).count() == 1
            await copy.append({"n": 2})
        assert await stream.count() == 2


async def test_verify_checks_streams(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        session = await client.open("demo", follow=False)
        stream = await session.stream("notes")
        await stream.append([{"n": 0}, {"n": 1}])
        await stream.delete()
        await stream.append(ODD_RECORDS)
        report = await session.verify()
        assert (report.damage, report.findings) == (0, [])
        files = {each.file: each.records for each in report.files if "stream" in each.file}
        assert sorted(files.values()) == [2, len(ODD_RECORDS)]


async def test_sessions_are_listed_by_prefix_with_the_time_of_their_streams(
    daemon: DaemonInThread,
) -> None:
    async with connect(daemon.root) as client:
        for name in ("p1/a", "p1/b", "p1/c", "p2/a"):
            await client.open(name, follow=False)
        before = {each.session: each.modified_at for each in await client.sessions("p1/")}
        assert list(before) == ["p1/a", "p1/b", "p1/c"]
        page = await client.sessions("p1/", limit=2)
        assert [each.session for each in page] == ["p1/a", "p1/b"]
        rest = await client.sessions("p1/", after=page[-1].session, limit=2)
        assert [each.session for each in rest] == ["p1/c"]
        for limit in (0, -1, "2"):
            with pytest.raises(BadRequest):
                await client.sessions(limit=limit)  # type: ignore[arg-type]  # a caller's mistake
        await (await stream_of(client, session="p1/b")).append({"n": 0})
        info = await (await stream_of(client, session="p1/b")).stat()
        after = {each.session: each.modified_at for each in await client.sessions("p1/")}
        assert after["p1/b"] == info.modified_at
        assert after["p1/a"] == before["p1/a"]


async def test_names_of_stream_files_are_no_session_ids(daemon: DaemonInThread) -> None:
    async with connect(daemon.root) as client:
        for name in (
            "demo/stream-a.jsonl",
            "demo/stream-a.mark",
            "demo/stream-a.mark.new",
            "demo/journal.mark",
        ):
            with pytest.raises(BadRequest):
                await client.open(name)
        with pytest.raises(NotFound):
            await client.open("demo", create=False)
        await client.open("demo/stream-a", follow=False)
        with pytest.raises(Exists):
            await client.open("demo/stream-a", exclusive=True)
