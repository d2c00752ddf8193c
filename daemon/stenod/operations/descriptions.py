"""What a session is: its numbers, its opening, its title and labels."""

from weakref import WeakValueDictionary

import anyio

from steno_protocol.commands import Describe, Open
from steno_protocol.replies import SessionStat
from stenod.operations.operation import Operation, Parts, take_room
from stenod.recovery.inspection import Inspection
from stenod.sessions import metadata
from stenod.store.usage import NEW_SESSION_BYTES


class Descriptions(Operation):
    """The commands `stat`, `open` and `describe`."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._describing: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def stat(self, session: str) -> SessionStat:
        """Return the numbers of a session; it is not opened."""
        inspection, is_open = await self._queries.inspect(session)
        return await self._stat_of(session, inspection, is_open=is_open)

    async def open(self, command: Open) -> SessionStat:
        """Open a session, and create it if the command says so."""
        place = self._trees.place(command.session)
        if command.create and self._sessions.known(command.session) is None:
            await self._take_room(
                command.session,
                lambda: NEW_SESSION_BYTES if self._trees.inode(place) is None else None,
            )
        opened = await self._sessions.open(command)
        inspection, _ = await self._queries.inspect(command.session)
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

    async def describe(self, command: Describe) -> SessionStat:
        """Change the title, the labels or the archive of a session."""
        self._sessions.check_taking()
        take_room(self._services, command.session)
        # The session is opened, so that no other daemon has it. Changes run one at a time, since
        # each one rewrites the whole file.
        await self._sessions.writer(command.session, "context")
        lock = self._describing.setdefault(command.session, anyio.Lock())
        place = self._trees.place(command.session)

        def change() -> None:
            with self._trees.opened(place) as folder:
                metadata.change(self._disk, folder, command, place.path, self._services.wall())

        async with lock:
            await self._services.read(change)
        return await self.stat(command.session)
