"""Registry of open sessions: opened on first use, closed when idle."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import AppendStream, AppendWire, Open
from steno_protocol.errors import Busy, Exists, NotFound, ShuttingDown, StenoError
from steno_protocol.replies import OpenSession
from stenod.recovery.opened import NoFileYet, Opened, OpenOptions
from stenod.runtime.error_mapping import ErrorMapping, doubted, draining, ended
from stenod.runtime.fd_limit import HandleLimit
from stenod.sessions import rename, trash
from stenod.sessions.cluster_member import ClusterMember, no_cluster, not_replicated
from stenod.sessions.session import ClosedSessionKeys, File, Session, file_of
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.writer.group_commit import GroupCommit
from stenod.writer.mailbox import Item, Mailbox
from stenod.writer.services import Services
from stenod.writer.writer import TO_FOLLOW, Writer

_CLOSED: Final = "its files were closed: subscribe again"
_MOVED: Final = "another program moved or replaced its folder: open it again"
_DELETED: Final = "the session was deleted"
_HANDED_OVER: Final = "another daemon of the cluster owns the session now"
"""The reasons for the end of a subscription."""


class Registry:
    """The open sessions of one daemon; each folder has at most one.

    Args:
        trees: the session trees.
        services: the services of the writers.
        handles: the limit of open files.
        member: the daemon's membership in a cluster; None if it shares no sessions with others.
        check_root: called before a session is opened or changed as a whole; it closes the registry
            if the root may be another daemon's.

    Attributes:
        group_commit: serves the commands that were submitted since its last run.
    """

    def __init__(
        self,
        trees: SessionFolders,
        services: Services,
        handles: HandleLimit,
        member: ClusterMember | None = None,
        check_root: Callable[[], None] = lambda: None,
    ) -> None:
        self.member = member
        self._look_at_root = check_root
        self._root_checked_at = -limits.ROOM_CHECK_S
        self._trees = trees
        self._services = services
        self._handles = handles
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
        """Commands in all mailboxes."""
        writers = [writer for session in self._sessions.values() for writer in session.writers]
        waiting = sum(len(writer.mailbox) for writer in writers)
        return waiting + sum(map(len, self._resolving.values()))

    @property
    def is_at_rest(self) -> bool:
        """True when no command waits or runs, and all acknowledged bytes are synced."""
        return not self.queued and all(session.is_idle for session in self._sessions.values())

    @property
    def queued_most(self) -> int:
        """Commands in the fullest mailbox."""
        writers = [writer for session in self._sessions.values() for writer in session.writers]
        return max((len(writer.mailbox) for writer in writers), default=0)

    def activity(self) -> tuple[OpenSession, ...]:
        """Return the counters of each open session."""
        now_s = self._services.monotonic()
        return tuple(session.activity(now_s) for session in self._sessions.values())

    @property
    def followed(self) -> list[Session]:
        """The followed sessions."""
        return [session for session in self._sessions.values() if session.is_followed]

    def known(self, session: str) -> Session | None:
        """Return the open session of an id; unlike `found`, do not check its folder."""
        return self._addresses.get(session)

    def writers(self, session: str) -> list[Writer]:
        """Return the writers of a session, none while it is closed."""
        found = self._addresses.get(session)
        return found.writers if found is not None else []

    def submit(self, session: str, item: Item) -> None:
        """Queue a command for its session's writer, which is started if necessary.

        The next group commit serves it.

        Raises:
            OutcomeUnknown: the command was not queued, and may have been applied before.
            StenoError: the command was not queued.
        """
        found = self._addresses.get(session)
        try:
            if found is None:
                self._queue_unopened(session, item)
                return
            command = item.command
            is_beside = isinstance(command, (AppendWire, AppendStream))
            writer = found.writer(file_of(command)) if is_beside else found.context
            writer.mailbox.put(item)
        except (Busy, ShuttingDown) as error:
            raise doubted(error, item.command, self._services.unknown) from None
        self.group_commit.add(writer)

    def check_replicated(self, session: str) -> None:
        """Refuse the durability `replicated` for a session that only this machine has.

        Raises:
            BadRequest: the daemon is in no cluster, or the session is in a mount.
        """
        if self.member is None:
            raise not_replicated(
                "this daemon is in no cluster (`steno cluster config` prints how to set one up)",
                session,
            )
        if self._trees.place(session).shared:
            raise not_replicated("a mount is on this machine only", session)

    def commit(self) -> None:
        """Store what was submitted since the last call, and send the replies."""
        if self._services.monotonic() - self._root_checked_at >= limits.ROOM_CHECK_S:
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
        self._services.spawn(lambda: self._resolve(session))

    def check_taking(self) -> None:
        """Refuse to open or change sessions while the daemon is ending.

        Raises:
            ShuttingDown: the daemon is ending, or ends now because its root is lost.
        """
        self._check_root()
        if self._closing:
            raise draining()

    def _check_root(self) -> None:
        self._root_checked_at = self._services.monotonic()
        self._look_at_root()

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
    async def ended(
        self, place: Place, new_place: Place | None = None, why: str = _DELETED
    ) -> AsyncGenerator[None]:
        """Close a session that is kept out, and those below it, while its folder is moved.

        Their queued commands are written and answered first. At the end of the block their
        followers get `gone`.

        Args:
            place: the place of the session.
            new_place: its place after a rename; None if it ends here.
            why: why it ends here.
        """
        # A session that another program moved there is still open under its old name.
        beside = [each for each in self._sessions.values() if each.place.tree == place.tree]
        await self.close_moved([(each, each.place) for each in beside])
        found = [each for each in self._sessions.values() if each.place.is_within(place)]
        for session in found:
            await self._end(session)
        is_moved = False
        try:
            yield
            is_moved = True
        finally:
            if not is_moved:
                _end_feeds(found, _CLOSED)
            elif new_place is None:
                _end_feeds(found, why)
            else:
                self._end_renamed(found, place, new_place)

    def _end_renamed(self, sessions: Iterable[Session], place: Place, new_place: Place) -> None:
        self._kept.move(place.path, new_place.path)
        for session in sessions:
            below = session.place.path.removeprefix(place.path)
            new_id = new_place.session + below
            for writer in session.writers:
                writer.feed.end(f"the session was renamed to {new_id}", new_id)

    @asynccontextmanager
    async def stream_ended(self, session: str, file: File) -> AsyncGenerator[None]:
        """Close a stream of an open session, and keep it from being opened until the block ends.

        Its queued commands are written and answered first. At the end of the block its followers
        get `gone`.

        Raises:
            Busy: the session was closed meanwhile, or another deletion is under way.
        """
        found = self._addresses.get(session)
        if found is None:
            raise Busy("the session was closed meanwhile: try again", session=session)
        with found.stream_kept_out(file) as writer:
            if writer is not None:
                await self._end_writer(writer)
            why = _CLOSED
            try:
                yield
                why = "the stream was deleted"
            finally:
                if writer is not None:
                    writer.feed.end(why)

    async def open(self, command: Open) -> Opened:
        """Open a session for writing, and create it if necessary.

        Raises:
            NotFound: the session does not exist and `create` is false.
            Exists: the session exists and `exclusive` is true.
            StenoError, OSError: the session cannot be opened.
        """
        session, key = command.session, command.key
        found = await self._session(session, create=command.create)
        how = OpenOptions(
            create=command.create,
            stamp=command.stamp,
            by=command.by,
            claim=command.claim,
            key=key,
        )
        opened = await found.context.open(how)
        # Of several concurrent callers one created it: the one with the key, otherwise the first.
        is_first = opened.created and not found.is_claimed
        is_made = is_first if opened.made_by_key is None else key == opened.made_by_key
        found.is_claimed = True
        if command.exclusive and not is_made:
            raise Exists("the session exists already: open it without exclusive", session=session)
        return msgspec.structs.replace(opened, created=is_made)

    async def writer(self, session: str, file: File) -> Writer:
        """Return the writer of a file of an existing session, with the file open if it exists."""
        found = await self._session(session, create=False)
        writer = found.writer(file)
        with suppress(NoFileYet):
            await writer.open(TO_FOLLOW)
        await writer.settle()
        return writer

    async def found(self, session: str) -> Session | None:
        """Return the open session of an id, if the id still leads to its folder.

        Another program may have moved or replaced the folder; the session is closed then. Queued
        mutations go to the open files until this check.
        """
        found = self._addresses.get(session)
        if found is not None:
            await self.close_moved([(found, found.place), (found, self._trees.place(session))])
        return self._addresses.get(session)

    async def close_moved(self, known: Sequence[tuple[Session, Place]]) -> None:
        """Close sessions with a moved folder; queued commands are written first."""
        checks = [(session, place, self._names[session][0]) for session, place in known]

        def moved() -> set[Session]:
            return {
                each
                for each, place, identity in checks
                if not self._trees.leads_to(place, identity)
            }

        found = await self._services.read(moved)
        for session in found:
            await self._end(session)
            self._services.log("session_moved", session=session.place.session)
        _end_feeds(found, _MOVED)

    def retire_idle(self) -> None:
        """Close sessions that are idle, and the least recently used ones above the limit."""
        since = self._services.monotonic() - self._services.settings().number("life.session_idle_s")
        surplus = len(self._sessions) - self._sessions_max
        for number, session in enumerate(self._unused()):
            if number < surplus or session.used_at < since:
                self._retire(session)
        for session in self._sessions.values():
            session.retire_streams(since)

    @property
    def _sessions_max(self) -> int:
        """The number of sessions that may be open at a time."""
        wanted = self._services.settings().count("life.sessions_open")
        # Half of the handles is for connections, reads and rewrites.
        return max(1, min(wanted, self._handles.most // 2 // limits.HANDLES_PER_SESSION_MAX))

    def _unused(self) -> list[Session]:
        """Return the sessions that can be closed, the least recently used first."""
        idle = (session for session in self._sessions.values() if session.is_idle)
        return sorted(idle, key=lambda session: session.used_at)

    def _make_room(self, session: str) -> None:
        """Close some unused sessions, if the limit of open ones is reached.

        Raises:
            Busy: no file handles are left for another session.
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
        """End the subscriptions of clients that stopped reading."""
        for session in list(self._sessions.values()):
            for writer in session.writers:
                self._services.statistics.lagged += writer.feed.end_stalled()

    async def wait_quiet(self) -> None:
        """Wait until no writer task is running."""
        await self._wait_for(lambda: not (self._serving or self._resolving))

    def close(self) -> None:
        """Refuse further commands; writers write the queued ones and end."""
        self._closing = True
        for session in self._sessions.values():
            session.close()

    async def _session(self, session: str, *, create: bool) -> Session:
        found = await self.found(session)
        if found is None:
            self.check_taking()
            place = self._trees.place(session)
            self._check_kept_out(place)
            identity = await self._services.read(lambda: self._identity(place, create=create))
            other = self._sessions.get(identity)
            if other is not None:
                await self.close_moved([(other, other.place)])
            self._check_kept_out(place)
            found = self._addresses.get(session) or self._add(place, identity)
        return found

    def _identity(self, place: Place, *, create: bool) -> tuple[int, int]:
        if self.member is not None and not place.shared:
            self.member.own(place.session)
        return self._trees.identity(place, create=create)

    async def acquire(self, session: str, *, for_reading: bool = False) -> bool:
        """Make this daemon the owner of a session, if it shares sessions with others.

        Args:
            session: the session.
            for_reading: files that may be older than the owner's are enough, if nobody can be
                asked.

        Returns:
            True if the files may be older.

        Raises:
            Held: a living daemon owns it.
            OSError: the journal or the disk failed.
        """
        member = self.member
        if member is None or (place := self._trees.place(session)).shared:
            return False
        found = self._addresses.get(session)
        # An opening that failed, because another daemon made the session first, leaves it closed.
        if found is not None and found.opened("context") is not None:
            if not for_reading or member.is_sure:
                return False
            return await self._services.read(lambda: member.is_stale(session))
        try:
            await self._services.read(lambda: member.own(session, for_reading=for_reading))
        except OSError:
            inode = await self._services.read(lambda: self._trees.inode(place))
            if for_reading and inode is not None:
                return True
            raise
        return False

    async def confirm(self, session: str) -> bool:
        """Ask the cluster whether this daemon still owns an open session.

        Returns:
            False if nobody can be asked.

        Raises:
            Held: another daemon owns it.
        """
        member = self.member
        if member is None or self._trees.place(session).shared:
            return True
        return not await self._services.read(lambda: member.is_stale(session))

    async def join(self, sessions: Sequence[str]) -> list[str]:
        """Bring sessions into the cluster, many at a time; returns those that need more.

        Raises:
            BadRequest: the daemon is in no cluster, or a session is in a mount.
            OSError: the disk failed; some of them are in the cluster.
        """
        member = self.member
        if member is None or any(self._trees.place(each).shared for each in sessions):
            raise no_cluster()
        return await self._services.read(lambda: member.join(sessions))

    async def hand_over(self, session: str, host: str) -> None:
        """Give a session to another daemon of the cluster; its followers go there.

        Raises:
            BadRequest: the daemon is in no cluster, or the session is in a mount.
            NotFound: there is no such session, or no such daemon.
            OSError: the journal failed; this daemon or the other one owns the session.
        """
        member, place = self.member, self._trees.place(session)
        if member is None or place.shared:
            raise no_cluster()
        await self._session(session, create=False)
        with self.kept_out(place):
            async with self.ended(place, why=_HANDED_OVER):
                await self._services.read(lambda: member.give(session, host))

    async def lose(self, session: str) -> None:
        """Close a session that another daemon owns now; its followers go there."""
        found = self._addresses.get(session)
        if found is not None:
            await self._end(found)
            self._services.log("session_lost", session=session)
            _end_feeds([found], _HANDED_OVER)

    async def _resolve(self, session: str) -> None:
        """Find the writer of commands that were queued for a closed session, or refuse them."""
        unknown = self._services.unknown
        try:
            found = await self._session(session, create=False)
        except Exception as error:
            refusal = ErrorMapping(session, self._services.log).of(error)
            gone = await self._cause_of(session) if isinstance(refusal, NotFound) else None
            for item in self._resolving.pop(session).take_all():
                item.to.refuse(doubted(refusal, item.command, unknown, gone))
        else:
            for item in self._resolving.pop(session).take_all():
                try:
                    writer = found.writer(file_of(item.command))
                    writer.mailbox.put(item)
                except StenoError as error:
                    item.to.refuse(doubted(error, item.command, unknown))
                else:
                    writer.mailbox.wake()
        self._tell_changed()
        self._services.flush()

    async def _cause_of(self, session: str) -> str | None:
        """Return why a session of this id, which existed before, is gone; None if none existed."""
        try:
            place = self._trees.place(session)
            return await self._services.read(lambda: self._found_cause(place))
        except OSError:
            return "the session may have been deleted or renamed, and the disk cannot be read"
        except StenoError:
            return None

    def _found_cause(self, place: Place) -> str | None:
        new_id = rename.new_id(self._trees, place)
        if new_id is not None:
            return (
                f"the session was renamed to {new_id!r}: send the command to it, with the same key,"
                " to learn whether it was applied before"
            )
        if trash.has(self._trees, place):
            return (
                "the session was deleted, and only its files in the trash show whether the command"
                " was applied before"
            )
        return None

    async def _end(self, session: Session) -> None:
        """End a session: write its queued commands, and wait until its files are closed."""
        if session in self._names:
            self._forget(session)
        for writer in session.writers:
            await self._end_writer(writer)

    async def _end_writer(self, writer: Writer) -> None:
        writer.mailbox.close()
        await self._wait_for(lambda: writer not in self._serving)
        # An earlier caller may still be opening its files in a thread. Openings run one at a time,
        # so this one waits until the files are closed again, and is then refused.
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
                place, self._trees, self._services, self._kept, self._start, self._handles.take
            )
            self._sessions[identity] = session
            self._names[session] = (identity, set())
        self._addresses[place.session] = session
        self._names[session][1].add(place.session)
        return session

    def _start(self, writer: Writer) -> None:
        self._serving.add(writer)
        if self._closing:
            # The daemon is ending: this writer serves a caller from before, and ends as well.
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

        self._services.spawn(serve)

    def _drop(self, writer: Writer) -> None:
        """Close a session after an internal error; the next command opens it again."""
        for session in list(self._sessions.values()):
            if writer in session.writers:
                session.close()
                self._forget(session)
                _end_feeds([session], _CLOSED)
        # These commands were not started; their clients send them to the next writer.
        for item in writer.mailbox.take_all():
            item.to.refuse(doubted(ended(writer.session), item.command, self._services.unknown))
        self._services.flush()

    def _forget(self, session: Session) -> None:
        identity, addresses = self._names.pop(session)
        del self._sessions[identity]
        for address in addresses:
            del self._addresses[address]


def _end_feeds(sessions: Iterable[Session], why: str) -> None:
    for session in sessions:
        for writer in session.writers:
            writer.feed.end(why, is_moved=why == _HANDED_OVER)


def _kept_out(place: Place) -> Busy:
    return Busy(
        "the session is being made, moved or deleted as a whole: try again in a moment",
        session=place.session,
    )
