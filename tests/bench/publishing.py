"""The floor of a replicated append: bare fenced publishing, through nats-py in one process.

It sends what a daemon sends for an append, with the same headers, and waits for the ack of the
majority. Each subject has one message under way at a time.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

import msgspec
import nats
from nats.aio.client import Client

from bench.crew import Task
from bench.lines import message
from steno_protocol.journal_entries import Append, encode_entries
from stenod_cluster.journal import Kind, Owner, Publication
from stenod_cluster.subjects import subject_of
from stenod_cluster.wire import headers_of

CLUSTER: Final = "bench"
OWNER: Final = Owner("0123456789abcdef", "fedcba9876543210", "ipc:///tmp/steno-bench/stenod.sock")
ANSWER_S: Final = 10.0
_decode_answer = msgspec.json.Decoder(dict[str, object]).decode


class FencedPublish:
    """One process that publishes to as many subjects as may be in flight."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._left = task.appends
        self._latencies: list[float] = []

    def run(self, begin: Callable[[], None]) -> list[float]:
        """See `Lane`."""
        asyncio.run(self._run(begin))
        return self._latencies

    async def _run(self, begin: Callable[[], None]) -> None:
        # The type of the function's options is not complete.
        client = await nats.connect(self._task.servers.split(","))  # pyright: ignore[reportUnknownMemberType]
        try:
            prefix = f"floor-{os.getpid()}-{time.monotonic_ns()}"
            begin()
            async with asyncio.TaskGroup() as tasks:
                for number in range(self._task.in_flight):
                    tasks.create_task(self._publish_all(client, f"{prefix}-{number}"))
        finally:
            await client.close()

    async def _publish_all(self, client: Client, folder: str) -> None:
        sequence = 0
        body = encode_entries([Append(1, 0, 0, message(1) + b"\n")])
        subject = subject_of(CLUSTER, folder)
        while self._left > 0:
            self._left -= 1
            start = time.perf_counter()
            sequence = await publish(client, subject, folder, sequence, body)
            self._latencies.append((time.perf_counter() - start) * 1e6)


async def publish(client: Client, subject: str, folder: str, after: int, body: bytes) -> int:
    """Publish one message; returns its sequence."""
    publication = Publication(folder, after, OWNER, Kind.CHANGE, body)
    headers = headers_of(publication, os.urandom(16).hex())
    while True:
        reply = await client.request(subject, body, ANSWER_S, headers=headers)
        answer = _decode_answer(reply.data)
        sequence = answer.get("seq")
        if isinstance(sequence, int):
            return sequence
        # The leader still applies the message before: the same again.
