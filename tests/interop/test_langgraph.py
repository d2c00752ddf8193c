"""The checkpointer of LangGraph: its own suite, its own savers, and graphs."""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import steno
from interop.frameworks import framework
from interop.langgraph_samples import approval_graph, checkpoint, delta_graph, names, place, put
from steno.adapters.langgraph import StenoSaver
from support.daemons import end_daemon_of

base = framework("langgraph.checkpoint.base")
jsonplus = framework("langgraph.checkpoint.serde.jsonplus")
memory = framework("langgraph.checkpoint.memory")
sqlite = framework("langgraph.checkpoint.sqlite")
conformance = framework("langgraph.checkpoint.conformance")
types = framework("langgraph.types")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# LangGraph runs on asyncio only.
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio"])

TESTS_OF_THE_SUITE = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5,
    "delete_for_runs": 7, "copy_thread": 8, "prune": 8,
}  # fmt: skip

OPERATIONS = 300


@pytest.fixture
def saver(root: Path) -> Iterator[Any]:
    with steno.connect_sync(root) as client:
        yield StenoSaver(client)
    end_daemon_of(root)


@pytest.fixture
async def async_saver(root: Path) -> AsyncIterator[Any]:
    async with steno.connect(root) as client:
        yield StenoSaver(client)
    end_daemon_of(root)


# --- the framework's suite ----------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_the_suite_of_the_framework_passes_without_a_skip(root: Path, kind: str) -> None:
    async def of_async_client() -> AsyncIterator[Any]:
        async with steno.connect(root) as client:
            yield StenoSaver(client)

    async def of_blocking_client() -> AsyncIterator[Any]:
        with steno.connect_sync(root) as client:
            yield StenoSaver(client)

    factory = of_async_client if kind == "async" else of_blocking_client
    report = await conformance.validate(conformance.checkpointer_test(name=kind)(factory))
    end_daemon_of(root)
    assert [each.failures for each in report.results.values() if each.failures] == []
    passed = {name: each.tests_passed for name, each in report.results.items()}
    assert passed == TESTS_OF_THE_SUITE
    assert sum(each.tests_skipped for each in report.results.values()) == 0


# --- compared with the framework's own savers ---------------------------------------------------

VALUES = ["text", 7, None, b"bytes", float("inf"), {"a": [1, {"b": 2.5}]}, ("tuple",), {"ext": 1}]
CHANNELS = ["a", "b", "__error__", "__interrupt__", "__resume__"]
NAMESPACES = ["", "child", "child:1|grandchild"]

Operation = Callable[[Any], Any]


class Draw:
    """Random operations, each for two savers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # Few ids, drawn in any order: most operations meet a checkpoint that is there.
        self.names = [f"{number:04}" for number in self.random.sample(range(60), 25)]
        self.drawers = [
            self.put, self.put, self.writes, self.writes, self.get, self.list, self.history,
            self.remove,
        ]  # fmt: skip

    def operation(self) -> Operation:
        return self.random.choice(self.drawers)()

    def place(self, checkpoint: str | None = None) -> dict[str, Any]:
        thread = self.random.choice(["one", "two"])
        return place(thread, self.random.choice(NAMESPACES), checkpoint)

    def name(self) -> str:
        return self.random.choice(self.names)

    def maybe_name(self) -> str | None:
        return self.random.choice([None, self.name()])

    def put(self) -> Operation:
        draw = self.random
        config = self.place(self.maybe_name())
        values = {channel: draw.choice(VALUES) for channel in draw.sample("abc", 2)}
        given = checkpoint(self.name(), **values)
        metadata = {"source": draw.choice(["loop", "input"]), "step": draw.randint(0, 3)}
        if draw.random() < 0.5:
            metadata["run_id"] = draw.choice("xyz")
        return lambda saver: saver.put(config, given, metadata, {})

    def writes(self) -> Operation:
        draw = self.random
        config, task, path = self.place(self.name()), draw.choice("tu"), draw.choice(["", "b", "a"])
        writes = [(draw.choice(CHANNELS), draw.choice(VALUES)) for _ in range(draw.randint(0, 3))]
        return lambda saver: saver.put_writes(config, writes, task, path)

    def get(self) -> Operation:
        config = self.place(self.maybe_name())
        return lambda saver: saver.get_tuple(config)

    def list(self) -> Operation:
        draw = self.random
        config = self.place(draw.choice([None, self.maybe_name()]))
        if draw.random() < 0.3:
            del config["configurable"]["checkpoint_ns"]
        limit = draw.choice([None, 0, 1, 5])
        options = {
            "filter": draw.choice([None, {}, {"step": 1}, {"source": "loop", "step": 2}]),
            "before": draw.choice([None, place(checkpoint=self.name())]),
        }
        if draw.random() < 0.1:
            return lambda saver: in_order(saver.list(None, **options), None)
        return lambda saver: in_order(saver.list(config, limit=limit, **options), limit)

    def history(self) -> Operation:
        config, channels = self.place(self.maybe_name()), ["a", "c", "missing"]
        return lambda saver: saver.get_delta_channel_history(config=config, channels=channels)

    def remove(self) -> Operation:
        draw = self.random
        thread = draw.choice(["one", "two"])
        match draw.choice(["thread", "runs", "prune", "prune", "missing", "missing"]):
            case "thread":
                return lambda saver: saver.delete_thread(thread)
            case "runs":
                runs = [draw.choice("xyz"), "missing"]
                return lambda saver: saver.delete_for_runs(runs)
            case "prune":
                return lambda saver: saver.prune([thread, "missing"])
            case _:
                return lambda saver: saver.delete_thread("missing")


class SqliteSaver(sqlite.SqliteSaver):  # type: ignore[misc]
    """The framework's saver with the removals that it lacks, as SQL."""

    def delete_for_runs(self, run_ids: list[str]) -> None:
        for run in run_ids:
            self._remove("json_extract(CAST(c.metadata AS TEXT), '$.run_id') = ?", run)

    def prune(self, thread_ids: list[str]) -> None:
        newest = (
            "SELECT max(checkpoint_id) FROM checkpoints n"
            " WHERE n.thread_id = c.thread_id AND n.checkpoint_ns = c.checkpoint_ns"
        )
        for thread in thread_ids:
            self._remove(f"c.thread_id = ? AND c.checkpoint_id < ({newest})", thread)

    def _remove(self, where: str, value: str) -> None:
        columns = "thread_id, checkpoint_ns, checkpoint_id"
        with self.cursor() as cursor:
            found = f"SELECT {columns} FROM checkpoints c WHERE {where}"
            rows = cursor.execute(found, (value,)).fetchall()
            for table in ("checkpoints", "writes"):
                matches = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
                cursor.executemany(f"DELETE FROM {table} WHERE {matches}", rows)


def in_order(found: Iterator[Any], limit: int | None) -> Any:
    """Checkpoints, those with the same id sorted; of these a limit may leave out any."""
    items = list(found)
    ids = [item.config["configurable"]["checkpoint_id"] for item in items]
    assert ids == sorted(ids, reverse=True)
    if limit is not None:
        return ids
    return sorted(items, key=lambda item: sorted(item.config["configurable"].items()))


def test_random_operations_equal_those_of_sqlite(saver: Any, seed: int) -> None:
    draw = Draw(seed)
    with SqliteSaver.from_conn_string(":memory:") as theirs:
        for number in range(OPERATIONS):
            operation = draw.operation()
            assert operation(saver) == operation(theirs), number


def test_ids_in_any_order_read_like_those_of_sqlite(saver: Any, seed: int) -> None:
    ids = [f"{number:04}" for number in random.Random(seed).sample(range(1000), 60)]
    with sqlite.SqliteSaver.from_conn_string(":memory:") as theirs:
        for either in (saver, theirs):
            for name in ids:
                # Writes may be there before their checkpoint.
                either.put_writes(place(checkpoint=name), [("a", name)], "task")
                put(either, name, a=name)
                either.put_writes(place(checkpoint=name), [("b", name)], "task 2")
        assert list(saver.list(place())) == list(theirs.list(place()))
        for config in (place(), place(checkpoint=ids[0]), place(checkpoint="0")):
            assert saver.get_tuple(config) == theirs.get_tuple(config)


def test_a_repeated_put_replaces_and_repeated_writes_do_not(saver: Any) -> None:
    put(saver, "1", a="first")
    config = put(saver, "2", "1", a="second")
    put(saver, "1", a="replaced")
    saver.put_writes(config, [("a", 1)], "task")
    saver.put_writes(config, [("a", 2)], "task")
    saver.put_writes(config, [("__error__", "no")], "task")
    saver.put_writes(config, [("__error__", "again")], "task")
    found = saver.get_tuple(place())
    assert found.checkpoint["channel_values"] == {"a": "second"}
    assert found.pending_writes == [("task", "__error__", "again"), ("task", "a", 1)]
    assert saver.get_tuple(found.parent_config).checkpoint["channel_values"] == {"a": "replaced"}


def test_writes_are_in_the_order_of_paths_tasks_and_numbers(saver: Any) -> None:
    config = put(saver, "1")
    saver.put_writes(config, [("a", 1), ("a", 2)], "task 1", "~b")
    saver.put_writes(config, [("a", 3)], "task 3", "~a")
    saver.put_writes(config, [("a", 4)], "task 2", "~a")
    assert [write[2] for write in saver.get_tuple(place()).pending_writes] == [4, 3, 1, 2]


def test_versions_are_those_of_the_frameworks_savers(saver: Any) -> None:
    first = saver.get_next_version(None, None)
    assert first.split(".")[0] == memory.InMemorySaver().get_next_version(None, None).split(".")[0]
    assert saver.get_next_version(first, None) > first
    assert saver.get_next_version(7, None).startswith(f"{8:032}.")


# --- graphs -------------------------------------------------------------------------------------


def steps(graph: Any, config: dict[str, Any]) -> list[Any]:
    return [(each.values, each.next, each.metadata["step"]) for each in
            graph.get_state_history(config)]  # fmt: skip


def play(saver: Any) -> Any:
    """An interrupt, an answer, and another answer to the same question."""
    graph, config = approval_graph(saver), {"configurable": {"thread_id": "letter"}}
    asked = graph.invoke({"done": []}, config)
    answered = graph.invoke(types.Command(resume="yes"), config)
    before = next(each for each in graph.get_state_history(config) if each.next == ("ask",))
    changed = graph.update_state(before.config, {"done": ["changed"]}, as_node="work")
    graph.invoke(None, changed)
    again = graph.invoke(types.Command(resume="no"), config)
    return [asked["done"], answered, again, steps(graph, config)]


def test_a_graph_is_interrupted_resumed_and_taken_back_in_time(saver: Any) -> None:
    played = play(saver)
    assert played == play(memory.InMemorySaver())
    assert played[1]["done"] == ["draft", "draft", "inner 1", "answer yes", "send"]
    assert played[2]["done"][-3:] == ["changed", "answer no", "send"]


@BACKENDS
async def test_an_async_graph_is_interrupted_and_resumed(async_saver: Any) -> None:
    graph, config = approval_graph(async_saver), {"configurable": {"thread_id": "letter"}}
    await graph.ainvoke({"done": []}, config)
    assert (await graph.aget_state(config)).next == ("ask",)
    done = await graph.ainvoke(types.Command(resume="yes"), config)
    assert done["done"][-2:] == ["answer yes", "send"]
    listed = [each async for each in graph.aget_state_history(config)]
    # The sync methods of an async client's saver work in other threads.
    again = await anyio.to_thread.run_sync(lambda: list(graph.get_state_history(config)))
    assert again == listed


@BACKENDS
async def test_a_sync_method_in_the_loop_of_the_client_is_refused(async_saver: Any) -> None:
    with pytest.raises(RuntimeError, match="would block the event loop"):
        async_saver.get_tuple(place())


@BACKENDS
async def test_a_blocking_client_does_not_block_the_loop(saver: Any) -> None:
    await asyncio.gather(*(saver.aput(place(), checkpoint(f"{n}"), {}, {}) for n in range(8)))
    assert [each.checkpoint["id"] async for each in saver.alist(place(), limit=2)] == ["7", "6"]
    assert (await saver.aget_tuple(place())).checkpoint["id"] == "7"


def test_delta_channels_are_rebuilt_and_survive_a_prune(saver: Any) -> None:
    graph, config = delta_graph(saver), {"configurable": {"thread_id": "talk"}}
    theirs = delta_graph(memory.InMemorySaver())
    for _ in range(7):
        expected = theirs.invoke({"items": ["input"]}, config)
        assert graph.invoke({"items": ["input"]}, config) == expected
    number = len(names(saver))
    saver.prune(["talk"])
    assert 1 < len(names(saver)) < number
    assert graph.get_state(config).values == expected
    expected = theirs.invoke({"items": ["input"]}, config)
    assert graph.invoke({"items": ["input"]}, config) == expected


def test_a_copy_with_another_serializer_uses_the_same_threads(saver: Any) -> None:
    put(saver, "1", a="text")
    clone = copy.copy(saver)
    clone.serde = jsonplus.JsonPlusSerializer(pickle_fallback=True)
    assert isinstance(clone, StenoSaver)
    assert isinstance(clone, base.BaseCheckpointSaver)
    put(clone, "2", "1", a=complex(1, 2))
    assert clone.get_tuple(place()).checkpoint["channel_values"] == {"a": complex(1, 2)}
    assert saver.get_tuple(place(checkpoint="1")) == clone.get_tuple(place(checkpoint="1"))
