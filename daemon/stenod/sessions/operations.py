"""Operations on whole sessions: verify, describe, fork, delete."""

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar, assert_never
from weakref import WeakValueDictionary

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import Delete, Describe, Fork, Open, Stat, Verify, WholeCommand
from steno_protocol.errors import ErrorCode, NotFound, OutcomeUnknown, StenoError
from steno_protocol.replies import Deleted, SessionStat, Verification
from stenod.recovery.file_opening import Inspection
from stenod.sessions import fork, metadata, trash
from stenod.sessions.file_reads import Readable
from stenod.sessions.fork import Wanted
from stenod.sessions.fork_point import Snapshot
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.store.usage import session_bytes
from stenod.writer.services import Services

T = TypeVar("T")


class Operations:
    """Operations on the sessions of one daemon.

    Args:
        trees: the session trees.
        disk: the disk they lie on.
        registry: the open sessions and their writers.
        queries: queries about them.
        services: clocks and threads.
    """

    def __init__(
        self,
        trees: SessionFolders,
        disk: Disk,
        registry: Registry,
        queries: Queries,
        services: Services,
    ) -> None:
        self._trees = trees
        self._disk = disk
        self._registry = registry
        self._queries = queries
        self._services = services
        self._describing: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._verifying = anyio.Semaphore(limits.VERIFICATIONS_MAX)
        self._swept_at: float | None = None
        self._under_way: set[tuple[str, str]] = set()

    async def serve(self, command: WholeCommand) -> SessionStat | Deleted | Verification:
        """Execute a command; its effect is durable on return.

        Raises:
            StenoError: the command was refused, or its outcome is unknown.
            OSError: the disk failed; nothing was changed.
        """
        match command:
            case Stat():
                return await self._stat(command.session)
            case Open():
                return await self._open(command)
            case Describe():
                return await self._describe(command)
            case Fork():
                with self._alone(command):
                    return await self._fork(command)
            case Delete():
                with self._alone(command):
                    return await self._delete(command)
            case Verify():
                return await self._verify(command.session)
            case _:
                assert_never(command)

    async def sweep_when_due(self) -> None:
        """Remove leftovers of unfinished forks and expired trash, once a day.

        If more has expired than one sweep removes, the next call sweeps again.
        """
        now = self._services.monotonic()
        if self._swept_at is not None and now - self._swept_at < limits.TRASH_SWEEP_S:
            return
        self._swept_at = now
        are_done = [await self._sweep(str(folder)) for folder in self._trees.folders()]
        if not all(are_done):
            self._swept_at = None

    async def _sweep(self, folder: str) -> bool:
        left, expired = await self._services.read(lambda: self._removed(folder))
        if left or expired:
            self._services.log("swept", folder=folder, forks=left, trash=expired)
        return expired < limits.TRASH_SWEEP_ENTRIES_MAX

    def _removed(self, folder: str) -> tuple[int, int]:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that does not exist has nothing to remove.
            return 0, 0
        try:
            wall = self._services.wall()
            return (
                fork.sweep(self._disk, tree, self._is_under_way),
                trash.sweep(self._disk, tree, wall, self._expiry_s),
            )
        finally:
            self._disk.close(tree)

    async def _stat(self, session: str) -> SessionStat:
        inspection, view = await self._queries.inspect(session)
        if view is not None:
            view.release()
        return await self._stat_of(session, inspection, is_open=view is None)

    async def _open(self, command: Open) -> SessionStat:
        opened = await self._registry.open(command)
        inspection, view = await self._queries.inspect(command.session)
        if view is not None:
            view.release()
        return await self._stat_of(
            command.session, inspection, is_open=True, created=opened.created
        )

    async def _stat_of(
        self, session: str, inspection: Inspection, *, is_open: bool, created: bool = False
    ) -> SessionStat:
        place = self._trees.place(session)
        described = await self._services.read(lambda: self._trees.description(place))
        counters = inspection.counters
        return SessionStat(
            session=session,
            head=str(inspection.head),
            bytes=inspection.size,
            generation=inspection.head.generation,
            token_count=counters.token_count,
            token_count_with_pending=counters.token_count_with_pending,
            n_checkpoints=counters.n_checkpoints,
            has_system_prompt=counters.has_system_prompt,
            created=created,
            stamp=inspection.stamp,
            incarnation=inspection.incarnation,
            folder=place.path,
            open=is_open,
            title=described.title,
            labels=described.labels,
            archived=described.archived,
            forked_from=described.forked_from,
        )

    async def _verify(self, session: str) -> Verification:
        """Check all files of a session for damage, without opening it for writing."""
        place = self._trees.place(session)
        attempts = limits.VERIFY_ATTEMPTS_MAX
        async with self._verifying:
            await self._registry.found(session)
            while True:
                attempts -= 1
                is_live, log = self._is_live(session), self._log(session)
                is_believed = is_live or (attempts == 0 and log is not None)
                report = await self._verified(place, is_live=is_believed)
                if is_believed or attempts == 0 or self._log(session) == log:
                    return report

    async def _verified(self, place: Place, *, is_live: bool) -> Verification:
        if is_live or self._log(place.session) is None:
            context = await self._queries.readable(place.session, "context", None)
        else:
            context = await self._services.read(lambda: self._trees.readable(place, None))
        try:
            wire = await self._queries.readable(place.session, "wire", None)
            live = context.generation if is_live else None
            try:
                return await self._services.read(
                    lambda: self._trees.verify(place, context.view, wire.view, live=live)
                )
            finally:
                wire.view.release()
        finally:
            context.view.release()

    def _is_live(self, session: str) -> bool:
        """Whether a session is open and no other program has changed its file.

        The next command takes in another program's changes; until then the file is checked as that
        of a closed session.
        """
        found = self._registry.known(session)
        if found is None or found.context.opened is None:
            return False
        return found.context.is_serving or not found.context.opened.log.is_foreign_changed()

    def _log(self, session: str) -> tuple[int, int, int] | None:
        """Return a value that changes with every change by the session's writer."""
        found = self._registry.known(session)
        opened = found.opened("context") if found is not None else None
        return (id(opened), opened.log.generation, opened.log.size) if opened is not None else None

    async def _describe(self, command: Describe) -> SessionStat:
        self._registry.check_taking()
        # The session is opened, so that no other daemon has it. Changes run one at a time, since
        # each one rewrites the whole file.
        await self._registry.writer(command.session, "context")
        lock = self._describing.setdefault(command.session, anyio.Lock())
        place = self._trees.place(command.session)
        async with lock:
            await self._services.read(lambda: self._change(place, command))
        return await self._stat(command.session)

    def _change(self, place: Place, command: Describe) -> None:
        with self._trees.opened(place) as folder:
            metadata.change(self._disk, folder, command, place.path, self._services.wall())

    async def _fork(self, command: Fork) -> SessionStat:
        source, target = self._trees.place(command.session), self._trees.place(command.new_session)
        wanted = Wanted(
            command, source, target, os.urandom(8).hex(), stamp=True, now=self._services.wall()
        )
        made = await self._done_before(command, lambda: fork.find(self._disk, self._trees, wanted))
        if made is None:
            self._registry.check_taking()
            await self._check_room(source, target)
            with self._registry.kept_out(target):
                made = await self._make(wanted)
        await self._record_in_source(wanted, made)
        return made

    async def _check_room(self, source: Place, target: Place) -> None:
        """Refuse a fork that does not fit.

        Raises:
            TooLarge, StorageFailed: nothing was created.
        """
        quotas = self._services.quotas
        if quotas is not None:
            size = await self._services.read(lambda: session_bytes(source.path))
            account = quotas.account(target.session)
            quotas.renew(account)
            if account.refusal is not None and account.left <= size:
                raise account.refusal
            account.taken += size

    async def _make(self, wanted: Wanted) -> SessionStat:
        async with self._snapshot(wanted.source) as (snapshot, stamp):
            asked = msgspec.structs.replace(wanted, stamp=stamp)
            fork.check_key(asked, snapshot.timeline)
            return await self._services.read(
                lambda: fork.make(self._disk, self._trees, snapshot, asked)
            )

    @asynccontextmanager
    async def _snapshot(self, place: Place) -> AsyncGenerator[tuple[Snapshot, bool]]:
        """Take a snapshot of a session, and return whether its lines have stamps; writers go on.

        The wire file is read before the context, so that none of its events is later than the
        context. The timeline is read last, so that it contains every rewrite that led to this
        context; later entries are ignored.
        """
        session = place.session
        opened = await (await self._registry.writer(session, "context")).open()
        held: list[Readable] = []
        try:
            held.append(await self._queries.readable(session, "wire", None))
            held.append(await self._queries.readable(session, "context", None))
            wire, context = held
            checkpoints = opened.machine.counters.n_checkpoints
            timeline = await self._queries.timeline(session)
            yield (
                Snapshot(
                    session=session,
                    generation=context.generation,
                    context=context.view,
                    wire=wire.view,
                    checkpoints=checkpoints,
                    past=lambda generation: self._trees.past(place, generation),
                    timeline=timeline,
                    incarnation=opened.incarnation,
                ),
                opened.machine.stamp,
            )
        finally:
            for readable in held:
                readable.view.release()

    async def _record_in_source(self, wanted: Wanted, made: SessionStat) -> None:
        """Record the fork in its source's timeline, unless it is there or the source is gone."""
        session = wanted.source.session
        try:
            entries = await self._queries.timeline(session)
            if not fork.is_recorded(wanted, entries):
                writer = await self._registry.writer(session, "context")
                await writer.note(fork.source_entry(wanted, made))
        except NotFound:
            return
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the fork {made.session!r} is made, but could not be recorded in the timeline of"
                f" its source ({error}): send the command again with its key",
                session=session,
                code=getattr(error, "code", None),
                key=wanted.command.key,
            ) from None

    async def _delete(self, command: Delete) -> Deleted:
        place = self._trees.place(command.session)
        done = await self._found_in_trash(place, command)
        if done is not None:
            # A session that was created with this id since is not deleted.
            return done
        self._registry.check_taking()
        with self._registry.kept_out(place):
            done = await self._found_in_trash(place, command)
            if done is not None:
                return done
            async with self._registry.ended(place):
                now = self._services.wall()
                return await self._services.read(
                    lambda: trash.discard(
                        self._disk, self._trees, place, command, now, self._expiry_s
                    )
                )

    async def _found_in_trash(self, place: Place, command: Delete) -> Deleted | None:
        return await self._done_before(
            command,
            lambda: trash.find(self._disk, self._trees, place, command, self._expiry_s),
        )

    def _is_under_way(self, key: str) -> bool:
        """Whether a command with this key is being served; called in a thread."""
        # A copy, made in one step: the event loop changes the set.
        return any(served == key for _, served in tuple(self._under_way))

    @contextmanager
    def _alone(self, command: Fork | Delete) -> Generator[None]:
        """Refuse a copy of a command while another copy is being served.

        Raises:
            OutcomeUnknown: another copy is being served, and its outcome is not yet known.
        """
        copies = (command.session, command.key)
        if copies in self._under_way:
            raise OutcomeUnknown(
                "the same command is being served already: send it again with its key",
                session=command.session,
                code=ErrorCode.BUSY,
                key=command.key,
            )
        self._under_way.add(copies)
        try:
            yield
        finally:
            self._under_way.discard(copies)

    async def _done_before(self, command: Fork | Delete, find: Callable[[], T]) -> T:
        """Return the result of an earlier copy of a command, by `find`.

        Raises:
            OutcomeUnknown: the disk cannot be read, or cannot sync the result of that copy.
        """
        try:
            return await self._services.read(find)
        except OSError as error:
            raise OutcomeUnknown(
                f"the disk failed while an earlier result was looked up or synced ({error}): send"
                " the command again with its key",
                session=command.session,
                code=ErrorCode.STORAGE_FAILED,
                key=command.key,
            ) from None

    @property
    def _expiry_s(self) -> float:
        return trash.expiry_of(self._services.settings())
