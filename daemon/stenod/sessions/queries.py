"""Queries about open and closed sessions.

A query changes nothing, with two exceptions: an open session takes in the changes of another
program, and a session whose sync failed is opened, which writes the doubtful bytes again.
"""

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import List, Read, ReadStream
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.replies import Lines, Mail, SessionEntry, Sessions
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.machine import Machine
from stenod.recovery.inspection import Inspection
from stenod.sessions import listing, streams
from stenod.sessions.cluster_member import ClusterMember
from stenod.sessions.file_reads import Readable
from stenod.sessions.record_count import RecordCounter
from stenod.sessions.registry import Registry
from stenod.sessions.session import File, file_of, inspection_of
from stenod.sessions.session_folders import SessionFolders, check_present
from stenod.sessions.streams import StreamPart
from stenod.store.failed_syncs import Unproven
from stenod.writer.services import Services
from stenod.writer.writer import Writer


class Queries:
    """Queries about the sessions of one daemon.

    Args:
        registry: the open sessions and their writers.
        trees: the session trees.
        services: runs blocking work.
    """

    def __init__(self, registry: Registry, trees: SessionFolders, services: Services) -> None:
        self._registry = registry
        self._trees = trees
        self._disk = trees.disk
        self._services = services

    async def sessions(self, wanted: List) -> Sessions:
        """List sessions by id, up to the limit."""
        found = await self._services.read(lambda: self._listed(wanted))
        found.sessions[:] = [self._with_state(entry, wanted) for entry in found.sessions]
        return found

    def _listed(self, wanted: List) -> Sessions:
        found = self._trees.sessions(wanted)
        member = self._registry.member
        if member is not None:
            found = self._with_others(member, found, wanted)
        if wanted.records:
            counter = RecordCounter(self._trees)
            found.sessions[:] = [
                msgspec.structs.replace(entry, records=counter.count(entry.session))
                for entry in found.sessions
            ]
        return found

    def _with_others(self, member: ClusterMember, found: Sessions, wanted: List) -> Sessions:
        """Add the sessions of other daemons, as far as the cluster can be asked."""
        try:
            others = member.others(wanted.prefix, wanted.after, wanted.limit + 1)
            found = listing.with_others(found, others, wanted)
            is_stale = member.is_list_stale()
        except OSError:
            is_stale = True
        return msgspec.structs.replace(found, stale=is_stale)

    def _with_state(self, entry: SessionEntry, wanted: List) -> SessionEntry:
        """Add the state of an open session, which its files do not show."""
        session = self._registry.known(entry.session)
        if session is None:
            return entry
        inspection = session.inspect() if wanted.records else None
        unused_s = self._services.monotonic() - session.used_at
        return msgspec.structs.replace(
            entry,
            live=session.is_followed or unused_s < limits.LIVE_S,
            records=entry.records if inspection is None else inspection.head.line,
        )

    async def inspect(self, session: str) -> tuple[Inspection, bool]:
        """Return a session's numbers, and whether it is open."""
        found = await self._registry.found(session)
        if found is not None:
            await found.context.look()
        inspection = found.inspect() if found is not None else None
        if inspection is not None:
            return inspection, True
        place = self._trees.place(session)
        try:
            return await self._services.read(lambda: self._trees.inspect(place)), False
        except Unproven:
            opened = await (await self._registry.writer(session, "context")).open()
            return inspection_of(opened), True

    async def read(self, command: Read, *, is_local: bool) -> tuple[Lines, bytes]:
        """Answer a `read` or `read_wire` with its block.

        Args:
            command: the command.
            is_local: the reader is on this machine, and may get the path of the file.

        Raises:
            NotFound: the session or generation does not exist.
            BadRequest: a position is not one of the file, or is in another generation.
        """
        after = Position.parse(command.after) if command.after is not None else None
        generation = after.generation if after is not None else None
        file = file_of(command)
        if file == "wire" and generation not in {None, 0}:
            raise BadRequest(
                f"{after} is not a position of a wire file: all of them have generation 0",
                session=command.session,
            )
        is_from_end = isinstance(command, ReadStream) and command.last is not None
        if is_from_end and after is not None:
            raise BadRequest(
                "`last` counts from the end: leave `after` out", session=command.session
            )
        found = await self.readable(command.session, file, generation, with_head=is_from_end)
        try:
            return await self._services.read(lambda: found.answer(command, is_local=is_local))
        finally:
            found.view.release()

    async def streams(self, session: str, wanted: str | None = None) -> list[StreamPart]:
        """Return the durable parts of a session's streams, ordered by name.

        Args:
            session: the session's id.
            wanted: only the stream of this name; None for all.

        Raises:
            NotFound: the session does not exist.
        """
        try:
            return await self._stream_parts(session, wanted)
        except Unproven:
            # Opening a stream for writing writes the bytes again that a failed sync may have
            # dropped.
            for stream in await self._unproven_streams(session, wanted):
                await self._registry.writer(session, f"{paths.STREAM}{stream}")
            return await self._stream_parts(session, wanted)

    async def _unproven_streams(self, session: str, wanted: str | None) -> list[str]:
        place = self._trees.place(session)

        def names() -> list[str]:
            with self._trees.opened(place) as folder:
                return streams.unproven(self._disk, folder, wanted, self._trees.failed_syncs)

        return await self._services.read(names)

    async def _stream_parts(self, session: str, wanted: str | None) -> list[StreamPart]:
        place = self._trees.place(session)
        found = await self._registry.found(session)
        for writer in [] if found is None else found.writers:
            if _is_wanted(writer, wanted):
                await writer.settle()
        # They may have been closed, or the session replaced, meanwhile.
        writers = self._registry.writers(session)
        live = [each.opened for each in writers if _is_wanted(each, wanted) and each.opened]
        parts = [part for part in map(streams.open_part, live) if part is not None]
        known = {part.stream for part in parts}

        def closed() -> list[StreamPart]:
            with self._trees.opened(place) as folder:
                check_present(self._disk, folder, place)
                return streams.closed_parts(
                    self._disk, folder, wanted, self._trees.failed_syncs, known
                )

        parts += await self._services.read(closed)
        return sorted(parts, key=lambda part: part.stream)

    async def readable(
        self, session: str, file: File, generation: int | None, *, with_head: bool = False
    ) -> Readable:
        """Return the readable bytes of one generation of a file, None for the present one.

        With `with_head` the head of a stream is known, too.

        Raises:
            NotFound: the session or generation does not exist.
        """
        try:
            return await self._readable(session, file, generation, with_head=with_head)
        except Unproven:
            # Opening it for writing writes the bytes again that a failed sync may have dropped,
            # and expands a compressed one.
            await self._registry.writer(session, file)
            return await self._readable(session, file, generation, with_head=with_head)

    async def _readable(
        self, session: str, file: File, generation: int | None, *, with_head: bool
    ) -> Readable:
        found = self._registry.known(session)
        if found is not None and found.opened(file) is not None:
            await found.writer(file).settle()
        # It may have been closed meanwhile, or replaced by another one.
        found = self._registry.known(session)
        opened = found.opened(file) if found is not None else None
        if opened is not None and generation in {None, opened.log.generation}:
            present = opened.log.generation
            log, head = opened.log, opened.machine.head
            return Readable(log.view(present), present, head, log.file_path)
        place = self._trees.place(session)
        if file != "context":
            name = paths.file_of(file)
            return await self._services.read(
                lambda: self._trees.readable_stream(place, name, generation, with_head=with_head)
            )
        return await self._services.read(lambda: self._trees.readable(place, generation))

    async def timeline(self, session: str) -> list[TimelineEntry]:
        """Return a session's timeline, rotations by other programs included."""
        place = self._trees.place(session)
        return await self._services.read(lambda: self._trees.timeline(place))

    async def pending_mail(self, session: str) -> Mail | None:
        """Return the pending D-Mail of a session."""
        found = await self._registry.found(session)
        opened = found.opened("context") if found is not None else None
        if opened is not None and isinstance(opened.machine, Machine):
            return opened.machine.mail
        place = self._trees.place(session)
        return await self._services.read(lambda: self._trees.pending_mail(place))


def _is_wanted(writer: Writer, stream: str | None) -> bool:
    """Whether an open writer's file may be the stream of this name, or any stream."""
    opened = writer.opened
    return opened is not None and stream in {None, paths.stream_of(opened.log.name)}
