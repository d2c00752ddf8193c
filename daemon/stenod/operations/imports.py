"""`take_in`: a session that a client prepared beside the sessions."""

import msgspec

from steno_protocol.commands import TakeIn
from steno_protocol.errors import ErrorCode, NotFound, OutcomeUnknown, StenoError
from steno_protocol.replies import SessionStat
from stenod.operations.descriptions import Descriptions
from stenod.operations.operation import Operation, Parts, looking_up
from stenod.sessions import taking_in
from stenod.store.usage import tree_bytes


class Imports(Operation):
    """Sessions that are taken in whole.

    Args:
        parts: what they work with.
        descriptions: tell what a session is.
    """

    def __init__(self, parts: Parts, descriptions: Descriptions) -> None:
        super().__init__(parts)
        self._descriptions = descriptions

    async def take_in(self, command: TakeIn) -> SessionStat:
        """Take in a prepared session."""
        place = self._trees.place(command.session)
        wanted = taking_in.Wanted(command, place)
        with looking_up(command):
            was_done = await self._moved_to(place, command.key) == place.session
            taken = await self._acquire_new(place)
        was_done = was_done or await self._was_taken_in(wanted)
        if not was_done:
            if taken is not None:
                raise taken
            self._sessions.check_taking()
            with self._sessions.kept_out(place):
                was_done = await self._was_taken_in(wanted)
                if not was_done:
                    await self._take_room(
                        place.session, lambda: tree_bytes(wanted.prepared), is_written=True
                    )
                    now = self._services.wall()
                    await self._services.read(
                        lambda: taking_in.take_in(self._disk, self._trees, wanted, now)
                    )
        try:
            stat = await self._descriptions.stat(command.session)
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
        return await self._done_before(wanted.command, lambda: taking_in.find(self._trees, wanted))
