"""The checkpointer of LangGraph: its own suite, its own savers, and graphs."""

import asyncio
import copy
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import pytest

import steno
from interop.adapter_processes import put_checkpoints, resume_graph
from interop.frameworks import framework
from steno.adapters.langgraph import StenoSaver
from support.daemons import end_daemon_of

base = framework("langgraph.checkpoint.base")
memory = framework("langgraph.checkpoint.memory")
sqlite = framework("langgraph.checkpoint.sqlite")
conformance = framework("langgraph.checkpoint.conformance")
graphs = framework("langgraph.graph")
types = framework("langgraph.types")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

# LangGraph runs on asyncio only.
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio"])

TESTS_OF_THE_SUITE = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5,
    "delete_for_runs": 7, "copy_thread": 8, "prune": 8,
}  # fmt: skip


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    with steno.connect_sync(root) as client:
        yield client
    end_daemon_of(root)


@pytest.fixture
def saver(client: steno.BlockingClient) -> Any:
    return StenoSaver(client)


@pytest.fixture
def theirs() -> Iterator[Any]:
    with sqlite.SqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


def place(thread: str = "talk", ns: str = "", checkpoint: str | None = None) -> dict[str, Any]:
    place = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": place | ({"checkpoint_id": checkpoint} if checkpoint else {})}


def checkpoint(name: str, **values: Any) -> dict[str, Any]:
    versions = {channel: f"{1:032}.5" for channel in values}
    return base.empty_checkpoint() | {
        "id": name, "channel_values": values, "channel_versions": versions,
    }  # fmt: skip


def put(saver: Any, name: str, parent: str | None = None, /, ns: str = "", **values: Any) -> Any:
    metadata = {"source": "loop", "step": 1}
    return saver.put(place("talk", ns, parent), checkpoint(name, **values), metadata, {})


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


class Draw:
    """Random operations, each with arguments that two savers can be given."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # Few ids, drawn in any order: most operations meet a checkpoint that is there.
        self.names = [f"{number:04}" for number in self.random.sample(range(60), 40)]

    def name(self) -> str:
        return self.random.choice(self.names)

    def place(self, checkpoint: str | None) -> dict[str, Any]:
        thread = self.random.choice(["one", "two"])
        return place(thread, self.random.choice(NAMESPACES), checkpoint)

    def operation(self) -> Callable[[Any], Any]:
        draw = self.random
        match draw.choice(["put", "put", "writes", "writes", "get", "list", "history", "delete"]):
            case "put":
                config = self.place(draw.choice([None, self.name()]))
                values = {channel: draw.choice(VALUES) for channel in draw.sample("abc", 2)}
                given = checkpoint(self.name(), **values)
                metadata = {"source": draw.choice(["loop", "input"]), "step": draw.randint(0, 3)}
                return lambda saver: saver.put(config, given, metadata, {})
            case "writes":
                config, task = self.place(self.name()), draw.choice(["t1", "t2"])
                writes = [
                    (draw.choice(CHANNELS), draw.choice(VALUES)) for _ in range(draw.randint(0, 3))
                ]
                path = draw.choice(["", "~b", "~a"])
                return lambda saver: saver.put_writes(config, writes, task, path)
            case "get":
                config = self.place(draw.choice([None, self.name()]))
                return lambda saver: saver.get_tuple(config)
            case "list":
                return self.listing()
            case "history":
                config = self.place(draw.choice([None, self.name()]))
                return lambda saver: saver.get_delta_channel_history(
                    config=config, channels=["a", "c", "missing"]
                )
            case _:
                thread = "one" if draw.random() < 0.1 else "missing"
                return lambda saver: saver.delete_thread(thread)

    def listing(self) -> Callable[[Any], Any]:
        draw = self.random
        config = self.place(draw.choice([None, None, self.name()]))
        if draw.random() < 0.3:
            del config["configurable"]["checkpoint_ns"]
        options = {
            "filter": draw.choice([None, {}, {"step": 1}, {"source": "loop", "step": 2}]),
            "before": draw.choice([None, place(checkpoint=self.name())]),
            "limit": draw.choice([None, 0, 1, 5]),
        }
        if draw.random() < 0.1:
            return lambda saver: in_order(saver.list(None, **options | {"limit": None}))
        return lambda saver: in_order(saver.list(config, **options), options["limit"])


def in_order(found: Iterator[Any], limit: int | None = None) -> Any:
    """A list with checkpoints of the same id sorted; of those the limit may cut any."""
    items = list(found)
    ids = [item.config["configurable"]["checkpoint_id"] for item in items]
    assert ids == sorted(ids, reverse=True)
    if limit is not None:
        return ids
    return sorted(items, key=lambda item: sorted(item.config["configurable"].items()))


def test_random_operations_equal_those_of_sqlite(
    saver: Any, theirs: Any, seed: int
) -> None:
    draw = Draw(seed)
    for number in range(1200):
        operation = draw.operation()
        assert operation(saver) == operation(theirs), number


def test_ids_in_any_order_read_like_those_of_memory(saver: Any, seed: int) -> None:
    theirs = memory.InMemorySaver()
    names = [f"{number:04}" for number in random.Random(seed).sample(range(1000), 150)]
    for each in names:
        for either in (saver, theirs):
            config = place(checkpoint=each)
            either.put_writes(config, [("a", each)], "task")
            either.put(place(), checkpoint(each), {"step": 1}, {})
            either.put_writes(config, [("b", each)], "task 2")
    assert list(saver.list(place())) == list(theirs.list(place()))
    assert saver.get_tuple(place()) == theirs.get_tuple(place())


def test_a_repeated_put_replaces_and_repeated_writes_do_not(saver: Any) -> None:
    put(saver, "1", a="first")
    config = put(saver, "2", "1", a="second")
    put(saver, "1", a="replaced")
    saver.put_writes(config, [("a", 1), ("__error__", "no")], "task")
    saver.put_writes(config, [("a", 2)], "task")
    saver.put_writes(config, [("__error__", "again")], "task")
    found = saver.get_tuple(place())
    assert found.checkpoint["channel_values"] == {"a": "second"}
    assert found.pending_writes == [("task", "__error__", "again"), ("task", "a", 1)]
    assert saver.get_tuple(found.parent_config).checkpoint["channel_values"] == {"a": "replaced"}
