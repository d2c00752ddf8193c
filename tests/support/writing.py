"""A writer task over a simulated disk, controlled by a test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import anyio
from anyio.abc import TaskGroup

from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.errors import StenoError
from steno_protocol.events import Event
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Reply
from stenod.feed.feed import Feed, Subscriber
from stenod.recovery import file_opening
from stenod.recovery.opened import Opened, Opening, OpenOptions
from stenod.runtime.statistics import Statistics
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.writer.group_commit import GroupCommit
from stenod.writer.mailbox import Item
from stenod.writer.services import Services
from stenod.writer.writer import Writer
from support.commits import TestCommits
from support.lines import SESSION
from support.simulated_disk import Death, SimulatedDisk
from support.stored_session import NOW_S, StoredSession

PATH = "/disk/demo"

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Sent:
    """One sent command, its reply, and the durable contents at the time of the reply."""

    command: Mutation
    desk: "Desk"
    answer: Ack | StenoError | None = None
    durable_then: bytes = b""

    def reply(self, body: Reply) -> None:
        """See `ReplyTo`."""
        assert isinstance(body, Ack)
        self._answered(body)

    def refuse(self, error: StenoError) -> None:
        """See `ReplyTo`."""
        self._answered(error)

    def _answered(self, answer: Ack | StenoError) -> None:
        assert self.answer is None, "a command is answered once"
        self.answer = answer
        self.durable_then = self.desk.durable()
        self.desk.answered.append(self)
        self.desk.changed()

    @property
    def ack(self) -> Ack:
        """Its answer, which has to be an ack."""
        assert isinstance(self.answer, Ack), repr(self.answer)
        return self.answer

    @property
    def error(self) -> StenoError:
        """Its answer, which has to be an error."""
        assert isinstance(self.answer, StenoError), repr(self.answer)
        return self.answer


@dataclass(eq=False, slots=True)
class Reader:
    """A subscriber with its events; its queue may be full."""

    desk: "Desk"
    events: list[tuple[Event, bytes | None]] = field(
        default_factory=list[tuple[Event, bytes | None]]
    )
    is_full: bool = False

    def send(self, event: Event, block: bytes | None) -> bool:
        """Take an event from a `Subscriber`."""
        if self.is_full:
            return False
        self.events.append((event, block))
        self.desk.changed()
        return True

    @property
    def kinds(self) -> list[str]:
        """The kinds of its events."""
        return [type(event).__name__ for event, _ in self.events]

    @property
    def data(self) -> bytes:
        """All lines that it was sent."""
        return b"".join(block for _, block in self.events if block is not None)


class Desk:
    """A test's place beside one writer: it sends commands and sees their results.

    Attributes:
        disk: where the session lies.
        stored: the session's files.
        writer: the writer task's object.
        now_s: the monotonic clock; only a test moves it.
        answered: every answered command, in the order of the answers.
        flushes: how many answers had been given at each flush.
        commits: how the writer commits.
        logged: names of the events in the log.
        incarnation: the id that a session which is made now gets.
        doubts: files of which a sync failed.
        serves_at_once: whether desks serve in rounds that say nothing of it themselves.
    """

    serves_at_once: ClassVar[bool] = False

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        shared: bool = False,
        wall_s: float = NOW_S,
        at_once: bool | None = None,
        commits: TestCommits | None = None,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.stored = StoredSession(self.disk, PATH)
        self.now_s = 100.0
        self.wall_s = wall_s
        self.incarnation = "first"
        self.failed_syncs = FailedSyncs()
        self.answered: list[Sent] = []
        self.flushes: list[int] = []
        self.logged: list[str] = []
        is_inline = self.serves_at_once if at_once is None else at_once
        self.commits = TestCommits(is_inline=is_inline) if commits is None else commits
        self.statistics = Statistics()
        self.death: Death | None = None
        self._shared = shared
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None
        if disk is None:
            self.disk.foreign.make_folder(PATH)
            self.disk.sync_all()
        self.services = Services(
            commit=self.commits,
            read=self._read,
            monotonic=lambda: self.now_s,
            wall=lambda: self.wall_s,
            flush=lambda: self.flushes.append(len(self.answered)),
            statistics=self.statistics,
            log=lambda event, **_: self.logged.append(event),
            spawn=self.spawn,
            # Keys that are made in this life are younger than the daemon.
            unknown=UnknownOutcomes(started_ms=int(wall_s * 1000) - 1),
        )
        self.feed = Feed(self.spawn, self._read, lambda: self.now_s)
        self.writer = Writer(SESSION, self._opener, self.feed, self.services)
        self._group_commit = GroupCommit(self.services)
        self._is_round_due = False

    @asynccontextmanager
    async def open(self, *, stamp: bool = True, lazy: bool = False) -> AsyncIterator["Desk"]:
        """Create the session if need be and let the writer serve until the block ends.

        Args:
            stamp: whether a new session's lines bear `_id`.
            lazy: leave the opening to the first command.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.spawn(self.writer.serve)
            if not lazy:
                await self.writer.open(OpenOptions(create=True, stamp=stamp))
            try:
                yield self
            finally:
                self.writer.mailbox.close()
                await self.settle()
                tasks.cancel_scope.cancel()

    def send(
        self,
        command: Mutation,
        *records: bytes,
        deadline_s: float | None = None,
        size: int | None = None,
    ) -> Sent:
        """Put one command into the mailbox."""
        sent = Sent(command, self)
        measured = sum(map(len, records)) if size is None else size
        self._submit(self.writer, Item(command, records, sent, measured, deadline_s))
        return sent

    async def do(self, command: Mutation, *records: bytes) -> Sent:
        """Send one command and wait for its answer."""
        sent = self.send(command, *records)
        await self.wait_for(lambda: sent.answer is not None)
        return sent

    def subscribe(self, after: str = "0:0", credit: int = 1 << 20) -> tuple[Subscriber, Reader]:
        """Follow the session."""
        reader = Reader(self)
        position = self.feed.head if after == "now" else Position.parse(after)
        subscriber = Subscriber(reader.send, position, credit)
        self.feed.check(position)
        self.feed.add(subscriber)
        return subscriber, reader

    async def wait_for(self, fact: Callable[[], bool]) -> None:
        """Return when a fact is true; a test that waits in vain fails by its time limit."""
        with anyio.fail_after(60):
            while not fact():
                self._changed = anyio.Event()
                await self._changed.wait()

    async def settle(self, turns: int = 30) -> None:
        """Let every task run until it waits for something that does not come by itself."""
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()

    def changed(self) -> None:
        """Wake a test that waits for a fact."""
        self._changed.set()

    def durable(self) -> bytes:
        """The durable contents of the present file."""
        return self.disk.durable(f"{PATH}/{paths.CONTEXT}") or b""

    def file(self, name: str = paths.CONTEXT) -> bytes:
        """The contents of the present file."""
        return self.disk.content(f"{PATH}/{name}")

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task; a death of the disk ends it, and is kept."""
        assert self._tasks is not None

        async def run() -> None:
            try:
                await work()
            except Death as death:
                self.death = death
            self.changed()

        self._tasks.start_soon(run)

    def _opener(self, how: OpenOptions) -> Opened:
        opening = Opening(
            session=SESSION,
            path=PATH,
            now=self.wall_s,
            incarnation=self.incarnation,
            create=how.create,
            stamp=how.stamp,
            shared=self._shared,
            by=how.by,
            proven=how.proven,
            changed_while_open=how.changed_while_open,
            failed_syncs=self.failed_syncs,
        )
        return file_opening.open_session(*self._reached(), opening)

    def _reached(self) -> tuple[Disk, int]:
        """The disk of the session's files, and its open folder."""
        return self.disk, self.disk.open_root(PATH)

    async def _read(self, work: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        return work()

    def _submit(self, writer: Writer, item: Item) -> None:
        """Give a writer a command; a group commit serves all sent before a task switch."""
        writer.mailbox.put(item)
        self._group_commit.add(writer)
        if not self._is_round_due:
            self._is_round_due = True
            self.spawn(self._commit_group)

    async def _commit_group(self) -> None:
        self._is_round_due = False
        self._group_commit.serve()


def answers(sent: Sequence[Sent]) -> list[str]:
    """The reply of each command, in short."""
    return [
        f"{one.answer.first}" if isinstance(one.answer, Ack) else type(one.answer).__name__
        for one in sent
    ]
