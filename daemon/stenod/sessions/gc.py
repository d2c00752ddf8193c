"""Removal of past generations and of expired trash, on command.

1. The timeline gets a synced entry with the generations to remove, so that a later reader finds the
reason. 2. The removable generations are determined again, since a rewrite may have come between.
3. The files are removed, the oldest first, and the folder is synced.

After a crash the next collection removes the rest.
"""

import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.commands import Gc, List
from steno_protocol.errors import StenoError
from steno_protocol.replies import GarbageEntry, GcReport, SessionEntry
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import garbage, timeline
from stenod.core.garbage import Past, Retention
from stenod.recovery import crash_recovery, inspection
from stenod.sessions import streams, trash
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.sessions.streams import Expired
from stenod.store.disk import Disk
from stenod.store.names import past_generations, read_file, stat_generation
from stenod.store.usage import tree_bytes
from stenod.writer.services import Services


class _Found(msgspec.Struct):
    """The removed files, or with `dry_run` those to be removed."""

    entries: list[GarbageEntry] = msgspec.field(default_factory=list[GarbageEntry])
    files: int = 0
    size: int = 0
    failed: list[str] = msgspec.field(default_factory=list[str])

    def add(self, session: str, file: str, size: int) -> None:
        """Count one file, or one folder of the trash."""
        self.files += 1
        self.size += size
        if len(self.entries) < limits.FINDINGS_LISTED_MAX:
            self.entries.append(GarbageEntry(session=session, file=file, bytes=size))


class Collector:
    """Collects the garbage of one daemon.

    Args:
        trees: the session trees.
        disk: the disk they lie on.
        registry: the open sessions and their writers.
        services: clocks, threads and settings.
    """

    def __init__(
        self, trees: SessionFolders, disk: Disk, registry: Registry, services: Services
    ) -> None:
        self._trees = trees
        self._disk = disk
        self._registry = registry
        self._services = services

    async def collect(self, command: Gc) -> GcReport:
        """Remove what a command asks for, or with `dry_run` only report it.

        A session that cannot be opened stays as it is and is named in the report.

        Raises:
            ShuttingDown: the daemon is ending.
        """
        self._registry.check_taking()
        found = _Found()
        if command.generations_older_s is not None or command.keep_generations is not None:
            for session in await self._services.read(lambda: self._rewritten(command.prefix)):
                await self._collect_from(session, command, found)
        if command.trash:
            for session in await self._services.read(lambda: self._sessions(command.prefix)):
                await self._expire_streams(session, command, found)
            await self._services.read(lambda: self._expire_all(command, found))
        if not command.dry_run:
            self._services.log(
                "collected", files=found.files, bytes=found.size, failed=found.failed
            )
        return GcReport(
            entries=found.entries,
            files=found.files,
            bytes=found.size,
            failed=found.failed,
            dry_run=command.dry_run,
        )

    def _rewritten(self, prefix: str) -> list[str]:
        """List the sessions with more than the one past generation that always stays."""
        entries = self._entries(prefix)
        return [entry.session for entry in entries if entry.generations > 1]

    def _sessions(self, prefix: str) -> list[str]:
        return [entry.session for entry in self._entries(prefix)]

    def _entries(self, prefix: str) -> list[SessionEntry]:
        found: list[SessionEntry] = []
        after, more = "", True
        while more:
            wanted = List(prefix=prefix, after=after, limit=limits.LIST_SESSIONS_MAX)
            page = self._trees.sessions(wanted)
            found += page.sessions
            after, more = page.sessions[-1].session if page.sessions else after, page.more
        return found

    async def _expire_streams(self, session: str, command: Gc, found: _Found) -> None:
        """Remove the deleted streams of a session that have expired."""
        place, now = self._trees.place(session), self._services.wall()
        expiry_s = trash.expiry_of(self._services.settings())

        def expire() -> list[Expired]:
            with self._trees.opened(place) as folder:
                going = streams.expired(self._disk, folder, now, expiry_s)
                if going and not command.dry_run:
                    streams.expire(self._disk, folder, going)
                return going

        try:
            for each in await self._services.read(expire):
                found.add(session, each.file, each.bytes)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")

    async def _collect_from(self, session: str, command: Gc, found: _Found) -> None:
        place, retention = self._trees.place(session), self._retention(command)
        try:
            chosen = await self._services.read(lambda: self._droppable(place, retention))
            if chosen and not command.dry_run:
                chosen = await self._drop(place, retention, chosen)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")
            return
        for past in chosen:
            found.add(session, paths.generation_file(past.generation + 1), past.size)

    async def _drop(self, place: Place, retention: Retention, chosen: list[Past]) -> list[Past]:
        writer = await self._registry.writer(place.session, "context")
        entry = TimelineEntry(
            kind=timeline_entries.COLLECTED,
            generation=writer.feed.head.generation,
            at=self._services.wall(),
            details={"generations": [past.generation for past in chosen]},
        )
        await writer.note(entry)  # 1.
        gone = await self._services.read(lambda: self._remove(place, retention, chosen))
        member = self._registry.member
        if gone and member is not None and not place.shared:
            # The journal has the removed generations, too.
            await self._services.read(lambda: member.shorten(place.session))
        return gone

    def _remove(self, place: Place, retention: Retention, chosen: list[Past]) -> list[Past]:
        still = self._droppable(place, retention)  # 2.
        going = [past for past in chosen if past in still]
        with self._trees.opened(place) as folder:
            for past in going:  # 3.
                self._disk.unlink(folder, paths.generation_file(past.generation + 1))
            self._disk.fsync(folder)
        return going

    def _droppable(self, place: Place, retention: Retention) -> list[Past]:
        with self._trees.opened(place) as folder:
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            present = crash_recovery.present_generation(self._disk, folder)
            past = [
                self._past(folder, generation)
                for generation in past_generations(self._disk, folder)
                if generation < present
            ]
            mail = inspection.pending_mail(self._disk, folder)
        return garbage.droppable(past, entries, present, mail, retention)

    def _past(self, folder: int, generation: int) -> Past:
        found = stat_generation(self._disk, folder, generation)
        # A fork may share the file, which takes room until its last name is removed.
        size = found.size if found.links == 1 else 0
        return Past(generation, size, found.modified_s)

    def _retention(self, command: Gc) -> Retention:
        older_s = command.generations_older_s
        return Retention(
            before=None if older_s is None else self._services.wall() - older_s,
            keep=command.keep_generations or 1,
            with_lineage=command.with_lineage,
        )

    def _expire_all(self, command: Gc, found: _Found) -> None:
        for folder in self._trees.folders():
            self._expire(str(folder), command, found)

    def _expire(self, folder: str, command: Gc, found: _Found) -> None:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that does not exist has no trash.
            return
        now = self._services.wall()
        expiry_s = trash.expiry_of(self._services.settings())
        try:
            for name in trash.expired(self._disk, tree, now, expiry_s):
                path = f"{folder}/{paths.TRASH}/{name}"
                size = tree_bytes(path)
                try:
                    if not command.dry_run:
                        trash.remove(self._disk, tree, name)
                except OSError as error:
                    found.failed.append(f"{path}: {error}")
                    continue
                found.add("", path, size)
        finally:
            self._disk.close(tree)
