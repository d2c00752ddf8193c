"""`verify`: the check of all files of a session."""

from contextlib import suppress

import anyio

from steno_protocol import limits, paths
from steno_protocol.replies import Verification
from stenod.operations.operation import Operation, Parts
from stenod.sessions.session_folders import Place
from stenod.store.failed_syncs import Unproven


class Verifications(Operation):
    """Verifications, a few at a time, because each reads a whole session."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._verifying = anyio.Semaphore(limits.VERIFICATIONS_MAX)

    async def verify(self, session: str) -> Verification:
        """Check all files of a session for damage, without opening it for writing."""
        place = self._trees.place(session)
        attempts = limits.VERIFY_ATTEMPTS_MAX
        async with self._verifying:
            await self._sessions.found(session)
            while True:
                attempts -= 1
                is_live, log = self._is_live(session), self._log(session)
                is_believed = is_live or (attempts == 0 and log is not None)
                report = await self._verified(place, is_live=is_believed)
                if is_believed or attempts == 0 or self._log(session) == log:
                    return report

    async def _verified(self, place: Place, *, is_live: bool) -> Verification:
        if self._sessions.known(place.session) is None:
            # In one thread hop: of many sessions nearly all are closed.
            with suppress(Unproven):
                return await self._services.read(lambda: self._trees.verify_closed(place))
        if is_live or self._log(place.session) is None:
            context = await self._queries.readable(place.session, "context", None)
        else:
            context = await self._services.read(lambda: self._trees.readable(place, None))
        held = {paths.CONTEXT: context.view}
        try:
            held[paths.WIRE] = (await self._queries.readable(place.session, "wire", None)).view
            # Closed streams are measured one by one, because all sessions share the handles.
            for writer in self._sessions.writers(place.session):
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
        found = self._sessions.known(session)
        if found is None or found.context.opened is None:
            return False
        return found.context.is_serving or not found.context.opened.log.is_foreign_changed()

    def _log(self, session: str) -> tuple[int, int, int] | None:
        """Return a value that changes with every change by the session's writer."""
        found = self._sessions.known(session)
        opened = found.opened("context") if found is not None else None
        return (id(opened), opened.log.generation, opened.log.size) if opened is not None else None
