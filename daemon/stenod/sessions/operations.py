"""Operations on whole sessions: verify, describe, fork, rename, delete, undelete, take in."""

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar, assert_never
from weakref import WeakValueDictionary

import anyio
import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import (
    Delete,
    DeleteStream,
    Describe,
    Fork,
    Open,
    Rename,
    Stat,
    Streams,
    TakeIn,
    Trash,
    Undelete,
    Verify,
    WholeCommand,
)
from steno_protocol.errors import (
    BadRequest,
    ErrorCode,
    Exists,
    Held,
    NotFound,
    OutcomeUnknown,
    StenoError,
)
from steno_protocol.replies import (
    Deleted,
    Moved,
    SessionStat,
    StreamList,
    TrashReport,
    Verification,
)
from steno_protocol.timeline_entries import RENAMED, TimelineEntry
from stenod.core.machine import Machine
from stenod.recovery.file_opening import Inspection
from stenod.sessions import fork, metadata, moves, rename, streams, taking_in, trash
from stenod.sessions.cluster_member import ClusterMember
from stenod.sessions.file_reads import Readable
from stenod.sessions.fork import Wanted
from stenod.sessions.fork_point import Snapshot
from stenod.sessions.moves import Move
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.sessions.session import file_of
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.store.usage import BLOCK_BYTES, NEW_SESSION_BYTES, session_bytes, tree_bytes
from stenod.writer.services import Services

T = TypeVar("T")

_KeyedCommand = Fork | Rename | Delete | DeleteStream | Undelete | TakeIn
"""The commands that create, move or remove a session by a key of their own."""


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
        # A rename that follows completes an earlier one, perhaps while that completes itself.
        self._completing = anyio.Lock()
        self._describing: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._verifying = anyio.Semaphore(limits.VERIFICATIONS_MAX)
        self._swept_at: float | None = None
        self._under_way: set[tuple[str, str]] = set()

    async def serve(
        self, command: WholeCommand
    ) -> SessionStat | Deleted | Moved | Verification | StreamList:
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
            case Fork() | Delete() | Rename() | Undelete() | TakeIn() | DeleteStream():
                with self._alone(command):
                    return await self._serve_alone(command)
            case Verify():
                return await self._verify(command.session)
            case Streams():
                parts = await self._queries.streams(command.session, command.stream)
                return StreamList(streams=[part.entry for part in parts])
            case _:
                assert_never(command)

    async def _serve_alone(self, command: _KeyedCommand) -> SessionStat | Deleted | Moved:
        match command:
            case Fork():
                return await self._fork(command)
            case Delete():
                return await self._delete(command)
            case Rename():
                return await self._rename(command)
            case Undelete():
                return await self._undelete(command)
            case TakeIn():
                return await self._take_in(command)
            case DeleteStream():
                return await self._delete_stream(command)
            case _:
                assert_never(command)

    async def sweep_when_due(self) -> None:
        """Remove leftovers of unfinished forks and imports, and expired trash, once a day.

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
        left, untaken, expired, moved = await self._services.read(lambda: self._removed(folder))
        if left or untaken or expired or moved:
            self._services.log(
                "swept", folder=folder, forks=left, imports=untaken, trash=expired, moves=moved
            )
        return expired < limits.TRASH_SWEEP_ENTRIES_MAX

    def _removed(self, folder: str) -> tuple[int, int, int, int]:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that does not exist has nothing to remove.
            return 0, 0, 0, 0
        try:
            wall = self._services.wall()
            return (
                fork.sweep(self._disk, tree, self._is_under_way),
                taking_in.sweep(self._disk, tree, self._is_under_way),
                trash.sweep(self._disk, tree, wall, self._expiry_s),
                moves.sweep(self._disk, tree, wall, self._expiry_s),
            )
        finally:
            self._disk.close(tree)

    async def _stat(self, session: str) -> SessionStat:
        inspection, view = await self._queries.inspect(session)
        if view is not None:
            view.release()
        return await self._stat_of(session, inspection, is_open=view is None)

    async def _open(self, command: Open) -> SessionStat:
        await self._take_room_of_new(command)
        opened = await self._registry.open(command)
        inspection, view = await self._queries.inspect(command.session)
        if view is not None:
            view.release()
        return await self._stat_of(
            command.session, inspection, is_open=True, created=opened.created
        )

    async def _take_room_of_new(self, command: Open) -> None:
        """Refuse to create a session that does not fit.

        Raises:
            TooLarge, StorageFailed: nothing was created.
        """
        quotas = self._services.quotas
        is_known = self._registry.known(command.session) is not None
        if quotas is None or not quotas.has_limits or not command.create or is_known:
            return
        place = self._trees.place(command.session)
        if await self._services.read(lambda: self._trees.inode(place)) is None:
            quotas.take(command.session, NEW_SESSION_BYTES)

    def take_room(self, session: str, size: int = BLOCK_BYTES) -> None:
        """Refuse a command that writes so many bytes and does not fit.

        Raises:
            TooLarge, StorageFailed: nothing was written.
        """
        quotas = self._services.quotas
        if quotas is not None and quotas.has_limits:
            quotas.take(session, size)

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
        held = {paths.CONTEXT: context.view}
        try:
            held[paths.WIRE] = (await self._queries.readable(place.session, "wire", None)).view
            # Closed streams are measured one by one, because all sessions share the handles.
            for writer in self._registry.writers(place.session):
                opened = writer.opened
                if opened is not None and opened.log.name not in held:
                    held[opened.log.name] = opened.log.view(opened.log.generation)
            live = context.generation if is_live else None
            return await self._services.read(lambda: self._trees.verify(place, held, live=live))
        finally:
            for view in held.values():
                view.release()

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
        self.take_room(command.session)
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
        # A fork of this key may be there, although another daemon owns it since.
        with self.looking_up(command):
            taken = await self._acquire_new(target)
        made = await self._done_before(command, lambda: self._found_fork(wanted))
        if made is None:
            if taken is not None:
                raise taken
            self._registry.check_taking()
            await self._check_room(source, target)
            with self._registry.kept_out(target):
                made = await self._make(wanted)
        await self._record_in_source(wanted, made)
        return made

    async def settle_moves(self, key: str | None = None) -> None:
        """Settle, in a cluster, the moves that ended before their folders moved.

        What they published would otherwise come back as a second session.

        Args:
            key: of the command to settle; None for all, whose errors are logged.

        Raises:
            OSError: the journal or the disk failed.
        """
        member = self._registry.member
        if member is None:
            return
        try:
            await self._services.read(lambda: self._settle_moves(member, key))
        except OSError as error:
            if key is not None:
                raise
            self._services.log("moves_unsettled", error=str(error))

    def _settle_moves(self, member: ClusterMember, key: str | None) -> None:
        root = next(folder for prefix, folder in self._trees.prefixes() if not prefix)
        try:
            tree = self._disk.open_root(str(root))
        except FileNotFoundError:
            return
        try:
            for each in moves.unmoved(self._disk, tree, key):
                try:
                    is_moved = member.settle_move(each.source, each.target, each.record.key)
                except OSError as error:
                    if key is not None:
                        raise
                    # The others are settled nevertheless, and a repeat of this one tries again.
                    self._services.log("move_unsettled", source=each.source, error=str(error))
                    continue
                if not is_moved:
                    moves.forget(self._disk, tree, each.record)
                self._services.log(
                    "move_settled", source=each.source, to=each.target, moved=is_moved
                )
        finally:
            self._disk.close(tree)

    async def _acquire_new(self, place: Place) -> Exists | None:
        """Own the place of a new session; returns the error if another daemon has it."""
        try:
            await self._registry.acquire(place.session)
        except Held as error:
            return Exists(
                f"{place.session!r} exists already: choose another id, or rename or delete that"
                f" session first; the daemon at {error.endpoint} owns it",
                session=place.session,
            )
        return None

    def _found_fork(self, wanted: Wanted) -> SessionStat | None:
        """Return the answer of an earlier copy of a fork; None if there is none.

        Raises:
            NotFound: the key made the fork, which was renamed since.
            Exists, BadRequest: see `fork.find`.
        """
        made = fork.find(self._disk, self._trees, wanted)
        new_id = None if made else rename.new_id(self._disk, self._trees, wanted.target)
        if new_id is None:
            return made
        renamed = msgspec.structs.replace(wanted, target=self._trees.place(new_id))
        # A session there that is no fork with this key is of no importance.
        with suppress(Exists, BadRequest):
            made = fork.find(self._disk, self._trees, renamed)
        if made is None:
            return None
        raise NotFound(
            f"the fork {wanted.target.session!r} was created with this key and was renamed to"
            f" {new_id!r}: open it, or use a new key to create another one",
            session=wanted.source.session,
        )

    async def _check_room(self, source: Place, target: Place) -> None:
        """Refuse a fork that does not fit.

        Raises:
            TooLarge, StorageFailed: nothing was created.
        """
        quotas = self._services.quotas
        if quotas is not None:
            size = await self._services.read(lambda: session_bytes(source.path))
            quotas.take(target.session, size + NEW_SESSION_BYTES)

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
        parts = await self._queries.streams(session)
        try:
            held.append(await self._queries.readable(session, "wire", None))
            held.append(await self._queries.readable(session, "context", None))
            wire, context = held
            machine = opened.machine
            # Only a context is forked.
            assert isinstance(machine, Machine)
            next_id = machine.next_checkpoint_id
            timeline = await self._queries.timeline(session)
            yield (
                Snapshot(
                    session=session,
                    generation=context.generation,
                    context=context.view,
                    wire=wire.view,
                    streams=parts,
                    next_id=next_id,
                    past=lambda generation: self._trees.past(place, generation),
                    timeline=timeline,
                    incarnation=opened.incarnation,
                    reuses_ids=machine.reuses_ids,
                ),
                machine.stamp,
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
        if done is None:
            with self.looking_up(command):
                done = await self._deleted_elsewhere(place, command)
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

    async def _delete_stream(self, command: DeleteStream) -> Deleted:
        session = command.session
        place = self._trees.place(session)
        done = await self._stream_deleted_before(place, command)
        if done is not None:
            # A stream that was created with this name since is not deleted.
            return done
        self._registry.check_taking()
        # The open context holds the folder's lock, so that no other daemon has the stream open.
        await self._registry.writer(session, "context")

        def discard() -> Deleted:
            with self._trees.opened(place) as folder:
                return streams.discard(
                    self._disk, folder, place, command, self._services.wall(), self._expiry_s,
                    self._trees.failed_syncs,
                )  # fmt: skip

        async with self._registry.stream_ended(session, file_of(command)):
            done = await self._stream_deleted_before(place, command)
            return done if done is not None else await self._services.read(discard)

    async def _stream_deleted_before(self, place: Place, command: DeleteStream) -> Deleted | None:
        def find() -> Deleted | None:
            with self._trees.opened(place) as folder:
                return streams.find_deleted(self._disk, folder, place, command, self._expiry_s)

        return await self._done_before(command, find)

    async def _rename(self, command: Rename) -> Moved:
        source, target = self._trees.place(command.session), self._trees.place(command.new_session)
        wanted = rename.Wanted(command, source, target)
        rename.check(wanted)
        with self.looking_up(command):
            await self.settle_moves(command.key)
            found = await self._renamed(wanted) or await self._renamed_elsewhere(wanted)
        if found is None:
            self._registry.check_taking()
            self.take_room(source.session)
            taken = await self._acquire_new(target)
            if taken is not None:
                raise taken
            # A session that cannot be opened could not record the rename.
            await self._registry.writer(source.session, "context")
            await self._complete_earlier(source)
            with self._registry.kept_out(source), self._registry.kept_out(target):
                found = await self._renamed(wanted) or await self._rename_closed(wanted)
        if not found.is_complete:
            await self._complete(command.key, wanted.move())
        return found.answer

    async def _renamed(self, wanted: rename.Wanted) -> rename.Renamed | None:
        return await self._done_before(
            wanted.command, lambda: rename.find(self._disk, self._trees, wanted)
        )

    async def _renamed_elsewhere(self, wanted: rename.Wanted) -> rename.Renamed | None:
        """Return the result of a repeat of what a daemon of the cluster did that died since."""
        member, source, target = self._registry.member, wanted.source, wanted.target
        if member is None or source.shared:
            return None
        key = wanted.command.key
        is_done = await self._services.read(
            lambda: member.renamed_elsewhere(source.session, target.session, key)
        )
        if not is_done:
            return None
        # A living daemon that owns it has the record of the command, and answers the repeat.
        await self._registry.acquire(target.session)
        return rename.done_elsewhere(wanted)

    async def _rename_closed(self, wanted: rename.Wanted) -> rename.Renamed:
        async with self._registry.ended(wanted.source, wanted.target):
            now = self._services.wall()
            return await self._services.read(
                lambda: rename.rename(self._disk, self._trees, wanted, now)
            )

    async def _complete_earlier(self, place: Place) -> None:
        """Record earlier renames to a place that a crash or a failing disk left unrecorded."""
        left = await self._services.read(lambda: rename.incomplete(self._disk, self._trees, place))
        for key, move in left:
            await self._complete(key, move)

    async def _complete(self, key: str, move: Move) -> None:
        """Record a rename in the session's timeline, and mark it as complete.

        Raises:
            Held: another daemon owns the session, and answers a repeat from the journal.
            OutcomeUnknown: the rename could not be recorded.
        """
        place = self._trees.place(move.target)
        try:
            async with self._completing:
                await self._record_rename(key, move)
                await self._services.read(
                    lambda: rename.finish(self._disk, self._trees, place, key)
                )
        except Held:
            raise
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the session is renamed to {move.target!r}, but the rename could not be recorded"
                f" ({error}): send the command again with its key",
                session=move.source,
                code=getattr(error, "code", None),
                key=key,
            ) from None

    async def _record_rename(self, key: str, move: Move) -> None:
        try:
            # In a cluster this disk may have an older timeline than the journal.
            await self._registry.acquire(move.target)
            entries = await self._queries.timeline(move.target)
            if any(entry.kind == RENAMED and entry.key == key for entry in entries):
                return
            writer = await self._registry.writer(move.target, "context")
        except NotFound:
            # It was moved or deleted since.
            return
        entry = TimelineEntry(
            kind=RENAMED,
            generation=writer.feed.head.generation,
            at=self._services.wall(),
            by=move.by,
            claim=move.claim,
            key=key,
            details={"from": move.source, "to": move.target},
        )
        await writer.note(entry)

    async def _undelete(self, command: Undelete) -> Moved:
        place = self._trees.place(command.session)
        with self.looking_up(command):
            await self.settle_moves(command.key)
        done = await self._restored(place, command)
        if done is not None:
            return done
        self._registry.check_taking()
        await self._registry.acquire(command.session)
        with self._registry.kept_out(place):
            done = await self._restored(place, command)
            if done is not None:
                return done
            now = self._services.wall()
            try:
                return await self._services.read(
                    lambda: trash.restore(
                        self._disk, self._trees, place, command, now, self._expiry_s
                    )
                )
            except NotFound:
                await self._check_trash_elsewhere(place)
                raise

    async def _check_trash_elsewhere(self, place: Place) -> None:
        """Refuse to restore a session that is in another daemon's trash.

        Raises:
            Held: the client is to go there.
        """
        member = self._registry.member
        if member is None or place.shared:
            return
        endpoint = await self._services.read(lambda: member.trash_of(place.session))
        if endpoint is not None:
            raise Held(
                f"the daemon at {endpoint} deleted the session and has it in its trash: send the"
                " command there; clients do so by themselves",
                session=place.session,
                endpoint=endpoint,
            )

    async def _restored(self, place: Place, command: Undelete) -> Moved | None:
        return await self._done_before(
            command, lambda: trash.restored(self._disk, self._trees, place, command)
        )

    async def _take_in(self, command: TakeIn) -> SessionStat:
        place = self._trees.place(command.session)
        wanted = taking_in.Wanted(command, place)
        with self.looking_up(command):
            await self.settle_moves(command.key)
            taken = await self._acquire_new(place)
        was_done = await self._was_taken_in(wanted)
        if not was_done:
            if taken is not None:
                raise taken
            self._registry.check_taking()
            with self._registry.kept_out(place):
                was_done = await self._was_taken_in(wanted)
                if not was_done:
                    await self._check_room_of_prepared(wanted)
                    now = self._services.wall()
                    await self._services.read(
                        lambda: taking_in.take_in(self._disk, self._trees, wanted, now)
                    )
        try:
            stat = await self._stat(command.session)
        except NotFound:
            raise NotFound(
                "the session was taken in with this key, and was renamed or deleted since: use a"
                " new key to take it in again",
                session=command.session,
            ) from None
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the session is taken in, but it could not be read ({error}): send the command"
                " again with its key",
                session=command.session,
                code=getattr(error, "code", ErrorCode.STORAGE_FAILED),
                key=command.key,
            ) from None
        return msgspec.structs.replace(stat, created=not was_done)

    async def _was_taken_in(self, wanted: taking_in.Wanted) -> bool:
        return await self._done_before(
            wanted.command, lambda: taking_in.find(self._disk, self._trees, wanted)
        )

    async def _check_room_of_prepared(self, wanted: taking_in.Wanted) -> None:
        """Refuse a prepared session that does not fit.

        Raises:
            TooLarge, StorageFailed: nothing was taken in.
        """
        quotas = self._services.quotas
        if quotas is not None and quotas.has_limits:
            size = await self._services.read(lambda: tree_bytes(wanted.prepared))
            quotas.take(wanted.place.session, size, is_written=True)

    async def list_trash(self, command: Trash) -> TrashReport:
        """List the deleted sessions, the latest deletion first, up to the limit."""
        return await self._services.read(
            lambda: trash.report(self._disk, self._trees, command, self._expiry_s)
        )

    async def _found_in_trash(self, place: Place, command: Delete) -> Deleted | None:
        return await self._done_before(
            command,
            lambda: trash.find(self._disk, self._trees, place, command, self._expiry_s),
        )

    async def _deleted_elsewhere(self, place: Place, command: Delete) -> Deleted | None:
        """Return the answer to a repeat of what another daemon of the cluster did."""
        member = self._registry.member
        if member is None or place.shared:
            return None
        found = await self._services.read(
            lambda: member.deleted_elsewhere(place.session, command.key)
        )
        if found is None:
            return None
        return trash.done_elsewhere(place, found.rpartition("/")[2], self._expiry_s)

    def _is_under_way(self, key: str) -> bool:
        """Whether a command with this key is being served; called in a thread."""
        # A copy, made in one step: the event loop changes the set.
        return any(served == key for _, served in tuple(self._under_way))

    @contextmanager
    def _alone(self, command: _KeyedCommand) -> Generator[None]:
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

    async def _done_before(self, command: _KeyedCommand, find: Callable[[], T]) -> T:
        """Return the result of an earlier copy of a command, by `find`.

        Raises:
            OutcomeUnknown: the disk cannot be read, or cannot sync the result of that copy.
        """
        with self.looking_up(command):
            return await self._services.read(find)

    @contextmanager
    def looking_up(self, command: _KeyedCommand) -> Generator[None]:
        """Report a failure of the block as that of a lookup: an earlier copy may have succeeded.

        Raises:
            OutcomeUnknown: the disk or the journal failed.
        """
        try:
            yield
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
