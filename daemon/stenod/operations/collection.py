"""Removal of past generations and of trash, and of cold sessions by the rules of retention.

A command names what goes, or the rules of `[retention]` do, which are followed once a day, too.
Each entry of the report says which rule named it.

1. The timeline gets a synced entry with the generations to remove, so that a later reader finds the
reason. 2. The removable generations are determined again, since a rewrite may have come between.
3. The files are removed, the oldest first, and the folder is synced.

After a crash the next collection removes the rest.

Rules may also compress past generations and streams; see `store.compressing`.
"""

from contextlib import nullcontext, suppress
from functools import partial

import anyio
import msgspec

from steno_protocol import compression, limits, paths, timeline_entries
from steno_protocol.commands import Gc
from steno_protocol.errors import BadRequest, ShuttingDown, StenoError
from steno_protocol.replies import GarbageEntry, GcReport, SessionEntry
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import garbage, retention, timeline
from stenod.core.garbage import Past, Retention
from stenod.operations.cold_sessions import ColdSessions
from stenod.operations.cold_streams import ColdStreams
from stenod.operations.deletions import Deletions
from stenod.operations.operation import Operation, Parts
from stenod.recovery import crash_recovery, inspection
from stenod.sessions import streams, trash
from stenod.sessions.session_folders import Place
from stenod.sessions.streams import Expired
from stenod.store.compressing import compress_generation
from stenod.store.handles import closing
from stenod.store.names import past_generations, read_file, remove_generation, stat_stored
from stenod.store.usage import BLOCK_BYTES, tree_bytes

Chosen = list[tuple[Past, str]]
"""Generations, each with the rule that names it."""


class _Deleted(msgspec.Struct, frozen=True):
    """A folder in the trash: its name, the time of its deletion, and its bytes."""

    name: str
    at: float
    size: int


class _Found(msgspec.Struct):
    """The removed files, or with `dry_run` those to be removed."""

    entries: list[GarbageEntry] = msgspec.field(default_factory=list[GarbageEntry])
    files: int = 0
    size: int = 0
    sessions: int = 0
    compressed: int = 0
    failed: list[str] = msgspec.field(default_factory=list[str])

    def add(self, session: str, file: str, size: int, rule: str) -> None:
        """Count one file, or one folder of the trash."""
        self.files += 1
        self.size += size
        self._list(GarbageEntry(session=session, file=file, bytes=size, rule=rule))

    def add_compressed(self, entry: GarbageEntry, freed: int) -> None:
        """Count one file that stays, compressed."""
        self.compressed += 1
        self.size += freed
        self._list(entry)

    def add_session(self, entry: GarbageEntry) -> None:
        """Count one session that goes to the trash."""
        self.sessions += 1
        self._list(entry)

    def _list(self, entry: GarbageEntry) -> None:
        if len(self.entries) < limits.FINDINGS_LISTED_MAX:
            self.entries.append(entry)


class Collector(Operation):
    """Collects the garbage of one daemon.

    Args:
        parts: what it works with.
        deletions: moves cold sessions to the trash.
    """

    def __init__(self, parts: Parts, deletions: Deletions) -> None:
        super().__init__(parts)
        self._cold = ColdSessions(parts, deletions)
        self._streams = ColdStreams(parts)
        self._collected_at: float | None = None
        # No collection removes a file that another one is compressing.
        self._lock = anyio.Lock()

    async def when_due(self) -> None:
        """Follow the rules of retention once a day."""
        now = self._services.monotonic()
        is_early = self._collected_at is not None and now - self._collected_at < limits.RETENTION_S
        if is_early or not retention.is_configured(self._services.settings()):
            return
        self._collected_at = now
        with suppress(ShuttingDown):
            await self.collect(Gc(retention=True))

    async def collect(self, command: Gc) -> GcReport:
        """Remove what a command asks for, or with `dry_run` only report it.

        A session that cannot be opened stays as it is and is named in the report.

        Raises:
            ShuttingDown: the daemon is ending.
        """
        async with nullcontext() if command.dry_run else self._lock:
            return await self._collect(command)

    async def _collect(self, command: Gc) -> GcReport:
        self._sessions.check_taking()
        found = _Found()
        entries = await self._services.read(lambda: self._entries(command.prefix))
        compressed_days = self._compressed_days(command, found)
        if _names_by_options(command) or command.retention:
            for entry in entries:
                # One past generation always stays.
                if entry.generations > 1:
                    gone = await self._collect_from(entry.session, command, found)
                    if days := compressed_days.get("generations"):
                        await self._compress_in(entry.session, command, found, gone, days)
                if days := compressed_days.get("streams"):
                    await self._compress_streams(entry.session, command, found, days)
        if command.trash or command.retention:
            await self._collect_trash(command, entries, found)
        if command.retention:
            for cold in await self._cold.retire(command, found.failed):
                found.add_session(cold)
        if not command.dry_run:
            self._services.log(
                "collected",
                files=found.files,
                bytes=found.size,
                sessions=found.sessions,
                compressed=found.compressed,
                failed=found.failed,
            )
        return GcReport(
            entries=found.entries,
            files=found.files,
            bytes=found.size,
            sessions=found.sessions,
            compressed=found.compressed,
            failed=found.failed,
            dry_run=command.dry_run,
        )

    async def _collect_trash(self, command: Gc, entries: list[SessionEntry], found: _Found) -> None:
        for entry in entries:
            if command.trash or not self._trees.place(entry.session).shared:
                await self._expire_streams(entry.session, command, found)
        for tree in self._trees.trees:
            work = partial(self._expire, str(tree.folder), command, found, is_own=not tree.prefix)
            await self._services.read(work)

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
                found.add(session, each.file, each.bytes, self._expiry_rule)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")

    async def _collect_from(self, session: str, command: Gc, found: _Found) -> set[int]:
        """Remove generations of a session, and return their numbers."""
        place = self._trees.place(session)
        try:
            chosen = await self._services.read(lambda: self._droppable(place, command))
            if chosen and not command.dry_run:
                chosen = await self._drop(place, command, chosen)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")
            return set()
        for past, rule in chosen:
            found.add(session, paths.generation_file(past.generation + 1), past.size, rule)
        return {past.generation for past, _ in chosen}

    def _compressed_days(self, command: Gc, found: _Found) -> dict[str, float]:
        """Return the days of the rules that compress, by kind; empty if none is to be followed."""
        settings = self._services.settings()
        days = {kind: retention.compressed_days(kind, settings) for kind in retention.COMPRESSED}
        if not command.retention or not any(days.values()):
            return {}
        try:
            compression.check_installed()
        except BadRequest as error:
            found.failed.append(error.message)
            return {}
        return days

    async def _compress_in(
        self, session: str, command: Gc, found: _Found, gone: set[int], days: float
    ) -> None:
        """Compress the past generations of a session that the rule names and that did not go."""
        place = self._trees.place(session)
        if place.shared:
            # Their other programs read plain files.
            return

        def compress(past: Past) -> int:
            with self._trees.opened(place) as folder:
                return compress_generation(self._disk, folder, past.generation)

        try:
            before = self._services.wall() - days * limits.DAY_S
            for past in await self._services.read(lambda: self._compressible(place, before)):
                if past.generation in gone:
                    continue
                freed = 0
                if not command.dry_run:
                    freed = await self._services.read(partial(compress, past))
                if freed or command.dry_run:
                    file = paths.generation_file(past.generation + 1)
                    rule = f"retention.generations_compressed_days = {days:g}"
                    size = past.size if command.dry_run else freed
                    entry = GarbageEntry(
                        session=session, file=file, bytes=size, rule=rule, compressed=True
                    )
                    found.add_compressed(entry, freed)
        except (StenoError, OSError) as error:
            found.failed.append(f"{session}: {error}")

    async def _compress_streams(
        self, session: str, command: Gc, found: _Found, days: float
    ) -> None:
        for entry in await self._streams.compress(session, command, days, found.failed):
            found.add_compressed(entry, 0 if command.dry_run else entry.bytes)

    def _compressible(self, place: Place, before: float) -> list[Past]:
        with self._trees.opened(place) as folder:
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            past = self._all_past(folder)
            chosen = garbage.compressible(past, entries, before)
            return [each for each in chosen if self._takes_less(folder, each.generation)]

    def _takes_less(self, folder: int, generation: int) -> bool:
        """Whether a plain file would take less room if it were compressed."""
        found = self._disk.stat_name(folder, paths.generation_file(generation + 1))
        return (
            found is not None
            and found.size > BLOCK_BYTES
            # The other name, which a fork has, would keep the plain file.
            and found.links == 1
            and not self._trees.failed_syncs.has(found)
        )

    async def _drop(self, place: Place, command: Gc, chosen: Chosen) -> Chosen:
        writer = await self._sessions.writer(place.session, "context")
        entry = TimelineEntry(
            kind=timeline_entries.COLLECTED,
            generation=writer.feed.head.generation,
            at=self._services.wall(),
            details={
                "generations": [past.generation for past, _ in chosen],
                "rules": _by_rule(chosen),
            },
        )
        await writer.note(entry)  # 1.
        gone = await self._services.read(lambda: self._remove(place, command, chosen))
        member = self._sessions.member
        if gone and member is not None and not place.shared:
            # The journal has the removed generations, too.
            await self._services.read(lambda: member.shorten(place.session))
        return gone

    def _remove(self, place: Place, command: Gc, chosen: Chosen) -> Chosen:
        still = {past for past, _ in self._droppable(place, command)}  # 2.
        going = [(past, rule) for past, rule in chosen if past in still]
        with self._trees.opened(place) as folder:
            for past, _ in going:  # 3.
                remove_generation(self._disk, folder, past.generation)
            self._disk.fsync(folder)
        return going

    def _droppable(self, place: Place, command: Gc) -> Chosen:
        """Return the generations that the command or a rule names, oldest first."""
        with self._trees.opened(place) as folder:
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            present = crash_recovery.present_generation(self._disk, folder)
            past = self._all_past(folder)
            mail = inspection.pending_mail(self._disk, folder)
        chosen: dict[int, tuple[Past, str]] = {}
        if _names_by_options(command):
            wanted = self._retention(command)
            for each in garbage.droppable(past, entries, present, mail, wanted):
                chosen[each.generation] = each, _options(command)
        if command.retention and not place.shared:
            rules = retention.rules_of("generations", self._services.settings())
            now = self._services.wall()
            for each, rule in garbage.named(past, entries, present, mail, rules, now):
                chosen[each.generation] = each, rule
        return [chosen[generation] for generation in sorted(chosen)]

    def _all_past(self, folder: int) -> list[Past]:
        """Return the past generations, oldest first."""
        present = crash_recovery.present_generation(self._disk, folder)
        known = past_generations(self._disk, folder)
        return [self._past(folder, generation) for generation in known if generation < present]

    def _past(self, folder: int, generation: int) -> Past:
        found = stat_stored(self._disk, folder, generation)
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

    @property
    def _expiry_rule(self) -> str:
        return f"disk.trash_days = {self._expiry_s / limits.DAY_S:g}"

    def _expire(self, folder: str, command: Gc, found: _Found, *, is_own: bool) -> None:
        try:
            tree = self._disk.open_root(folder)
        except OSError:
            # A tree that does not exist has no trash.
            return
        with closing(self._disk, tree):
            for name, rule in self._expired(tree, folder, command, is_own=is_own):
                path = f"{folder}/{paths.TRASH}/{name}"
                size = tree_bytes(path)
                try:
                    if not command.dry_run:
                        trash.remove(self._disk, tree, name)
                except OSError as error:
                    found.failed.append(f"{path}: {error}")
                    continue
                found.add("", path, size, rule)

    def _expired(
        self, tree: int, folder: str, command: Gc, *, is_own: bool
    ) -> list[tuple[str, str]]:
        """Return the folders of a trash that go, the oldest first, each with its rule."""
        now, chosen = self._services.wall(), dict[str, str]()
        if command.trash or is_own:
            # A rule of retention as well, whatever the others say.
            names = trash.expired(self._disk, tree, now, self._expiry_s)
            chosen = dict.fromkeys(names, self._expiry_rule)
        rules = retention.rules_of("trash", self._services.settings())
        if command.retention and is_own and rules.are_set:
            found = [
                _Deleted(name, at, tree_bytes(f"{folder}/{paths.TRASH}/{name}"))
                for name, at in trash.deletions(self._disk, tree)
            ]
            for each, rule in rules.excess(found, now):
                if now - each.at >= limits.RETENTION_S:
                    chosen.setdefault(each.name, rule)
        return list(chosen.items())


def _by_rule(chosen: Chosen) -> dict[str, list[int]]:
    """Return the numbers of the generations by the rule that names them."""
    found: dict[str, list[int]] = {}
    for past, rule in chosen:
        found.setdefault(rule, []).append(past.generation)
    return found


def _names_by_options(command: Gc) -> bool:
    return command.generations_older_s is not None or command.keep_generations is not None


def _options(command: Gc) -> str:
    """Return the fields of a command that name generations, as the report shows them."""
    fields = {
        "generations_older_s": command.generations_older_s,
        "keep_generations": command.keep_generations,
    }
    return ", ".join(f"{name} = {value}" for name, value in fields.items() if value is not None)
