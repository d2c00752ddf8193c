"""What other processes do with the adapters; a process that is spawned imports this module."""

from multiprocessing import Queue

import anyio

import steno
from steno.adapters.claude_agent_sdk import StenoSessionStore
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
    """Put checkpoints and writes of one thread in a process of its own."""


def resume_graph(root: str, answer: str) -> None:
    """x"""
