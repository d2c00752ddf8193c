"""The checkpointer of LangGraph: odd values, killed daemons, and several processes."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import steno
from interop.adapter_processes import put_checkpoints, resume_graph
from interop.frameworks import framework
from interop.langgraph_samples import approval_graph, checkpoint, names, place, put
from steno._sync.stream import BlockingStream
from steno.adapters import _checkpoint_log
from steno.adapters._checkpoint_log import CheckpointLog
from steno.adapters._checkpoint_store import CheckpointStore
from steno.adapters._checkpoint_threads import Threads
from steno.adapters.langgraph import StenoSaver
from steno_protocol.commands import Gc
from steno_protocol.replies import GcReport
from support.daemons import end_daemon_of

memory = framework("langgraph.checkpoint.memory")
messages = framework("langchain_core.messages")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    with steno.connect_sync(root) as client:
        yield client
    end_daemon_of(root)


@pytest.fixture
def saver(client: steno.BlockingClient) -> Any:
    return StenoSaver(client)


# --- threads that another client deletes ---------------------------------------------------------


def test_a_thread_that_is_deleted_meanwhile_ends_no_removal_from_the_others(
    client: steno.BlockingClient, saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread in ("1", "2", "3"):
        saver.put(place(thread), checkpoint("1"), {"run_id": "run"}, {})
    metadata = CheckpointStore._metadata
    deleted = iter(["2"])

    def delete_beside(self: CheckpointStore, entry: Any) -> dict[str, Any]:
        for thread in deleted:
            client.delete(f"langgraph/{thread}")
        return metadata(self, entry)

    monkeypatch.setattr(CheckpointStore, "_metadata", delete_beside)
    monkeypatch.setattr(Threads, "names", returning(["2", "1", "3"]))
    saver.delete_for_runs(["run"])
    for thread in ("1", "2", "3"):
        assert saver.get_tuple(place(thread)) is None


def test_a_thread_that_is_deleted_before_it_is_copied_has_no_copy(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Threads, "logs", returning(["one"]))
    saver.copy_thread("gone", "copy")
    monkeypatch.undo()
    assert saver.get_tuple(place("copy")) is None


def returning(value: object) -> Any:
    """A method that returns this."""

    async def method(*_: object) -> object:
        return value

    return method


# --- odd values ---------------------------------------------------------------------------------

ODD_VALUES = [
    float("nan"), "\ud800", {1: "key", "x": {2}}, b"\xff\0", bytearray(b"a"), None, 2**64 - 1, -0.0,
    "\u2028\0", [[]] * 3, {"ext": 1, "value": 2}, {"ext": 1, "value": [2]}, object, object(),
    messages.HumanMessage("Hello"), 2**70,
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return value


def outcome(saver: Any, thread: str, value: object) -> Any:
    """What a saver keeps of a value, or the error with which it refuses the value."""
    given, versions = checkpoint("1", a=value), {"a": f"{1:032}.5"}
    try:
        config = saver.put(place(thread), given, {"odd": value}, versions)
        saver.put_writes(config, [("a", value)], "task")
    except Exception as error:
        assert saver.get_tuple(place(thread)) is None
        return type(error)
    found = saver.get_tuple(place(thread))
    return repr([found.checkpoint["channel_values"], found.metadata, found.pending_writes])


def test_odd_values_are_kept_or_refused_as_memory_does(saver: Any) -> None:
    theirs = memory.InMemorySaver()
    for number, value in enumerate([*ODD_VALUES, nested(60), nested(200)]):
        thread = str(number)
        assert outcome(saver, thread, value) == outcome(theirs, thread, value), repr(value)[:80]


def test_a_name_that_is_no_text_is_refused_and_nothing_is_stored(saver: Any) -> None:
    for config, name in [(place("\ud800"), "1"), (place(ns="\ud800"), "1"), (place(), "\ud800")]:
        with pytest.raises(UnicodeEncodeError):
            saver.put(config, checkpoint(name), {}, {})
    for channel, task in [("\ud800", "task"), ("a", "\ud800")]:
        with pytest.raises(UnicodeEncodeError):
            saver.put_writes(place(checkpoint="1"), [(channel, 1)], task)
    assert list(saver.list(None)) == []


def test_no_writes_and_unknown_threads_are_nothing(
    saver: Any, client: steno.BlockingClient
) -> None:
    saver.put_writes(place(checkpoint="1"), [], "task")
    assert saver.get_tuple(place()) is None
    assert saver.get_delta_channel_history(config=place(), channels=["a"]) == {"a": {"writes": []}}
    saver.delete_thread("talk")
    saver.copy_thread("talk", "other")
    saver.prune(["talk"])
    assert client.sessions() == []


def test_an_unknown_strategy_is_refused(saver: Any) -> None:
    put(saver, "1")
    with pytest.raises(ValueError, match="'oldest' is no strategy"):
        saver.prune(["talk"], strategy="oldest")
    assert names(saver) == ["1"]


def test_a_thread_is_not_copied_over_another_one(saver: Any) -> None:
    put(saver, "1")
    saver.put(place("other"), checkpoint("2"), {}, {})
    with pytest.raises(steno.Exists):
        saver.copy_thread("talk", "other")
    assert names(saver, place("other")) == ["2"]


def test_a_value_of_20_mib_is_stored_in_parts_and_a_larger_batch_not_at_all(
    saver: Any, client: steno.BlockingClient
) -> None:
    config = put(saver, "1", a="é" * (10 << 20), b="small")
    saver.put_writes(config, [("a", b"x" * (20 << 20)), ("b", 1)], "task")
    with pytest.raises(steno.TooLarge):
        put(saver, "2", "1", a=b"x" * (49 << 20))
    found = saver.get_tuple(place())
    assert found.checkpoint["channel_values"] == {"a": "é" * (10 << 20), "b": "small"}
    assert [len(value) for _, _, value in found.pending_writes[:1]] == [20 << 20]
    put(saver, "3", "1")
    assert names(saver) == ["3", "1"]


ODD_NAMES = [
    "", "talk", "a/b", "a=2Fb", ".", "_", "_==names", "names", "quarantine", "ä" * 60, "x" * 128,
    "x" * 129, "x" * 5000, "-srv", "\0", "_==" + "0" * 40,
]  # fmt: skip


def test_every_text_is_the_id_of_a_thread_and_of_a_namespace(saver: Any) -> None:
    for name in ODD_NAMES:
        saver.put(place(name, name), checkpoint(name or "none"), {}, {})
    found = [each.config["configurable"] for each in saver.list(None)]
    assert sorted(each["thread_id"] for each in found) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        assert saver.get_tuple(place(name, name)).checkpoint["id"] == (name or "none")
    saver.copy_thread("talk", "y" * 300)
    assert names(saver, {"configurable": {"thread_id": "y" * 300}}) == ["talk"]
    assert "y" * 300 in [each.config["configurable"]["thread_id"] for each in saver.list(None)]
    saver.delete_thread("x" * 129)
    assert saver.get_tuple(place("x" * 129, "x" * 129)) is None


def test_small_values_are_readable_in_the_records(saver: Any, client: steno.BlockingClient) -> None:
    config = put(saver, "1", messages=[messages.HumanMessage("Where is my parcel?")], total=3)
    saver.put_writes(config, [("answer", {"text": "On its way"})], "task")
    stream = client.session("langgraph/talk").stream("checkpoints")
    text = b"".join(each.data for each in stream.records()).decode()
    assert '"content":"Where is my parcel?"' in text
    assert '{"text":"On its way"}' in text
    (found,) = saver.get_tuple(place()).checkpoint["channel_values"]["messages"]
    assert found == messages.HumanMessage("Where is my parcel?")


# --- reading ------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of lines of the reads of streams so far."""
    found: list[int] = []
    last, records = BlockingStream.last, BlockingStream.records

    def counted_last(stream: BlockingStream, count: int) -> list[steno.StreamRecord]:
        found.append(count)
        return last(stream, count)

    def counted_records(stream: BlockingStream, after: Any = None, until: Any = None) -> Any:
        found.append(until.line - after.line)
        return records(stream, after, until)

    monkeypatch.setattr(BlockingStream, "last", counted_last)
    monkeypatch.setattr(BlockingStream, "records", counted_records)
    return found


def test_the_newest_checkpoint_needs_few_lines_however_long_the_thread_is(
    saver: Any, reads: list[int]
) -> None:
    for number in range(120):
        saver.put_writes(put(saver, f"{number:04}", a="x" * 100), [("a", 1)], "task")
    reads.clear()
    assert saver.get_tuple(place()).checkpoint["id"] == "0119"
    assert sum(reads) <= 32
    put(saver, "0120")
    reads.clear()
    assert saver.get_tuple(place()).checkpoint["id"] == "0120"
    assert reads == [_checkpoint_log._WINDOW_LINES]
    assert names(saver, limit=3) == ["0120", "0119", "0118"]
    reads.clear()
    assert saver.get_tuple(place(checkpoint="0070")).pending_writes == [("task", "a", 1)]
    assert sum(reads) < 240


def test_a_reading_serves_some_puts(
    saver: Any, client: steno.BlockingClient, reads: list[int]
) -> None:
    uses = _checkpoint_log._USES_MAX
    # The first put has two appends: one finds that the thread is new.
    for number in range(uses - 1):
        put(saver, f"{number:04}")
    assert reads == [_checkpoint_log._WINDOW_LINES]
    put(saver, "0007")
    stream = client.session("langgraph/talk").stream("checkpoints")
    before, record = stream.last(2)
    assert record.record["mark"] == before.record["id"]
    # What is read by the way serves as well.
    saver.get_tuple(place())
    reads.clear()
    for number in range(uses):
        put(saver, f"{number:04}")
    assert reads == []


@pytest.mark.parametrize("uses", [1, 3, 100])
def test_ids_in_any_order_are_exact_however_old_a_mark_is(
    saver: Any, monkeypatch: pytest.MonkeyPatch, seed: int, uses: int
) -> None:
    monkeypatch.setattr(_checkpoint_log, "_USES_MAX", uses)
    others = [StenoSaver(saver._threads.client) for _ in range(3)]
    ids = [f"{number:04}" for number in random.Random(seed).sample(range(1000), 60)]
    for number, name in enumerate(ids, 1):
        put(others[number % 3], name)
        if number % 7 == 0:
            assert others[number % 2].get_tuple(place()).checkpoint["id"] == max(ids[:number])
        assert saver.get_tuple(place()).checkpoint["id"] == max(ids[:number])
    assert names(saver) == sorted(ids, reverse=True)


def test_operations_that_came_between_a_mark_and_its_record_are_seen(
    saver: Any, client: steno.BlockingClient
) -> None:
    put(saver, "5")
    stream = client.session("langgraph/talk").stream("checkpoints")
    (record,) = stream.last(1)
    # The record of a writer that was slow: others wrote 9 and 3 since it read the end.
    put(saver, "9")
    put(saver, "3", "5")
    mark = record.record["id"]
    stream.append({**record.record, "checkpoint": "7", "id": "slow", "mark": mark})
    assert saver.get_tuple(place()).checkpoint["id"] == "9"
    assert names(saver) == ["9", "7", "5", "3"]
    put(saver, "8")
    named = stream.last(1)[0].record["mark"]
    assert [
        each.record["checkpoint"] for each in stream.records() if each.record["id"] == named
    ] == ["9"]
    assert names(saver) == ["9", "8", "7", "5", "3"]


def test_marks_and_removals_of_a_deleted_thread_are_void(
    saver: Any, client: steno.BlockingClient
) -> None:
    put(saver, "5")
    saver.get_tuple(place())
    put(saver, "6", "5")
    (record,) = client.session("langgraph/talk").stream("checkpoints").last(1)
    # The new thread has the same positions, and the saver still names the mark of the old one.
    saver.delete_thread("talk")
    other: Any = StenoSaver(client)
    put(other, "9")
    put(saver, "7")
    stream = client.session("langgraph/talk").stream("checkpoints")
    (late,) = stream.last(1)
    assert late.record["mark"] == record.record["mark"]
    gone = record.record["mark"]
    stream.append({"through": gone, "id": "drop", "ns": "", "contents": {"drop": ["9"]}})
    stream.append({"note": "of another program"})
    assert names(saver, limit=1) == ["9"]
    put(saver, "8")
    assert names(saver) == ["9", "8", "7"]


def test_a_reading_that_a_deletion_ends_gives_no_mark(
    saver: Any, client: steno.BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["9", *"12345"]:
        put(saver, name)
    reader: Any = StenoSaver(client)
    records = BlockingStream.records

    def deleted_meanwhile(stream: BlockingStream, *between: Any) -> Any:
        saver.delete_thread("talk")
        return records(stream, *between)

    monkeypatch.setattr(BlockingStream, "records", deleted_meanwhile)
    assert reader.get_tuple(place(checkpoint="0")) is None
    monkeypatch.undo()
    client.undelete("langgraph/talk")
    put(reader, "6")
    assert reader.get_tuple(place()).checkpoint["id"] == "9"


def test_a_checkpoint_put_during_a_prune_stays(saver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(saver, "1")
    put(saver, "2")
    adding = CheckpointLog.add

    async def beside_another(log: CheckpointLog, operation: Any, contents: Any) -> steno.Ack:
        monkeypatch.setattr(CheckpointLog, "add", adding)
        put(saver, "3")
        put(saver, "1", a="again")
        return await adding(log, operation, contents)

    monkeypatch.setattr(CheckpointLog, "add", beside_another)
    saver.prune(["talk"])
    assert names(saver) == ["3", "2", "1"]


def test_a_prune_frees_what_expires(saver: Any, client: steno.BlockingClient, root: Path) -> None:
    for number in range(20):
        saver.put_writes(put(saver, f"{number:02}", a="x" * 100_000), [("a", 1)], "task")
    kept = list(saver.list(place(), limit=1))
    saver.prune(["talk"])
    assert list(saver.list(place())) == kept
    stream = client.session("langgraph/talk").stream("checkpoints").stat()
    assert (str(stream.head), stream.bytes < 150_000) == ("1:2", True)
    folder = root / "sessions/langgraph/talk"
    assert [each.name for each in folder.glob("stream-rewrite*")] == []
    (removed,) = folder.glob("stream-checkpoints~1~*.jsonl")
    assert removed.stat().st_size > 2_000_000
    # Its time of deletion, which is in its name, was long ago.
    _, number, _, key = removed.stem.split("~")
    removed = removed.rename(folder / f"stream-checkpoints~{number}~1700000000~{key}.jsonl")
    client.request(Gc(prefix="langgraph/", trash=True), GcReport)
    assert removed.stat().st_size == 0
    saver.put_writes(put(saver, "20"), [("a", 1)], "task")
    assert names(saver) == ["20", "19"]


def test_a_removal_that_another_one_overtakes_is_made_again(
    saver: Any, client: steno.BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "123456":
        saver.put(place(), checkpoint(name), {"run_id": name}, {})
    other: Any = StenoSaver(client)
    adding = CheckpointLog.add

    async def beside_another(log: CheckpointLog, operation: Any, contents: Any) -> steno.Ack:
        monkeypatch.setattr(CheckpointLog, "add", adding)
        other.delete_for_runs(["6", "5", "4", "3"])
        return await adding(log, operation, contents)

    monkeypatch.setattr(CheckpointLog, "add", beside_another)
    saver.delete_for_runs(["1"])
    assert names(saver) == ["2"]


def test_a_stream_with_damage_is_not_rewritten(
    saver: Any, client: steno.BlockingClient, root: Path
) -> None:
    for name in "123456":
        put(saver, name)
    client.drain()
    path = root / "sessions/langgraph/talk/stream-checkpoints.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"checkpoint":"4"', b'!"checkpoint":"4"'))
    saver.prune(["talk"])
    assert names(saver) == ["6"]
    assert b'!"checkpoint"' in path.read_bytes()


def test_damaged_contents_are_named(saver: Any, client: steno.BlockingClient, root: Path) -> None:
    put(saver, "1")
    put(saver, "2", a="x" * (3 << 20))
    client.drain()
    path = root / "sessions/langgraph/talk/stream-checkpoints.jsonl"
    path.write_bytes(path.read_bytes().replace(b'\n{"part', b'\n!"part'))
    with pytest.raises(steno.Corrupt, match="the contents of the checkpoint '2'"):
        saver.get_tuple(place())
    assert saver.get_tuple(place(checkpoint="1")) is not None


# --- death and company --------------------------------------------------------------------------


def test_the_death_of_the_daemon_in_a_call_is_a_delay(
    saver: Any, client: steno.BlockingClient
) -> None:
    for number in range(6):
        # The last kill may have come after the last call: the living daemon is asked who it is.
        killer = threading.Thread(target=partial(os.kill, client.status().pid, signal.SIGKILL))
        killer.start()
        for each in range(3):
            config = put(saver, f"{number}{each}", a=number)
            saver.put_writes(config, [("a", each), ("b", each)], "task")
        killer.join()
    listed = list(saver.list(place()))
    expected = [f"{number}{each}" for number in range(6) for each in range(3)]
    assert [each.checkpoint["id"] for each in reversed(listed)] == expected
    assert {len(each.pending_writes) for each in listed} == {2}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_death_of_the_daemon_under_async_calls_is_a_delay(root: Path) -> None:
    async with steno.connect(root) as client:
        saver: Any = StenoSaver(client)
        for first in range(0, 12, 4):
            async with anyio.create_task_group() as tasks:
                for number in range(first, first + 4):
                    given = checkpoint(f"{number:02}")
                    tasks.start_soon(saver.aput, place(), given, {}, {})
                await anyio.lowlevel.checkpoint()
                os.kill(client.welcome.pid, signal.SIGKILL)
        listed = [each.checkpoint["id"] async for each in saver.alist(place())]
    assert listed == [f"{number:02}" for number in reversed(range(12))]
    end_daemon_of(root)


def test_processes_on_one_thread_lose_nothing(saver: Any, root: Path) -> None:
    writers = [
        SPAWN.Process(target=put_checkpoints, args=(str(root), f"w{number}", 20))
        for number in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    listed = list(saver.list(place()))
    ids = [each.checkpoint["id"] for each in listed]
    assert ids == sorted(ids, reverse=True)
    for number in range(3):
        own = [each for each in listed if each.metadata["writer"] == f"w{number}"]
        assert [each.metadata["number"] for each in own] == list(reversed(range(20)))
        assert all(each.pending_writes == [("task", "a", f"w{number}")] for each in own)
    assert saver.get_tuple(place()) == listed[0]


def test_removals_beside_other_processes_take_nothing_else(saver: Any, root: Path) -> None:
    writers = [
        SPAWN.Process(target=put_checkpoints, args=(str(root), f"w{number}", 20))
        for number in range(2)
    ]
    for writer in writers:
        writer.start()
    removals = 0
    while any(writer.is_alive() for writer in writers) or removals < 3:
        for number in range(8):
            metadata = {"writer": "own", "number": number, "run_id": "gone"}
            saver.put(place(), checkpoint(f"{number}", a="x" * 1000), metadata, {})
        saver.delete_for_runs(["gone"])
        removals += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = [(each.metadata["writer"], each.metadata["number"]) for each in saver.list(place())]
    assert sorted(found) == [(f"w{number}", each) for number in range(2) for each in range(20)]
    assert list((root / "sessions/langgraph/talk").glob("stream-checkpoints~*"))


def test_a_graph_is_resumed_in_another_process(saver: Any, root: Path) -> None:
    graph, config = approval_graph(saver), {"configurable": {"thread_id": "letter"}}
    graph.invoke({"done": []}, config)
    process = SPAWN.Process(target=resume_graph, args=(str(root), "yes"))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert graph.get_state(config).values["done"][-2:] == ["answer yes", "send"]


def test_the_missing_framework_is_named_with_its_extra() -> None:
    code = """
import sys
sys.modules["langgraph"] = None
from steno.adapters.langgraph import StenoSaver
StenoSaver(None)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install 'stenod[langgraph]'" in ran.stderr
