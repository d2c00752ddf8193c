"""Streams beside many processes, many streams, and a daemon that is killed."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from steno import Live, Position, RecordsEvent, Reset
from steno_protocol import limits
from steno_protocol.commands import Gc
from steno_protocol.records import stamp_of, unstamped
from steno_protocol.replies import GcReport
from support.daemon_in_thread import DaemonInThread
from support.foreground import ForegroundDaemon

TESTS = Path(__file__).parents[1]
PROCESSES = 16
EACH = 12


def stream_file(root: Path, name: str, session: str = "demo") -> Path:
    return root / "sessions" / session / f"stream-{name}.jsonl"


def test_records_of_sixteen_processes_are_all_there_once(daemon: DaemonInThread) -> None:
    with steno.connect_sync(daemon.root) as client:
        client.open("race", follow=False)
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "support.racers", "stream", str(daemon.root), str(EACH)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    said = [process.communicate(timeout=90)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * PROCESSES
    acks = [json.loads(line) for text in said for line in text.splitlines()]
    lines = stream_file(daemon.root, "race", "race").read_bytes().splitlines()
    assert len(acks) == PROCESSES * EACH
    for ack in acks:
        first = Position.parse(ack["first"]).line
        for part, line in enumerate(lines[first : first + 2]):
            stamp = stamp_of(line)
            assert stamp is not None
            assert (stamp.key, stamp.index, stamp.size) == (ack["key"], part, 2)
    assert len(lines) == 2 * len(acks)


@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)])
def test_acknowledged_records_and_followers_survive_kills(root: Path, backend: str) -> None:
    anyio.run(_beside_kills, root, backend=backend)


async def _beside_kills(root: Path) -> None:
    seen: list[int] = []
    is_complete = anyio.Event()
    one_at_a_time = anyio.CapacityLimiter(1)
    with ForegroundDaemon(root) as daemon:
        restart = partial(anyio.to_thread.run_sync, _restart, daemon, limiter=one_at_a_time)
        async with steno.connect(root, spawn=False) as client, anyio.create_task_group() as tasks:
            stream = await (await client.open("demo", follow=False)).stream("notes")
            await stream.append({"n": -1})
            tasks.start_soon(_follow, stream, seen, is_complete)
            for number in range(60):
                if number % 20 == 10:
                    tasks.start_soon(restart)
                ack = await stream.append({"n": number}, key=f"n-{number}")
                assert ack.first == Position(0, number + 1)
            # Restarts may still be under way, each of which the follower goes through.
            with anyio.fail_after(90):
                await is_complete.wait()
            tasks.cancel_scope.cancel()
    assert seen == list(range(-1, 60))
    lines = stream_file(root, "notes").read_bytes().splitlines()
    assert [json.loads(unstamped(line))["n"] for line in lines] == list(range(-1, 60))


def _restart(daemon: ForegroundDaemon) -> None:
    daemon.kill()
    daemon.start()


async def _follow(stream: steno.Stream, seen: list[int], is_complete: anyio.Event) -> None:
    async for event in stream.subscribe():
        assert not isinstance(event, Reset)
        if isinstance(event, RecordsEvent):
            seen.extend(each.record["n"] for each in event.stream_records())
        if len(seen) >= 61:
            is_complete.set()


def test_torn_tail_is_cut_into_quarantine(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        stream = client.open("demo", follow=False).stream("notes")
        stream.append({"n": 0}, key="k")
        daemon.kill()
        file = stream_file(root, "notes")
        whole = file.read_bytes()
        file.write_bytes(whole + b'{"n":1,"_id":"torn.0/2"}\n{"n":')
        daemon.start()
        assert [each.record["n"] for each in stream.last(5)] == [0]
        assert stream.append({"n": 0}, key="k").duplicate
        assert stream.append({"n": 2}).first == Position(0, 1)
        assert file.read_bytes().startswith(whole + b'{"n":2,')
        kept = list((file.parent / "quarantine").iterdir())
        assert [path.read_bytes() for path in kept] == [b'{"n":1,"_id":"torn.0/2"}\n{"n":']


def test_hundred_streams_of_one_session_are_served_at_once(daemon: DaemonInThread) -> None:
    anyio.run(_hundred, daemon.root)


async def _hundred(root: Path) -> None:
    async with steno.connect(root) as client:
        session = await client.open("demo", follow=False)

        async def write(number: int) -> None:
            stream = await session.stream(f"s-{number:03}")
            for record in range(5):
                await stream.append({"n": record}, expect=Position(0, record))
            async for event in stream.subscribe():
                if isinstance(event, Live):
                    break

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(write, number)
        found = await session.streams()
        assert [(each.name, each.records) for each in found] == [
            (f"s-{number:03}", 5) for number in range(100)
        ]


def test_more_streams_than_may_be_open_take_turns(
    daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS_OPEN_MAX", 4)
    with steno.connect_sync(daemon.root) as client:
        session = client.open("demo", follow=False)
        for turn in range(3):
            for number in range(10):
                ack = session.stream(f"s{number}").append({"n": turn}, key=f"k-{turn}-{number}")
                assert ack.first == Position(0, turn)
        for number in range(10):
            assert session.stream(f"s{number}").append({"n": 0}, key=f"k-0-{number}").duplicate
            assert session.stream(f"s{number}").count() == 3
        followed = [session.stream(f"s{number}").subscribe("now") for number in range(4)]
        for events in followed:
            events.__enter__()
        # A short time, as a request that meets `busy` is sent again until it is over.
        client._link.timeout = 3
        with pytest.raises(steno.Busy, match="in use"):
            session.stream("s9").append({})
        for events in followed:
            events.close()


def test_streams_of_a_session_are_bounded(
    daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS_MAX", 3)
    with steno.connect_sync(daemon.root) as client:
        session = client.open("demo", follow=False)
        for number in range(3):
            session.stream(f"s{number}").append({})
        with pytest.raises(steno.TooLarge, match="3 streams"):
            session.stream("s3").append({})
        session.stream("s0").delete()
        session.stream("s3").append({})
        assert [each.name for each in session.streams()] == ["s1", "s2", "s3"]


def test_quota_counts_streams(root: Path) -> None:
    (root / "config.toml").write_text("[disk]\nsession_bytes = 20000\n")
    with DaemonInThread(root), steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        stream = session.stream("notes")
        stream.append({"text": "x" * 15_000})
        with pytest.raises(steno.TooLarge, match="quota"):
            stream.append({"text": "x" * 15_000})
        assert stream.count() == 1


def test_expired_streams_are_collected_and_keep_their_generation(daemon: DaemonInThread) -> None:
    with steno.connect_sync(daemon.root) as client:
        stream = client.open("demo", follow=False).stream("notes")
        for number in range(3):
            stream.append({"n": number})
            stream.delete(key=f"d{number}")
        folder = daemon.root / "sessions" / "demo"
        for file in folder.glob("stream-notes~*"):
            name, number, _, key = file.name.split("~")
            file.rename(folder / f"{name}~{number}~1~{key}")
        report = _collect(client, dry_run=True)
        assert (report.files, len(list(folder.glob("stream-notes~*")))) == (3, 3)
        assert _collect(client, dry_run=False).files == 3
        [left] = folder.glob("stream-notes~*")
        assert (left.name, left.stat().st_size) == ("stream-notes~3~1~d2.jsonl", 0)
        assert _collect(client, dry_run=False).files == 0
        assert stream.head() == Position(3, 0)
        assert stream.append({"n": 3}).first == Position(3, 0)


def _collect(client: steno.BlockingClient, *, dry_run: bool) -> Any:
    return client.request(Gc(trash=True, dry_run=dry_run), GcReport)[0]
