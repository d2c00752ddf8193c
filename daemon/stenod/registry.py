"""Which session has which writer: opened on first use, one a folder, closed when idle."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from steno_protocol import limits
from steno_protocol.errors import (
    Busy,
    Exists,
    ShuttingDown,
    StenoError,
    StorageFailed,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Happening, SessionEntry
from stenod import recovery
from stenod.feed import Feed, Spawn
from stenod.mailbox import Item
from stenod.recovery import Inspection, Opened, Opening
from stenod.store.disk import Disk
from stenod.store.jsonl import FileView
from stenod.store.log import View
from stenod.trees import Place, Trees
from stenod.workshop import Workshop
from stenod.writer import OpenHow, Writer


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens a session's files for its writer, again after a failure."""

    disk: Disk
    trees: Trees
    place: Place
    wall: Callable[[], float]

    def __call__(self, how: OpenHow) -> Opened:
        folder = self.trees.open_folder(self.place, create=how.create)
        opening = Opening(
            session=self.place.session,
            path=self.place.path,
            now=self.wall(),
            incarnation=secrets.token_hex(8),
            create=how.create,
            stamp=how.stamp,
            shared=self.place.shared,
            by=how.by,
            proven=how.proven,
        )
        return recovery.open_session(self.disk, folder, opening)


class Registry:
    """The writers of one daemon.

    Args:
        trees: where sessions lie.
        disk: the disk they lie on.
        workshop: what writers work with.
        spawn: starts a task in the background.
    """

    def __init__(self, trees: Trees, disk: Disk, workshop: Workshop, spawn: Spawn) -> None:
        self._trees = trees
        self._disk = disk
        self._shop = workshop
        self._spawn = spawn
        self._writers: dict[tuple[int, int], Writer] = {}
        self._addresses: dict[str, Writer] = {}
        self._resolving: dict[str, list[Item]] = {}
        self._closing = False
        self._running = 0
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._writers)

    @property
    def queued(self) -> int:
        """Commands that wait for a writer."""
        waiting = sum(len(writer.mailbox) for writer in self._writers.values())
        return waiting + sum(map(len, self._resolving.values()))

    def submit(self, session: str, item: Item) -> None:
        """Give a command to its session's writer, which is started if need be.

        Raises:
            StenoError: it was not queued.
        """
        writer = self._addresses.get(session)
        if writer is not None:
            writer.mailbox.put(item)
            return
        if self._closing:
            raise _shutting_down()
        waiting = self._resolving.get(session)
        if waiting is not None:
            if len(waiting) >= limits.MAILBOX_COMMANDS_MAX:
                raise Busy("too many commands wait for this session to open", session=session)
            waiting.append(item)
            return
        self._trees.place(session)
        self._resolving[session] = [item]
        self._spawn(lambda: self._resolve(session))

    async def open(
        self, session: str, *, create: bool, exclusive: bool, stamp: bool, by: str | None
    ) -> Opened:
        """Open a session for writing, making it if it is not there.

        Raises:
            NotFound: it is not there and is not to be made.
            Exists: it is there, and `exclusive` asks for a new one.
            StenoError, OSError: it cannot be opened.
        """
        writer = await self._writer(session, create=create)
        was_open = writer.opened is not None
        opened = await writer.open(OpenHow(create=create, stamp=stamp, by=by))
        if exclusive and (was_open or not opened.created):
            raise Exists("the session is there already: open it without exclusive", session=session)
        return replace(opened, created=opened.created and not was_open)

    async def writer(self, session: str) -> Writer:
        """The writer of a session that is there, its files open."""
        writer = await self._writer(session, create=False)
        await writer.open()
        return writer

    async def look(self, session: str) -> tuple[Inspection, FileView | None]:
        """What a session's files say and, if it is not open, what of them may be read."""
        writer = self._addresses.get(session)
        opened = writer.opened if writer is not None else None
        if opened is not None:
            return _inspection_of(opened), None
        found = self._trees.place(session)
        return await self._shop.read(lambda: self._trees.inspect(found))

    async def sessions(
        self, prefix: str, after: str, limit: int
    ) -> tuple[list[SessionEntry], bool]:
        """Sessions by id, and whether there are more than `limit`."""
        return await self._shop.read(lambda: self._trees.sessions(prefix, after, limit))

    async def view(self, session: str, generation: int | None) -> tuple[View, Position]:
        """What may be read of a generation (None: the present one), and the session's head.

        Raises:
            NotFound: there is no such session or generation.
        """
        inspection, view = await self.look(session)
        present = inspection.head.generation
        writer = self._addresses.get(session)
        if view is None and writer is not None and writer.opened is not None:
            view = writer.opened.log.view(present)
        if generation in {None, present} and view is not None:
            return view, inspection.head
        if view is not None:
            view.release()
        found = self._trees.place(session)
        past = generation if generation is not None else present
        return await self._shop.read(lambda: self._trees.past(found, past)), inspection.head

    async def timeline(self, session: str) -> list[Happening]:
        """What ever happened to a session, rotations by other programs included."""
        found = self._trees.place(session)
        return await self._shop.read(lambda: self._trees.timeline(found))

    def retire_idle(self) -> None:
        """Close what was not used for long, and the longest unused of too many."""
        now = self._shop.monotonic()
        idle = sorted(
            (writer for writer in self._writers.values() if writer.is_idle),
            key=lambda writer: writer.used_at,
        )
        surplus = len(self._writers) - limits.OPEN_SESSIONS_MAX
        for number, writer in enumerate(idle):
            if number < surplus or now - writer.used_at > limits.SESSION_IDLE_S:
                writer.retire()
                self._forget(writer)

    def end_stalled(self) -> None:
        """End the subscriptions that nobody reads."""
        for writer in list(self._writers.values()):
            writer.feed.end_stalled()

    async def wait_quiet(self) -> None:
        """Return when no writer task is running any more."""
        while self._running or self._resolving:
            self._changed = anyio.Event()
            await self._changed.wait()

    def close(self) -> None:
        """Take nothing more; what is queued is still written, then every writer ends."""
        self._closing = True
        for writer in self._writers.values():
            writer.mailbox.close()

    async def _writer(self, session: str, *, create: bool) -> Writer:
        writer = self._addresses.get(session)
        if writer is None:
            if self._closing:
                raise _shutting_down()
            found = self._trees.place(session)
            identity = await self._shop.read(lambda: self._trees.identity(found, create=create))
            writer = self._addresses.get(session) or self._add(found, identity)
        return writer

    async def _resolve(self, session: str) -> None:
        """Find the writer that queued commands are for, or refuse them."""
        try:
            writer = await self._writer(session, create=False)
        except StenoError as error:
            self._refuse_waiting(session, error)
            return
        except OSError as error:
            failed = StorageFailed(f"its folder cannot be opened: {error}", session=session)
            self._refuse_waiting(session, failed)
            return
        for item in self._resolving.pop(session):
            try:
                writer.mailbox.put(item)
            except StenoError as error:
                item.to.refuse(error)
        self._changed.set()
        self._shop.flush()

    def _refuse_waiting(self, session: str, error: StenoError) -> None:
        for item in self._resolving.pop(session):
            item.to.refuse(error)
        self._changed.set()
        self._shop.flush()

    def _add(self, found: Place, identity: tuple[int, int]) -> Writer:
        writer = self._writers.get(identity)
        if writer is None:
            opener = _Opener(self._disk, self._trees, found, self._shop.wall)
            feed = Feed(self._spawn, self._shop.read, self._shop.monotonic)
            writer = Writer(found.session, opener, feed, self._shop)
            self._writers[identity] = writer
            self._start(writer)
        self._addresses[found.session] = writer
        return writer

    def _start(self, writer: Writer) -> None:
        self._running += 1

        async def serve() -> None:
            try:
                await writer.serve()
            finally:
                self._running -= 1
                self._forget(writer)
                self._changed.set()

        self._spawn(serve)

    def _forget(self, writer: Writer) -> None:
        self._addresses = {
            address: other for address, other in self._addresses.items() if other is not writer
        }
        self._writers = {
            identity: other for identity, other in self._writers.items() if other is not writer
        }


def _inspection_of(opened: Opened) -> Inspection:
    log, machine = opened.log, opened.machine
    return Inspection(
        size=log.synced,
        inode=log.stat().inode,
        head=machine.head,
        counters=machine.counters,
        incarnation=opened.incarnation,
        stamp=machine.stamp,
    )


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is ending: the next one takes the command, try again")
