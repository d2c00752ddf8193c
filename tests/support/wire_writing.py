"""The writers of both files of a session over a simulated disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from steno_protocol import paths
from steno_protocol.commands import AppendWire
from stenod.feed.feed import Feed
from stenod.recovery import stream_opening
from stenod.recovery.opened import Opened, Opening, OpenOptions
from stenod.writer.writer import Writer
from support.commits import TestCommits
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk
from support.writing import PATH, Desk, Sent

T = TypeVar("T")


def append_wire(key: str, **fields: Any) -> AppendWire:
    """An append to the wire file; the events come beside it."""
    return AppendWire(session=SESSION, key=key, **fields)


def encode_event(event_type: str, payload: Any, timestamp: float) -> bytes:
    """An event as the record frame of an append."""
    message = {"type": event_type, "payload": payload}
    return msgspec.json.encode({"timestamp": timestamp, "message": message})


def event(number: int, text: str = "hi") -> bytes:
    """An event with a number in it, as the record frame of an append."""
    return encode_event("TextPart", {"n": number, "text": text}, 1.5)


class WireDesk(Desk):
    """A desk at the writer of the wire file.

    Attributes:
        context: the writer of the same session's context.
        wire_commits: how its writer commits.
    """

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        super().__init__(disk)
        self.context = self.writer
        self.feed = Feed(self.spawn, self._read, lambda: self.now_s)
        self.wire_commits = TestCommits(is_inline=self.serves_at_once)
        services = msgspec.structs.replace(self.services, commit=self.wire_commits)
        self.writer = Writer(SESSION, self._wire_opener, self.feed, services, needs=self.context)

    @asynccontextmanager
    async def open(self, *, stamp: bool = True) -> AsyncIterator["WireDesk"]:
        """Create the session if need be and let both writers serve until the block ends."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.spawn(self.context.serve)
            await self.context.open(OpenOptions(create=True, stamp=stamp))
            self.spawn(self.writer.serve)
            await self.writer.open()
            try:
                yield self
            finally:
                for writer in (self.writer, self.context):
                    writer.mailbox.close()
                    await self.settle()
                tasks.cancel_scope.cancel()

    def send_to_context(self, command: Any, *records: bytes) -> Sent:
        """Put one command into the mailbox of the context's writer."""
        wire, self.writer = self.writer, self.context
        try:
            return self.send(command, *records)
        finally:
            self.writer = wire

    async def do_to_context(self, command: Any, *records: bytes) -> Sent:
        """Send one command to the context's writer and wait for its answer."""
        sent = self.send_to_context(command, *records)
        await self.wait_for(lambda: sent.answer is not None)
        return sent

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, and have the writer look at it."""
        self.now_s += seconds
        self.writer.mailbox.nudge()
        await self.settle()

    def durable(self) -> bytes:
        """The durable contents of the wire file."""
        return self.disk.durable(f"{PATH}/{paths.WIRE}") or b""

    def file(self, name: str = paths.WIRE) -> bytes:
        """The contents of the wire file."""
        return self.disk.content(f"{PATH}/{name}")

    def _wire_opener(self, how: OpenOptions) -> Opened:
        context = self.context.opened
        assert context is not None
        opening = Opening(
            session=SESSION,
            path=PATH,
            now=self.wall_s,
            incarnation="first",
            proven=how.proven,
            changed_while_open=how.changed_while_open,
            failed_syncs=self.failed_syncs,
        )
        return stream_opening.open_stream(
            self.disk,
            self.disk.open_root(PATH),
            opening,
            name=paths.WIRE,
            stamp=context.machine.stamp,
            context_head=lambda: self.context.feed.head,
        )
