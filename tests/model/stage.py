"""A daemon's writers under a step-by-step test: started, asked, ended, killed."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import anyio

from steno_protocol.commands import AppendWire, CompactAbort, CompactBegin, Mutation
from steno_protocol.context import ContextState
from steno_protocol.errors import ShuttingDown, StenoError
from steno_protocol.events import AnyEvent, DmailEvent, Live, Records, Reset
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Compaction
from stenod.core.machine import Machine
from stenod.feed.feed import Subscriber
from stenod.recovery.opened import Opened, OpenOptions
from stenod.sessions.leases import Compactions
from support.lines import SESSION
from support.simulated_disk import Death, PowerCut, ProcessKilled, SimulatedDisk
from support.stored_session import NOW_S
from support.wire_writing import WireDesk
from support.writing import PATH

T = TypeVar("T")


class Mirror:
    """A follower that rebuilds the context, as a client does."""

    def __init__(self, checkpoint_floor: int = 0, generation: int = 0) -> None:
        self.state = ContextState(generation, checkpoint_floor)
        self.mail: DmailEvent | None = None

    @property
    def head(self) -> Position:
        """The end of its lines."""
        return self.state.head

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """Take an event from a `Subscriber`."""
        match event:
            case Records():
                assert Position.parse(event.first) == self.head
                self.state.apply_block(block or b"")
                assert Position.parse(event.next) == self.head
            case Reset():
                self.state.reset(event.generation, event.kept, event.checkpoint_floor)
            case Live():
                assert Position.parse(event.head) == self.head
            case DmailEvent():
                self.mail = event
            case _:
                raise AssertionError(f"an unexpected event: {event}")
        return True


class WireMirror:
    """A follower that keeps the lines of the wire file."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    @property
    def head(self) -> Position:
        """The end of its lines."""
        return Position(0, len(self.lines))

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """Take an event from a `Subscriber`."""
        assert isinstance(event, (Records, Live)), f"an unexpected event: {event}"
        if isinstance(event, Records):
            assert Position.parse(event.first) == self.head
            self.lines += (block or b"").splitlines(keepends=True)
        return True


class Stage:
    """A session on a simulated disk, one daemon's life after another.

    Attributes:
        disk: where it lies.
        wall_s: the wall clock.
        mirror: a follower of the context since the beginning.
        wire_mirror: a follower of the wire file since the beginning.
    """

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.disk.foreign.make_folder(PATH)
        self.disk.sync_all()
        self.wall_s = NOW_S
        self.mirror = Mirror()
        self.wire_mirror = WireMirror()
        self._runner = asyncio.Runner()
        self.start()

    def start(self) -> None:
        """Start a daemon, and let both followers subscribe again."""
        self._runner.run(self._start())

    async def _start(self) -> None:
        started = asyncio.Event()
        self._ending = asyncio.Event()

        async def live() -> None:
            async with anyio.create_task_group() as tasks:
                self.desk = WireDesk(self.disk)
                self.desk._tasks = tasks
                self.desk.wall_s = self.wall_s
                started.set()
                await self._ending.wait()
                tasks.cancel_scope.cancel()

        self._life = asyncio.create_task(live())
        await started.wait()
        desk, services = self.desk, self.desk.services
        self.compactions = Compactions(services)
        desk.spawn(desk.context.serve)
        desk.spawn(desk.writer.serve)
        await desk.context.open(OpenOptions(create=True))
        await desk.writer.open()
        # A new subscription begins with an event of the mail that waits, if one does.
        self.mirror.mail = None
        for feed, mirror in ((desk.context.feed, self.mirror), (desk.feed, self.wire_mirror)):
            feed.check(mirror.head)
            feed.add(Subscriber(mirror.send, mirror.head, 1 << 24))

    def end(self) -> bool:
        """End the daemon, which syncs what it acknowledged; False if it died of it."""
        self._run(self._end())
        if not self.disk.died:
            self._stop()
        return not self.disk.died

    async def _end(self) -> None:
        for writer in (self.desk.writer, self.desk.context):
            writer.mailbox.close()
            await self.desk.settle(60)

    @property
    def has_died(self) -> bool:
        """Whether a planned death has come, maybe right behind an answer."""
        return self.disk.died

    def kill(self, death: type[Death]) -> None:
        """Kill the daemon, or cut the power, unless that has happened already."""
        self.disk._death = self.disk._death or death
        self.disk.restart()
        self._stop()

    def _stop(self) -> None:
        self._run(self._stopped())

    async def _stopped(self) -> None:
        desk = self.desk
        for writer in (desk.writer, desk.context):
            writer.feed.detach()
            writer._files.opened = None
        self.disk.heal()
        self._ending.set()
        await self._life

    def close(self) -> None:
        """Leave nothing running."""
        if not self._life.done():
            self.kill(ProcessKilled)
        self._runner.close()

    # --- asking ----------------------------------------------------------------------------------

    def ask(self, command: Mutation, records: Sequence[bytes]) -> Ack | StenoError | None:
        """Send a command and wait for its answer; None if the daemon died instead."""
        return self._run(self._ask(command, records))

    async def _ask(self, command: Mutation, records: Sequence[bytes]) -> Ack | StenoError | None:
        desk = self.desk
        desk.wall_s = self.wall_s
        send = desk.send if isinstance(command, AppendWire) else desk.send_to_context
        sent = send(command, *records)
        await desk.wait_for(lambda: sent.answer is not None or self.disk.died)
        # Work behind an answer, such as saving a recovery point, belongs to this step.
        await desk.settle()
        return sent.answer

    def begin(self, command: CompactBegin) -> Compaction | StenoError | None:
        """Begin a compaction; None if the daemon died instead."""

        async def begin() -> Compaction | StenoError | None:
            try:
                return await self.compactions.begin(self.desk.context, command)
            except StenoError as error:
                # A dead daemon's writer refuses, and no client gets that.
                return None if self.disk.died and isinstance(error, ShuttingDown) else error
            except Death:
                return None

        return self._run(begin())

    def abort(self, lease: str) -> None:
        """Give a compaction up."""
        self.compactions.abort(self.desk.context, CompactAbort(session=SESSION, lease=lease))

    def settle(self) -> None:
        """Let the followers catch up."""
        self._run(self.desk.settle(60))

    def follow(self) -> Mirror:
        """Follow from the start of the present generation until it has caught up."""
        return self._run(self._follow())

    async def _follow(self) -> Mirror:
        feed = self.desk.context.feed
        start = Position(feed.head.generation, 0)
        mirror = Mirror(feed.checkpoint_floor, start.generation)
        subscriber = Subscriber(mirror.send, start, 1 << 24)
        feed.add(subscriber)
        await self.desk.settle(60)
        feed.remove(subscriber)
        return mirror

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # --- state -----------------------------------------------------------------------------------

    @property
    def opened(self) -> Opened:
        """The open context."""
        opened = self.desk.context.opened
        assert opened is not None
        return opened

    @property
    def machine(self) -> Machine:
        """The daemon's state of the context."""
        machine = self.opened.machine
        assert isinstance(machine, Machine)
        return machine

    def file(self, name: str) -> bytes:
        """The bytes of one of the session's files."""
        return self.disk.tree().get(f"{PATH}/{name}", b"")


DEATHS: dict[str, type[Death]] = {"killed": ProcessKilled, "power cut": PowerCut}
