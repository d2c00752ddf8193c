"""Queries about sessions: answered by the writer of an open one, by the files of another.

Nothing is changed by a look, but that an open session takes in what another program did to it, and
that one whose file is in doubt is opened, which proves the file.
"""

from steno_protocol.commands import List, Read, ReadWire
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.replies import Lines, Mail, Sessions
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.machine import Machine
from stenod.recovery.file_opening import Inspection
from stenod.sessions.file_reads import Readable
from stenod.sessions.registry import Registry
from stenod.sessions.session import File, inspection_of
from stenod.sessions.session_folders import SessionFolders
from stenod.store.failed_syncs import Unproven
from stenod.store.handles import FileView
from stenod.writer.services import Services


class Queries:
    """Looks at the sessions of one daemon.

    Args:
        registry: the open sessions and their writers.
        trees: where they lie.
        workshop: runs what blocks.
    """

    def __init__(self, registry: Registry, trees: SessionFolders, services: Services) -> None:
        self._registry = registry
        self._trees = trees
        self._services = services

    async def sessions(self, wanted: List) -> Sessions:
        """Sessions by id, up to the limit."""
        return await self._services.read(lambda: self._trees.sessions(wanted))

    async def inspect(self, session: str) -> tuple[Inspection, FileView | None]:
        """What a session's files say and, if it is not open, what of them may be read."""
        found = await self._registry.found(session)
        if found is not None:
            await found.context.look()
        inspection = found.inspect() if found is not None else None
        if inspection is not None:
            return inspection, None
        place = self._trees.place(session)
        try:
            return await self._services.read(lambda: self._trees.inspect(place))
        except Unproven:
            opened = await (await self._registry.writer(session, "context")).open()
            return inspection_of(opened), None

    async def read(self, command: Read, *, is_local: bool) -> tuple[Lines, bytes]:
        """The answer to a `read` or `read_wire`, and its block.

        Args:
            command: what is wanted.
            is_local: the reader is on this machine, and may get the path of the file.

        Raises:
            NotFound: there is no such session or generation.
            BadRequest: a position is none of the file, or of another generation.
        """
        after = Position.parse(command.after) if command.after is not None else None
        generation = after.generation if after is not None else None
        file: File = "wire" if isinstance(command, ReadWire) else "context"
        if file == "wire" and generation not in {None, 0}:
            raise BadRequest(f"{after} is no position of a wire file: they are all of generation 0")
        found = await self.readable(command.session, file, generation)
        try:
            return await self._services.read(lambda: found.answer(command, is_local=is_local))
        finally:
            found.view.release()

    async def readable(self, session: str, file: File, generation: int | None) -> Readable:
        """What may be read of one generation of a file, None for the present one.

        Raises:
            NotFound: there is no such session or generation.
        """
        try:
            return await self._readable(session, file, generation)
        except Unproven:
            # Its opening for writing writes again what a failed sync may have dropped.
            await self._registry.writer(session, file)
            return await self._readable(session, file, generation)

    async def _readable(self, session: str, file: File, generation: int | None) -> Readable:
        found = self._registry.known(session)
        if found is not None and found.opened(file) is not None:
            await found.writer(file).settle()
        # It may have been closed meanwhile, or be another one.
        found = self._registry.known(session)
        opened = found.opened(file) if found is not None else None
        if opened is not None and generation in {None, opened.log.generation}:
            present = opened.log.generation
            log, head = opened.log, opened.machine.head
            return Readable(log.view(present), present, head, log.file_path)
        place = self._trees.place(session)
        if file == "wire":
            return await self._services.read(lambda: self._trees.readable_wire(place))
        return await self._services.read(lambda: self._trees.readable(place, generation))

    async def timeline(self, session: str) -> list[TimelineEntry]:
        """What ever happened to a session, rotations by other programs included."""
        place = self._trees.place(session)
        return await self._services.read(lambda: self._trees.timeline(place))

    async def pending_mail(self, session: str) -> Mail | None:
        """The D-Mail that waits in a session."""
        found = await self._registry.found(session)
        opened = found.opened("context") if found is not None else None
        if opened is not None and isinstance(opened.machine, Machine):
            return opened.machine.mail
        place = self._trees.place(session)
        return await self._services.read(lambda: self._trees.pending_mail(place))
