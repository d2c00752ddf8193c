"""Which session has which writer: opened on first use, one a folder, closed when idle."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import AppendWire, Open
from steno_protocol.errors import Busy, Exists, NotFound, ShuttingDown, StenoError
from stenod.recovery.file_opening import Opened, OpenHow
from stenod.runtime.error_mapping import ErrorMapping, doubted, draining, ended
from stenod.runtime.executor import Spawn
from stenod.runtime.fd_limit import HandleLimit
from stenod.sessions import trash
from stenod.sessions.session import ClosedSessionKeys, File, Session
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.writer.group_commit import GroupCommit
from stenod.writer.mailbox import Item, Mailbox
from stenod.writer.services import Services
from stenod.writer.writer import Writer

_CLOSED: Final = "its files were closed: subscribe again"
_MOVED: Final = "another program moved or replaced its folder: open it again"
"""The reasons for the end of a subscription: the session was deleted, or moved."""


class Registry:
    """The writers of one daemon.

    Args:
        trees: where sessions lie.
        disk: the disk they lie on.
        workshop: what writers work with.
        spawn: starts a task in the background.
        handles: how many files the process may open.

    Attributes:
        group_commit: serves what was submitted since it did so last.
        look_around: called before a session is opened or changed as a whole; it closes the registry
            if the root may be another daemon's.
    """

    def __init__(
        self,
        trees: SessionFolders,
        disk: Disk,
        services: Services,
        spawn: Spawn,
        handles: HandleLimit | None = None,
    ) -> None:
        self.look_around: Callable[[], None] = lambda: None
        self._looked_at = -limits.ROOM_LOOK_S
        self._trees = trees
        self._disk = disk
        self._services = services
        self._spawn = spawn
        self._handles = handles or HandleLimit()
        self._sessions: dict[tuple[int, int], Session] = {}
        self._addresses: dict[str, Session] = {}
        self._names: dict[Session, tuple[tuple[int, int], set[str]]] = {}
        self._resolving: dict[str, Mailbox] = {}
        self._kept_out: list[Place] = []
        self._serving: set[Writer] = set()
        self._closing = False
        self._changed = anyio.Event()
        self.group_commit = GroupCommit(services)
        self._kept = ClosedSessionKeys()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def queued(self) -> int:
        """Commands that wait for a writer."""
        writers = [writer for session in self._sessions.values() for writer in session.writers]
        waiting = sum(len(writer.mailbox) for writer in writers)
        return waiting + sum(map(len, self._resolving.values()))

    @property
    def queued_most(self) -> int:
        """Commands that wait for the writer which most wait for."""
        writers = [writer for session in self._sessions.values() for writer in session.writers]
        return max((len(writer.mailbox) for writer in writers), default=0)

    @property
    def followed(self) -> list[Session]:
        """The followed sessions."""
        return [session for session in self._sessions.values() if session.is_followed]

    def known(self, session: str) -> Session | None:
        """The open session of an id, without a check of its folder; `found` checks it."""
        return self._addresses.get(session)

    def writers(self, session: str) -> list[Writer]:
        """The writers of a session, none while it is not open."""
        found = self._addresses.get(session)
        return found.writers if found is not None else []

    def submit(self, session: str, item: Item) -> None:
        """Give a command to its session's writer, which is started if need be.

        It is served in the next group commit.

        Raises:
            OutcomeUnknown: it was not queued, and says that it may have been applied before.
            StenoError: it was not queued.
        """
        found = self._addresses.get(session)
        try:
            if found is None:
                self._queue_unopened(session, item)
                return
            is_event = isinstance(item.command, AppendWire)
            writer = found.writer("wire") if is_event else found.context
            writer.mailbox.put(item)
        except (Busy, ShuttingDown) as error:
            raise doubted(error, item.command) from None
        self.group_commit.add(writer)

    def commit(self) -> None:
        """Store what was submitted since the last call, and send the replies."""
        if self._services.monotonic() - self._looked_at >= limits.ROOM_LOOK_S:
            self._check_root()
        self.group_commit.serve()
        self._services.flush()

    def _queue_unopened(self, session: str, item: Item) -> None:
        """Queue a command until its session's folder is found."""
        waiting = self._resolving.get(session)
        if waiting is not None and not self._closing:
            waiting.put(item)
            return
        self.check_taking()
        self._check_kept_out(self._trees.place(session))
        waiting = Mailbox(session, self._services.budget)
        waiting.put(item)
        self._resolving[session] = waiting
        self._spawn(lambda: self._resolve(session))

    def check_taking(self) -> None:
        """Refuse what opens or changes sessions while the daemon is ending.

        Raises:
            ShuttingDown: it is, or begins to as its root is lost.
        """
        self._check_root()
        if self._closing:
            raise draining()

    def _check_root(self) -> None:
        self._looked_at = self._services.monotonic()
        self.look_around()

    @contextmanager
    def kept_out(self, place: Place) -> Generator[None]:
        """Keep a session, and those below it, from being opened until the block ends.

        Raises:
            Busy: another operation holds it, or one above or below it.
        """
        if any(place.is_within(other) or other.is_within(place) for other in self._kept_out):
            raise _kept_out(place)
        self._kept_out.append(place)
        try:
            yield
        finally:
            self._kept_out.remove(place)

    @asynccontextmanager
    async def ended(self, place: Place) -> AsyncGenerator[None]:
        """Close a session that others are kept out of, and those below it.

        What is queued for them is written and answered first. Their followers get an event at
        the end of the block that there is nothing to follow any more.
        """
        # One that was moved there is still locked under its old name.
        beside = [each for each in self._sessions.values() if each.place.tree == place.tree]
        await self.close_moved([(each, each.place) for each in beside])
        found = [each for each in self._sessions.values() if each.place.is_within(place)]
        for session in found:
            await self._end(session)
        why = _CLOSED
        try:
            yield
            why = "the session was deleted"
        finally:
            _end_feeds(found, why)

    async def open(self, command: Open) -> Opened:
        """Open a session for writing, making it if it is not there.

        Raises:
            NotFound: it is not there and is not to be made.
            Exists: it is there, and `exclusive` asks for a new one.
            StenoError, OSError: it cannot be opened.
        """
        session, key = command.session, command.key
        found = await self._session(session, create=command.create)
        how = OpenHow(create=command.create, stamp=command.stamp, by=command.by, key=key)
        opened = await found.context.open(how)
        # Of several concurrent callers, one created it: the one with the key, or else the first.
        is_first = opened.created and not found.is_claimed
        is_made = is_first if opened.made_by_key is None else key == opened.made_by_key
        found.is_claimed = True
        if command.exclusive and not is_made:
            raise Exists("the session is there already: open it without exclusive", session=session)
        return msgspec.structs.replace(opened, created=is_made)

    async def writer(self, session: str, file: File) -> Writer:
        """The writer of one file of a session that is there, the file open."""
        found = await self._session(session, create=False)
        writer = found.writer(file)
        await writer.open()
        await writer.settle()
        return writer

    async def found(self, session: str) -> Session | None:
        """The open session of an id, if that still leads to its folder.

        Another program may have moved the folder away, or put another one in its place: what is
        there now is what a command is about that begins something. Commands of the session itself
        go to the open files until the next check here.
        """
        found = self._addresses.get(session)
        if found is not None:
            await self.close_moved([(found, found.place), (found, self._trees.place(session))])
        return self._addresses.get(session)

    async def close_moved(self, known: Sequence[tuple[Session, Place]]) -> None:
        """Close sessions with a moved folder; queued commands are written first."""
        looks = [(session, place, self._names[session][0]) for session, place in known]

        def moved() -> set[Session]:
            return {
                each for each, place, identity in looks if not self._trees.leads_to(place, identity)
            }

        found = await self._services.read(moved)
        for session in found:
            await self._end(session)
            self._services.log("session_moved", session=session.place.session)
        _end_feeds(found, _MOVED)

    def retire_idle(self) -> None:
        """Close what was not used for long, and the longest unused of too many."""
        since = self._services.monotonic() - self._services.settings().number("life.session_idle_s")
        surplus = len(self._sessions) - self._sessions_max
        for number, session in enumerate(self._unused()):
            if number < surplus or session.used_at < since:
                self._retire(session)

    @property
    def _sessions_max(self) -> int:
        """How many sessions may be open while others want to be."""
        wanted = self._services.settings().count("life.sessions_open")
        # The other half is for connections, reads and rewrites.
        return max(1, min(wanted, self._handles.most // 2 // limits.HANDLES_PER_SESSION_MAX))

    def _unused(self) -> list[Session]:
        """Sessions that can be closed, the longest unused first."""
        idle = (session for session in self._sessions.values() if session.is_idle)
        return sorted(idle, key=lambda session: session.used_at)

    def _make_room(self, session: str) -> None:
        """Close some unused sessions, if the limit of open ones is reached.

        Raises:
            Busy: another one would take handles that others need.
        """
        is_room = self._handles.take(limits.HANDLES_PER_SESSION_MAX)
        surplus = len(self._sessions) + 1 - self._sessions_max
        if surplus > 0 or not is_room:
            for unused in self._unused()[: max(surplus, 0) + limits.RETIRED_TOGETHER_MAX]:
                self._retire(unused)
        if not is_room:
            raise Busy(
                f"{len(self._sessions)} sessions are open, and this daemon has no file handles"
                " left for more: end some clients or subscriptions, or raise the limit (ulimit -n)"
                " and restart it",
                session=session,
            )

    def _retire(self, session: Session) -> None:
        session.retire()
        self._forget(session)

    def end_stalled(self) -> None:
        """End the subscriptions of clients that do not read."""
        for session in list(self._sessions.values()):
            for writer in session.writers:
                self._services.statistics.lagged += writer.feed.end_stalled()

    async def wait_quiet(self) -> None:
        """Return when no writer task is running any more."""
        await self._wait_for(lambda: not (self._serving or self._resolving))

    def close(self) -> None:
        """Take nothing more; what is queued is still written, then every writer ends."""
        self._closing = True
        for session in self._sessions.values():
            session.close()

    async def _session(self, session: str, *, create: bool) -> Session:
        found = await self.found(session)
        if found is None:
            self.check_taking()
            place = self._trees.place(session)
            self._check_kept_out(place)
            identity = await self._services.read(lambda: self._trees.identity(place, create=create))
            other = self._sessions.get(identity)
            if other is not None:
                await self.close_moved([(other, other.place)])
            self._check_kept_out(place)
            found = self._addresses.get(session) or self._add(place, identity)
        return found

    async def _resolve(self, session: str) -> None:
        """Find the writer that queued commands are for, or refuse them."""
        try:
            found = await self._session(session, create=False)
        except Exception as error:
            refusal = ErrorMapping(session, self._services.log).of(error)
            is_deleted = isinstance(refusal, NotFound) and await self._was_deleted(session)
            for item in self._resolving.pop(session).take_all():
                item.to.refuse(doubted(refusal, item.command, is_deleted=is_deleted))
        else:
            for item in self._resolving.pop(session).take_all():
                writer = found.writer(_file_of(item))
                try:
                    writer.mailbox.put(item)
                except StenoError as error:
                    item.to.refuse(doubted(error, item.command))
                writer.mailbox.wake()
        self._tell_changed()
        self._services.flush()

    async def _was_deleted(self, session: str) -> bool:
        """Whether the trash may have a session of this id; True if it cannot be read."""
        try:
            place = self._trees.place(session)
            return await self._services.read(lambda: trash.has(self._disk, self._trees, place))
        except OSError:
            return True
        except StenoError:
            return False

    async def _end(self, session: Session) -> None:
        """Let a session's writers write what is queued; return when its files are closed."""
        if session in self._names:
            self._forget(session)
        for writer in session.writers:
            await self._end_writer(writer)

    async def _end_writer(self, writer: Writer) -> None:
        writer.mailbox.close()
        await self._wait_for(lambda: writer not in self._serving)
        # An earlier caller may still be opening its files in a thread. One opens at a time, so
        # that this waits until they are closed again, and is refused then.
        with suppress(StenoError, OSError):
            await writer.open()

    def _check_kept_out(self, place: Place) -> None:
        if any(place.is_within(other) for other in self._kept_out):
            raise _kept_out(place)

    async def _wait_for(self, fact: Callable[[], bool]) -> None:
        while not fact():
            await self._changed.wait()

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _add(self, place: Place, identity: tuple[int, int]) -> Session:
        session = self._sessions.get(identity)
        if session is None:
            self._make_room(place.session)
            session = Session(
                place, self._trees, self._disk, self._services, self._kept, self._spawn, self._start
            )
            self._sessions[identity] = session
            self._names[session] = (identity, set())
        self._addresses[place.session] = session
        self._names[session][1].add(place.session)
        return session

    def _start(self, writer: Writer) -> None:
        self._serving.add(writer)
        if self._closing:
            # For a caller from before the end, or a wire file: it ends too, and takes no command.
            writer.mailbox.close()

        async def serve() -> None:
            try:
                await writer.serve()
            except Exception:
                self._drop(writer)
                raise
            finally:
                self._serving.discard(writer)
                self._tell_changed()

        self._spawn(serve)

    def _drop(self, writer: Writer) -> None:
        """A writer met a fault of ours: the next command opens its session anew."""
        for session in list(self._sessions.values()):
            if writer in session.writers:
                session.close()
                self._forget(session)
                _end_feeds([session], _CLOSED)
        # They were not started: their clients send them again, to the next writer.
        for item in writer.mailbox.take_all():
            item.to.refuse(doubted(ended(writer.session), item.command))
        self._services.flush()

    def _forget(self, session: Session) -> None:
        identity, addresses = self._names.pop(session)
        del self._sessions[identity]
        for address in addresses:
            del self._addresses[address]


def _end_feeds(sessions: Iterable[Session], why: str) -> None:
    for session in sessions:
        for writer in session.writers:
            writer.feed.end(why)


def _file_of(item: Item) -> File:
    return "wire" if isinstance(item.command, AppendWire) else "context"


def _kept_out(place: Place) -> Busy:
    return Busy(
        "the session is being made or deleted as a whole: try again in a moment",
        session=place.session,
    )
