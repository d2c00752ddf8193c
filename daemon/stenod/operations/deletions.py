"""`delete`, `undelete`, `trash` and the deletion of a stream."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from steno_protocol import paths
from steno_protocol.commands import Delete, DeleteStream, Trash, Undelete
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.replies import Deleted, Moved, TrashReport
from stenod.operations.operation import Operation, looking_up
from stenod.sessions import streams, trash
from stenod.sessions.session_folders import Place
from stenod.store import usage


class Deletions(Operation):
    """What goes to the trash, and what comes back from it."""

    async def delete(self, command: Delete) -> Deleted:
        """Move a session to the trash."""
        place = self._trees.place(command.session)
        with looking_up(command):
            moved_to = await self._moved_to(place, command.key)
        # Another daemon of the cluster may have done it.
        done = None if moved_to is None else trash.done_elsewhere(place, moved_to, self._expiry_s)
        if done is None:
            done = await self._found_in_trash(place, command)
        if done is not None:
            # A session that was created with this id since is not deleted.
            return done
        self._sessions.check_taking()
        with self._sessions.kept_out(place):
            done = await self._found_in_trash(place, command)
            if done is not None:
                return done
            return await self._discard(place, command, lambda: None)

    async def retire(self, command: Delete, changed_at: float) -> Deleted:
        """Move a cold session, and those below it, to the trash.

        Args:
            command: the deletion, with a new key.
            changed_at: the Unix time of their last change, as the rule found it.

        Raises:
            Conflict: one of them was changed since.
        """
        place = self._trees.place(command.session)

        def check() -> None:
            if usage.changed_at(place.path) > changed_at:
                raise Conflict("the session was changed meanwhile", session=place.session)

        self._sessions.check_taking()
        with self._sessions.kept_out(place):
            return await self._discard(place, command, check)

    async def _discard(self, place: Place, command: Delete, check: Callable[[], None]) -> Deleted:
        """Move a session that is kept out, unless the check of its closed files raises."""
        now = self._services.wall()

        def discard() -> Deleted:
            check()
            return trash.discard(self._disk, self._trees, place, command, now, self._expiry_s)

        async with self._sessions.ended(place):
            return await self._services.read(discard)

    async def delete_stream(self, command: DeleteStream) -> Deleted:
        """Move a stream of a session to the session's trash."""
        session = command.session
        if command.successor == command.stream:
            raise BadRequest("a stream is not its own successor", session=session)
        place = self._trees.place(session)
        done = await self._stream_deleted_before(place, command)
        if done is not None:
            # A stream that was created with this name since is not deleted.
            return done
        self._sessions.check_taking()
        # The open context holds the folder's lock, so that no other daemon has the stream open.
        await self._sessions.writer(session, "context")

        def discard() -> Deleted:
            with self._trees.opened(place) as folder:
                return streams.discard(
                    self._disk, folder, place, command, self._services.wall(), self._expiry_s,
                    self._trees.failed_syncs,
                )  # fmt: skip

        named = filter(None, (command.stream, command.successor))
        async with AsyncExitStack() as ended:
            for file in [f"{paths.STREAM}{stream}" for stream in named]:
                # Opened first, which cuts a torn tail: nothing repairs a deleted file.
                await self._sessions.writer(session, file)
                await ended.enter_async_context(self._sessions.stream_ended(session, file))
            done = await self._stream_deleted_before(place, command)
            return done if done is not None else await self._services.read(discard)

    async def _stream_deleted_before(self, place: Place, command: DeleteStream) -> Deleted | None:
        def find() -> Deleted | None:
            with self._trees.opened(place) as folder:
                return streams.find_deleted(self._disk, folder, place, command, self._expiry_s)

        return await self._done_before(command, find)

    async def undelete(self, command: Undelete) -> Moved:
        """Move a session out of the trash."""
        place = self._trees.place(command.session)
        done = await self._restored(place, command)
        if done is not None:
            return done
        self._sessions.check_taking()
        await self._sessions.acquire(command.session)
        with self._sessions.kept_out(place):
            done = await self._restored(place, command)
            if done is not None:
                return done
            member = self._sessions.member
            if member is not None and not place.shared:
                # What other daemons of the cluster deleted is not in this trash yet.
                await self._services.read(lambda: member.fetch_deleted(place.session))
            now = self._services.wall()
            return await self._services.read(
                lambda: trash.restore(self._disk, self._trees, place, command, now, self._expiry_s)
            )

    async def _restored(self, place: Place, command: Undelete) -> Moved | None:
        with looking_up(command):
            if await self._moved_to(place, command.key) == place.session:
                return Moved(session=place.session, folder=place.path)
        return await self._done_before(command, lambda: trash.restored(self._trees, place, command))

    async def list_trash(self, command: Trash) -> TrashReport:
        """List the deleted sessions, the latest deletion first, up to the limit."""
        return await self._services.read(
            lambda: trash.report(self._disk, self._trees, command, self._expiry_s)
        )

    async def _found_in_trash(self, place: Place, command: Delete) -> Deleted | None:
        return await self._done_before(
            command,
            lambda: trash.find(self._trees, place, command, self._expiry_s),
        )
