"""The writers of one session over a simulated disk, without a daemon around them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio.abc
import msgspec

from steno_protocol import paths
from steno_protocol.commands import AppendStream, AppendWire, Mutation
from steno_protocol.errors import Busy, StenoError
from steno_protocol.positions import Position
from stenod.feed.feed import Feed
from stenod.recovery import stream_opening
from stenod.recovery.opened import Opened, Opening, OpenOptions
from stenod.sessions.leases import Compactions
from stenod.writer.mailbox import Item
from stenod.writer.writer import Writer
from support.commits import TestCommits
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk
from support.writing import PATH, Desk, Sent


class WireSent(Sent):
    """A command of the wire file.

    Attributes:
        heads: the context's durable head when it was sent, and when it was answered. The second
            one is counted in the bytes that a power cut could not take.
    """

    __slots__ = ("heads",)

    def __init__(self, command: Mutation, desk: "Writers") -> None:
        super().__init__(command, desk)
        self.heads = (desk.feed.head, desk.feed.head)

    def _answered(self, answer: Any) -> None:
        super()._answered(answer)
        assert isinstance(self.desk, Writers)
        generation = self.desk.feed.head.generation
        size = len(self.durable_then)
        # The lines that can be read there count, too: of a file that was never ours, a sync that
        # failed at its first opening can have lost lines of others, which are theirs to sync.
        read = self.desk.file()[:size] if size else b""
        count = max(self.durable_then.count(b"\n"), read.count(b"\n"))
        # Right behind a rename the file is that of the next generation already.
        most = max(self.desk.feed.head, Position(generation, count))
        self.heads = (self.heads[0], most)
        self.desk.wire_answers.append(self)


class NotedSent(Sent):
    """A command whose answer is passed on at once."""

    __slots__ = ("note",)

    def __init__(self, command: Mutation, desk: Desk, note: Callable[[Any], None]) -> None:
        super().__init__(command, desk)
        self.note = note

    def _answered(self, answer: Any) -> None:
        super()._answered(answer)
        self.note(answer)


STREAM = "stream-notes.jsonl"
"""The file of the stream."""


class Writers(Desk):
    """A desk with the writer of the context, and beside it `wire` and `stream`.

    Attributes:
        compactions: the compactions that were begun.
        stream: the writer of the stream.
        stream_feed: the feed of the stream.
        wire: the writer of the wire file.
        wire_feed: the feed of the wire file.
        wire_answers: every answered command of the wire file, in the order of the answers.
    """

    def __init__(
        self, disk: SimulatedDisk, tasks: anyio.abc.TaskGroup, *, shared: bool, wall_s: float,
        at_once: bool = False, commits: TestCommits | None = None,
    ) -> None:  # fmt: skip
        super().__init__(disk, shared=shared, wall_s=wall_s, at_once=at_once, commits=commits)
        self._tasks = tasks
        self.compactions = Compactions(self.services)
        self.wire_answers: list[WireSent] = []
        self.wire_feed = Feed(self.spawn, self._read, lambda: self.now_s)
        services = msgspec.structs.replace(self.services)
        self.wire = Writer(
            SESSION, partial(self._open_beside, paths.WIRE), self.wire_feed, services,
            needs=self.writer,
        )  # fmt: skip
        self.stream_feed = Feed(self.spawn, self._read, lambda: self.now_s)
        self.stream = Writer(
            SESSION, partial(self._open_beside, STREAM), self.stream_feed, services,
            needs=self.writer,
        )  # fmt: skip

    def writer_of(self, command: Mutation) -> Writer:
        """The writer that a command is for."""
        match command:
            case AppendWire():
                return self.wire
            case AppendStream():
                return self.stream
            case _:
                return self.writer

    def submit(self, sent: Sent, records: Sequence[bytes], deadline_s: float | None = None) -> Sent:
        """Put one command into the mailbox of the writer that it is for."""
        item = Item(sent.command, records, sent, sum(map(len, records)), deadline_s)
        self._submit(self.writer_of(sent.command), item)
        return sent

    def send(
        self,
        command: Mutation,
        *records: bytes,
        deadline_s: float | None = None,
        size: int | None = None,
    ) -> Sent:
        """Put one command into the mailbox of the writer that it is for."""
        is_event = isinstance(command, AppendWire)
        sent = WireSent(command, self) if is_event else Sent(command, self)
        return self.submit(sent, records, deadline_s)

    async def open_context(self) -> None:
        """Open the context; a failure is the next command's to meet."""
        try:
            await self.writer.open(OpenOptions(create=True))
        except (OSError, StenoError):
            return

    def end(self) -> None:
        """Leave nothing behind that touches the disk of the next life."""
        for feed, writer in (
            (self.feed, self.writer),
            (self.wire_feed, self.wire),
            (self.stream_feed, self.stream),
        ):
            feed.detach()
            writer._files.opened = writer._files._aside = None

    def _open_beside(self, name: str, how: OpenOptions) -> Opened:
        context = self.writer.opened
        if context is None:
            # As a daemon's: the context failed meanwhile, and is opened by the next command.
            raise Busy("the session is being opened again", session=SESSION)
        opening = Opening(
            session=SESSION,
            path=PATH,
            now=self.wall_s,
            incarnation="first",
            shared=self._shared,
            proven=how.proven,
            changed_while_open=how.changed_while_open,
            failed_syncs=self.failed_syncs,
        )
        return stream_opening.open_stream(
            *self._reached(),
            opening,
            name=name,
            stamp=context.machine.stamp,
            context_head=lambda: context_head(self.writer),
        )


def context_head(writer: Writer) -> Position:
    """The context position that an event is joined to: the durable head."""
    return writer.feed.head
