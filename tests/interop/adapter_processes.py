"""What other processes do with the adapters; a process that is spawned imports this module."""

from multiprocessing import Queue
from typing import Any

import anyio

import steno
from interop.langgraph_samples import approval_graph, checkpoint, place
from steno.adapters.claude_agent_sdk import StenoSessionStore
from steno.adapters.langgraph import StenoSaver
from steno.adapters.openai_agents import StenoSession


def write_entries(root: str, key: dict[str, str], name: str, number: int) -> None:
    """Append entries in a process of their own, each with a uuid."""

    async def write() -> None:
        async with steno.connect(root) as client:
            store = StenoSessionStore(client)
            for each in range(number):
                uuid = f"{name}-{each}"
                await store.append(key, [{"type": "user", "uuid": uuid, "title": uuid}])

    anyio.run(write)


def pop_items(root: str, popped: "Queue[str]") -> None:
    """Pop until nothing is left, in a process of its own."""

    async def pop() -> None:
        async with steno.connect(root) as client:
            session = StenoSession("talk", client)
            while (found := await session.pop_item()) is not None:
                popped.put(found["content"])

    anyio.run(pop)


def put_checkpoints(root: str, name: str, number: int) -> None:
    """Put checkpoints of one thread in a process of their own, each with a write."""
    from langgraph.checkpoint.base.id import uuid6

    with steno.connect_sync(root) as client:
        saver: Any = StenoSaver(client)
        for each in range(number):
            metadata = {"writer": name, "number": each}
            config = saver.put(place(), checkpoint(str(uuid6())), metadata, {})
            saver.put_writes(config, [("a", name)], "task")


def resume_graph(root: str, answer: str) -> None:
    """Answer the question of a graph in a process of its own."""
    from langgraph.types import Command

    with steno.connect_sync(root) as client:
        graph = approval_graph(StenoSaver(client))
        graph.invoke(Command(resume=answer), {"configurable": {"thread_id": "letter"}})
