"""Subscribers against the files: no gap and no duplicate through any accident.

Writers append to both files, revert and clear; readers are quick, slow, or come and go; the daemon
is killed again and again. In the end all events are compared with the files.
"""

import json
import os
import signal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from e2e.witness import Witness, generations_of
from steno import Ack, Client, NotFound, Session, Subscription, connect
from steno._sansio import event_merge, mirror
from steno._sansio.follower import Follower
from support.wire_files import headers_in, wire_documents, wire_file

pytestmark = pytest.mark.anyio

WRITERS = 3
OPERATIONS = 40
KILLS = 3
WINDOW_BYTES = 3000
END = "that is all"


class Progress:
    """The number of acknowledged operations, and waits for more."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = anyio.Event()

    def advance(self) -> None:
        """One more operation was acknowledged."""
        self.count += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def reach(self, count: int) -> None:
        """Wait for so many operations."""
        while self.count < min(count, WRITERS * OPERATIONS):
            await self._changed.wait()


class Writer:
    """One writer and its acks."""

    def __init__(self, name: str, random: Random, progress: Progress) -> None:
        self.acks: list[tuple[bool, Ack, list[str]]] = []
        self._name = name
        self._random = random
        self._progress = progress
        self._count = 0

    async def run(self, root: Path) -> None:
        """Write until all operations are acknowledged."""
        async with connect(root, name=self._name, timeout=60) as client:
            session = client.session("demo")
            for _ in range(OPERATIONS):
                await self._operate(session)
                self._progress.advance()

    async def _operate(self, session: Session) -> None:
        choice = self._random.random()
        if choice < 0.4:
            texts = self._texts()
            events = [("Note", {"text": text}) for text in texts]
            durability = self._random.choice(["written", "synced"])
            ack = await session.append_wire(events, durability=durability)  # type: ignore[arg-type]
            self.acks.append((True, ack, texts))
        elif choice < 0.75:
            texts = self._texts()
            batch: list[Any] = [{"role": "user", "content": text} for text in texts]
            self.acks.append((False, await session.append_message(batch), texts))
        elif choice < 0.9:
            await session.checkpoint(self._random.random() < 0.5)
        elif choice < 0.98:
            try:
                await session.revert_to(self._random.randrange(4), why="a wrong turn")
            except NotFound:
                # Another writer was there before: then there is nothing to drop.
                await session.update_token_count(self._random.randrange(1000))
        else:
            await session.clear()

    def _texts(self) -> list[str]:
        count = self._random.choice([1, 1, 1, 2, 5])
        self._count += count
        filler = "é" * self._random.choice([0, 10, 400])
        return [f"{self._name}-{self._count - each}-{filler}" for each in range(count)]


class Reader:
    """One subscriber with its way of reading and its view of each file.

    Attributes:
        witnesses: its views.
        has_begun: set once it is subscribed.
    """

    def __init__(
        self, records: str, after: str, random: Random, progress: Progress,
        *, patience: int = 0, leaves: float = 0.0,
    ) -> None:  # fmt: skip
        files = ("context", "wire") if records == "both" else (records,)
        self.witnesses = {file: Witness(file) for file in files}  # type: ignore[arg-type]
        self.has_begun = anyio.Event()
        self._records: Any = records
        self._after = after
        self._random = random
        self._progress = progress
        self._patience = patience
        self._leaves = leaves

    @property
    def has_all(self) -> bool:
        """True once the last line of every file that it follows has come."""
        return all(each.has_seen(END.encode()) for each in self.witnesses.values())

    async def run(self, root: Path) -> None:
        """Follow to the end; one that leaves comes back with a new connection."""
        while not self.has_all:
            async with (
                connect(root, timeout=60) as client,
                self._subscribe(client) as events,
            ):
                self.has_begun.set()
                async for event in events:
                    self.witnesses[event.file].take(event)
                    if self.has_all or self._random.random() < self._leaves:
                        break
                    if self._patience:
                        wait = self._random.randrange(self._patience)
                        await self._progress.reach(self._progress.count + wait)

    def _subscribe(self, client: Client) -> Subscription:
        session = client.session("demo")
        context, wire = (self._start(file) for file in ("context", "wire"))
        if self._records == "wire":
            return session.subscribe(wire, records="wire")
        return session.subscribe(context, records=self._records, wire_after=wire)

    def _start(self, file: str) -> str:
        witness = self.witnesses.get(file)
        return self._after if witness is None or witness.position is None else str(witness.position)


async def killing(root: Path, progress: Progress) -> None:
    """Kill the daemon during the work; a client starts the next one."""
    for number in range(1, KILLS + 1):
        await progress.reach(number * WRITERS * OPERATIONS // (KILLS + 1))
        async with connect(root, timeout=60) as client:
            os.kill((await client.status()).pid, signal.SIGKILL)


def readers(random: Random, progress: Progress) -> list[Reader]:
    """Quick ones, slow ones, and ones that come and go."""

    def reader(records: str, after: str, **more: Any) -> Reader:
        return Reader(records, after, Random(random.random()), progress, **more)

    return [
        reader("context", "start"),
        reader("wire", "start"),
        reader("both", "now"),
        reader("both", "start", patience=12),
        reader("context", "start", patience=6, leaves=0.2),
        reader("both", "start", leaves=0.1),
    ]


def check_acks(folder: Path, writers: list[Writer], generations: list[list[bytes]]) -> None:
    """Check that acknowledged records are where their acks say, in one piece."""
    wire = (folder / "wire.jsonl").read_bytes().splitlines(keepends=True)
    for is_wire, ack, texts in [ack for writer in writers for ack in writer.acks]:
        lines = wire if is_wire else generations[ack.first.generation]
        place = lines[ack.first.line : ack.last.line + 1]
        assert len(place) == len(texts)
        for line, text in zip(place, texts, strict=True):
            assert text.encode() in line


async def test_every_subscriber_saw_what_the_files_hold(
    root: Path, seed: int, anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small window, so that every reader exhausts it again and again.
    for module in (event_merge, mirror):
        monkeypatch.setattr(module, "Follower", partial(Follower, window=WINDOW_BYTES))
    random = Random(f"{seed}-{anyio_backend_name}")
    progress = Progress()
    watching = readers(random, progress)
    writers = [Writer(f"w{each}", Random(random.random()), progress) for each in range(WRITERS)]
    async with connect(root, timeout=60) as client:
        session = await client.open("demo")
        await session.append_message({"role": "user", "content": "begin"})
        async with anyio.create_task_group() as tasks:
            for reader in watching:
                tasks.start_soon(reader.run, root)
            for reader in watching:
                # One that follows from now on would wait for ever for an end that came before.
                await reader.has_begun.wait()
            async with anyio.create_task_group() as work:
                for writer in writers:
                    work.start_soon(writer.run, root)
                work.start_soon(killing, root, progress)
            await session.append_wire("End", {"text": END})
            ack = await session.append_message({"role": "user", "content": END})
        await session.wait_for(ack.head)
        history = session.history

    folder = root / "sessions" / "demo"
    generations = generations_of(folder)
    wire = wire_file(root).read_bytes().splitlines(keepends=True)
    for reader in watching:
        for witness in reader.witnesses.values():
            witness.compare(generations if witness.file == "context" else [wire])
    check_acks(folder, writers, generations)
    present = [json.loads(line) for line in generations[-1]]
    assert history == [
        {key: value for key, value in each.items() if key not in {"_id", "_by"}}
        for each in present
        if not each["role"].startswith("_")
    ]
    documents = wire_documents(root)
    assert headers_in(documents) == [0]
    at = [tuple(map(int, each["_at"].split(":"))) for each in documents[1:]]
    assert at == sorted(at)
