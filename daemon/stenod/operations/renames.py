"""`rename`: a session under another id."""

import anyio

from steno_protocol.commands import Rename
from steno_protocol.errors import ErrorCode, Held, NotFound, OutcomeUnknown, StenoError
from steno_protocol.replies import Moved
from steno_protocol.timeline_entries import RENAMED, TimelineEntry
from stenod.operations.operation import Operation, Parts, looking_up, take_room
from stenod.sessions import rename
from stenod.sessions.moves import Move
from stenod.sessions.rename import Renamed, Wanted
from stenod.sessions.session_folders import Place


class Renames(Operation):
    """Renames, each recorded in the session's timeline."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        # A rename that follows completes an earlier one, perhaps while that completes itself.
        self._completing = anyio.Lock()

    async def rename(self, command: Rename) -> Moved:
        """Move a session to another id."""
        source, target = self._trees.place(command.session), self._trees.place(command.new_session)
        wanted = Wanted(command, source, target)
        rename.check(wanted)
        with looking_up(command):
            found = await self._renamed_elsewhere(wanted) or await self._renamed(wanted)
        if found is None:
            self._sessions.check_taking()
            take_room(self._services, source.session)
            taken = await self._acquire_new(target)
            if taken is not None:
                raise taken
            # A session that cannot be opened could not record the rename.
            await self._sessions.writer(source.session, "context")
            await self._complete_earlier(source)
            with self._sessions.kept_out(source), self._sessions.kept_out(target):
                found = await self._renamed(wanted) or await self._rename_closed(wanted)
        if not found.is_complete:
            await self._complete(command.key, wanted.move())
        return found.answer

    async def _renamed(self, wanted: Wanted) -> Renamed | None:
        return await self._done_before(wanted.command, lambda: rename.find(self._trees, wanted))

    async def _renamed_elsewhere(self, wanted: Wanted) -> Renamed | None:
        """Return the result of a repeat of what any daemon of the cluster did."""
        found = await self._moved_to(wanted.source, wanted.command.key)
        if found != wanted.target.session:
            return None
        return await self._services.read(lambda: rename.done_elsewhere(self._trees, wanted))

    async def _rename_closed(self, wanted: Wanted) -> Renamed:
        async with self._sessions.ended(wanted.source, wanted.target):
            now = self._services.wall()
            return await self._services.read(
                lambda: rename.rename(self._disk, self._trees, wanted, now)
            )

    async def _complete_earlier(self, place: Place) -> None:
        """Record earlier renames to a place that a crash or a failing disk left unrecorded."""
        left = await self._services.read(lambda: rename.incomplete(self._trees, place))
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
                await self._services.read(lambda: rename.finish(self._trees, place, key))
        except Held:
            raise
        except (StenoError, OSError) as error:
            raise OutcomeUnknown(
                f"the session is renamed to {move.target!r}, but the rename could not be recorded"
                f" ({error}): send the command again with its key",
                session=move.source,
                code=getattr(error, "code", ErrorCode.STORAGE_FAILED),
                key=key,
            ) from None

    async def _record_rename(self, key: str, move: Move) -> None:
        try:
            # In a cluster this disk may have an older timeline than the journal.
            await self._sessions.acquire(move.target)
            entries = await self._queries.timeline(move.target)
            if any(entry.kind == RENAMED and entry.key == key for entry in entries):
                return
            writer = await self._sessions.writer(move.target, "context")
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
