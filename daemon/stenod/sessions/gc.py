"""Giving up what was asked for: old generations of sessions, and what expired in the trash.

1. The timeline gets an entry with the removed generations, synced, so that a later reader finds the
reason. 2. What may go is looked up again, since a rewrite may have come between. 3. The files are
removed, the oldest first, and the folder is synced.

A crash leaves some of them; the next collection removes the rest.
"""

import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.commands import Gc, List
from steno_protocol.errors import StenoError
from steno_protocol.replies import GarbageEntry, GcReport
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import garbage, timeline
from stenod.core.garbage import Past, Wish
from stenod.recovery import crash_recovery, file_opening
from stenod.sessions import trash
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.store.names import past_generations, read_file, stat_generation
from stenod.store.usage import tree_bytes
from stenod.writer.services import Services


class _Found(msgspec.Struct):
    """What goes, or would."""

    entries: list[GarbageEntry] = msgspec.field(default_factory=list[GarbageEntry])
    files: int = 0
    size: int = 0
    failed: list[str] = msgspec.field(default_factory=list[str])

    def add(self, session: str, file: str, size: int) -> None:
        """Take one more file, or folder of the trash, into account."""
        self.files += 1
        self.size += size
        if len(self.entries) < limits.FINDINGS_TOLD_MAX:
            self.entries.append(GarbageEntry(session=session, file=file, bytes=size))


class Collector:
    """Collects the garbage of one daemon.

    Args:
        trees: where sessions lie.
        disk: the disk they lie on.
        registry: the open sessions and their writers.
        workshop: clocks, threads and settings.
    """

    def __init__(
        self, trees: SessionFolders, disk: Disk, registry: Registry, services: Services
    ) -> None:
        self._trees = trees
        self._disk = disk
        self._registry = registry
        self._services = services

    async def collect(self, command: Gc) -> GcReport:
        """Give up what a command asks for, or only say what that would be.

        A session that cannot be opened is left as it is and named in the report.

        Raises:
            ShuttingDown: the daemon is ending.
        """
        self._registry.check_taking()
        found = _Found()
        if command.generations_older_s is not None or command.keep_generations is not None:
            for session in await self._services.read(lambda: self._rewritten(command.prefix)):
                await self._collect_from(session, command, found)
        if command.trash:
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
        """Ids of the sessions that have more than the one generation which always stays."""
        found: list[str] = []
        after, more = "", True
        while more:
            wanted = List(prefix=prefix, after=after, limit=limits.LIST_SESSIONS_MAX)
            page = self._trees.sessions(wanted)
            found += [entry.session for entry in page.sessions if entry.generations > 1]
            after, more = page.sessions[-1].session if page.sessions else after, page.more
        return found

    async def _collect_from(self, session: str, command: Gc, found: _Found) -> None:
        place, wish = self._trees.place(session), self._wish(command)
        try:
            chosen = await self._services.read(lambda: self._droppable(place, wish))
            if chosen and not command.dry_run:
                chosen = await self._drop(place, wish, chosen)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")
            return
        for past in chosen:
            found.add(session, paths.generation_file(past.generation + 1), past.size)

    async def _drop(self, place: Place, wish: Wish, chosen: list[Past]) -> list[Past]:
        writer = await self._registry.writer(place.session, "context")
        entry = TimelineEntry(
            kind=timeline_entries.COLLECTED,
            generation=writer.feed.head.generation,
            at=self._services.wall(),
            details={"generations": [past.generation for past in chosen]},
        )
        await writer.note(entry)  # 1.
        return await self._services.read(lambda: self._remove(place, wish, chosen))

    def _remove(self, place: Place, wish: Wish, chosen: list[Past]) -> list[Past]:
        still = self._droppable(place, wish)  # 2.
        going = [past for past in chosen if past in still]
        with self._trees.opened(place) as folder:
            for past in going:  # 3.
                self._disk.unlink(folder, paths.generation_file(past.generation + 1))
            self._disk.fsync(folder)
        return going

    def _droppable(self, place: Place, wish: Wish) -> list[Past]:
        with self._trees.opened(place) as folder:
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            present = crash_recovery.present_generation(self._disk, folder)
            past = [
                self._past(folder, generation)
                for generation in past_generations(self._disk, folder)
                if generation < present
            ]
            mail = file_opening.pending_mail(self._disk, folder)
        return garbage.droppable(past, entries, present, mail, wish)

    def _past(self, folder: int, generation: int) -> Past:
        found = stat_generation(self._disk, folder, generation)
        # A fork may have the same file: what has another name takes room until that goes, too.
        size = found.size if found.links == 1 else 0
        return Past(generation, size, found.modified_s)

    def _wish(self, command: Gc) -> Wish:
        older_s = command.generations_older_s
        return Wish(
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
            # A tree that is not there has no trash.
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
