"""Which session has which writer: opened on first use, one a folder, closed when idle."""

import errno
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from steno_protocol import limits, places
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Exists,
    NotFound,
    ShuttingDown,
    StenoError,
    StorageFailed,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Happening, SessionEntry
from stenod import recovery
from stenod.config import Config
from stenod.core import timeline
from stenod.feed import Feed, Spawn
from stenod.mailbox import Item
from stenod.recovery import Inspection, Opened, Opening
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.jsonl import FileView, SharedHandle
from stenod.store.log import View
from stenod.writer import OpenHow, Workshop, Writer


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session lies.

    Attributes:
        tree: the folder of its tree, `sessions/` of the root or a mount.
        segments: the folders below it.
        shared: other programs write in this tree too.
    """

    tree: Path
    segments: tuple[str, ...]
    shared: bool

    @property
    def path(self) -> str:
        """The session's folder."""
        return str(self.tree.joinpath(*self.segments))


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens a session's files for its writer, again after a failure."""

    disk: Disk
    place: Place
    session: str
    wall: Callable[[], float]

    def __call__(self, how: OpenHow) -> Opened:
        folder = open_place(self.disk, self.place, create=how.create)
        opening = Opening(
            session=self.session,
            path=self.place.path,
            now=self.wall(),
            incarnation=secrets.token_hex(8),
            create=how.create,
            stamp=how.stamp,
            shared=self.place.shared,
            by=how.by,
            proven=how.proven,
        )
        return recovery.open_session(self.disk, folder, opening)


@dataclass(slots=True, eq=False)
class _Entry:
    writer: Writer
    addresses: set[str] = field(default_factory=set[str])


class Registry:
    """The writers of one daemon.

    Args:
        config: root and mounts.
        disk: the disk they lie on.
        workshop: what writers work with.
        spawn: starts a task in the background.
    """

    def __init__(self, config: Config, disk: Disk, workshop: Workshop, spawn: Spawn) -> None:
        self._config = config
        self._disk = disk
        self._shop = workshop
        self._spawn = spawn
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._addresses: dict[str, _Entry] = {}
        self._resolving: dict[str, list[Item]] = {}
        self._closing = False
        self._running = 0
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def queued(self) -> int:
        """Commands that wait for a writer."""
        waiting = sum(len(entry.writer.mailbox) for entry in self._entries.values())
        return waiting + sum(map(len, self._resolving.values()))

    def feed(self, session: str) -> Feed | None:
        """The feed of an open session."""
        entry = self._addresses.get(session)
        return entry.writer.feed if entry is not None else None

    def submit(self, session: str, item: Item) -> None:
        """Give a command to its session's writer, which is started if need be.

        Raises:
            StenoError: it was not queued.
        """
        entry = self._addresses.get(session)
        if entry is not None:
            entry.writer.mailbox.put(item)
            return
        if self._closing:
            raise _shutting_down()
        waiting = self._resolving.get(session)
        if waiting is not None:
            if len(waiting) >= limits.MAILBOX_COMMANDS_MAX:
                raise Busy("too many commands wait for this session to open", session=session)
            waiting.append(item)
            return
        place(self._config, session)
        self._resolving[session] = [item]
        self._spawn(lambda: self._resolve(session))

    async def open(
        self, session: str, *, create: bool, exclusive: bool, stamp: bool, by: str | None
    ) -> Opened:
        """Open a session for writing, making it if it is not there.

        Raises:
            NotFound: it is not there and is not to be made.
            Exists: it is there, and `exclusive` asks for a new one.
            StenoError, OSError: it cannot be opened.
        """
        entry = await self._entry(session, create=create)
        was_open = entry.writer.opened is not None
        opened = await entry.writer.open(OpenHow(create=create, stamp=stamp, by=by))
        if exclusive and (was_open or not opened.created):
            raise Exists("the session is there already: open it without exclusive", session=session)
        return replace(opened, created=opened.created and not was_open)

    async def writer(self, session: str) -> Writer:
        """The writer of a session that is there, its files open."""
        entry = await self._entry(session, create=False)
        await entry.writer.open()
        return entry.writer

    async def look(self, session: str) -> tuple[Inspection, FileView | None]:
        """What a session's files say and, if it is not open, what of them may be read."""
        entry = self._addresses.get(session)
        opened = entry.writer.opened if entry is not None else None
        if opened is not None:
            return _inspection_of(opened), None
        found = place(self._config, session)
        return await self._shop.read(lambda: self._inspect(session, found))

    async def sessions(
        self, prefix: str, after: str, limit: int
    ) -> tuple[list[SessionEntry], bool]:
        """Sessions by id, and whether there are more than `limit`."""
        return await self._shop.read(lambda: self._list(prefix, after, limit))

    async def view(self, session: str, generation: int | None) -> tuple[View, Position]:
        """What may be read of a generation (None: the present one), and the session's head.

        Raises:
            NotFound: there is no such session or generation.
        """
        inspection, view = await self.look(session)
        present = inspection.head.generation
        entry = self._addresses.get(session)
        if view is None and entry is not None and entry.writer.opened is not None:
            view = entry.writer.opened.log.view(present)
        if generation in {None, present} and view is not None:
            return view, inspection.head
        if view is not None:
            view.release()
        found = place(self._config, session)
        past = generation if generation is not None else present
        return await self._shop.read(lambda: self._past(session, found, past)), inspection.head

    async def timeline(self, session: str) -> list[Happening]:
        """What ever happened to a session, rotations by other programs included."""
        found = place(self._config, session)
        return await self._shop.read(lambda: self._read_timeline(session, found))

    def retire_idle(self) -> None:
        """Close what was not used for long, and the longest unused of too many."""
        now = self._shop.monotonic()
        idle = sorted(
            (entry for entry in self._entries.values() if entry.writer.is_idle),
            key=lambda entry: entry.writer.used_at,
        )
        surplus = len(self._entries) - limits.OPEN_SESSIONS_MAX
        for number, entry in enumerate(idle):
            if number < surplus or now - entry.writer.used_at > limits.SESSION_IDLE_S:
                entry.writer.retire()
                self._forget(entry)

    def end_stalled(self) -> None:
        """End the subscriptions that nobody reads."""
        for entry in list(self._entries.values()):
            entry.writer.feed.end_stalled()

    async def wait_quiet(self) -> None:
        """Return when no writer task is running any more."""
        while self._running or self._resolving:
            self._changed = anyio.Event()
            await self._changed.wait()

    def close(self) -> None:
        """Take nothing more; what is queued is still written, then every writer ends."""
        self._closing = True
        for entry in self._entries.values():
            entry.writer.mailbox.close()

    async def _entry(self, session: str, *, create: bool) -> _Entry:
        entry = self._addresses.get(session)
        if entry is None:
            if self._closing:
                raise _shutting_down()
            found = place(self._config, session)
            identity = await self._shop.read(
                lambda: _identity(self._disk, found, session, create=create)
            )
            entry = self._addresses.get(session) or self._add(session, found, identity)
        return entry

    async def _resolve(self, session: str) -> None:
        """Find the writer that queued commands are for, or refuse them."""
        try:
            entry = await self._entry(session, create=False)
        except StenoError as error:
            self._refuse_waiting(session, error)
            return
        except OSError as error:
            failed = StorageFailed(f"its folder cannot be opened: {error}", session=session)
            self._refuse_waiting(session, failed)
            return
        for item in self._resolving.pop(session):
            try:
                entry.writer.mailbox.put(item)
            except StenoError as error:
                item.to.refuse(error)
        self._changed.set()
        self._shop.flush()

    def _refuse_waiting(self, session: str, error: StenoError) -> None:
        for item in self._resolving.pop(session):
            item.to.refuse(error)
        self._changed.set()
        self._shop.flush()

    def _add(self, session: str, found: Place, identity: tuple[int, int]) -> _Entry:
        entry = self._entries.get(identity)
        if entry is None:
            opener = _Opener(self._disk, found, session, self._shop.wall)
            feed = Feed(self._spawn, self._shop.read, self._shop.monotonic)
            entry = _Entry(Writer(session, opener, feed, self._shop))
            self._entries[identity] = entry
            self._start(entry)
        entry.addresses.add(session)
        self._addresses[session] = entry
        return entry

    def _start(self, entry: _Entry) -> None:
        self._running += 1

        async def serve() -> None:
            try:
                await entry.writer.serve()
            finally:
                self._running -= 1
                self._forget(entry)
                self._changed.set()

        self._spawn(serve)

    def _forget(self, entry: _Entry) -> None:
        self._addresses = {
            address: other for address, other in self._addresses.items() if other is not entry
        }
        self._entries = {
            identity: other for identity, other in self._entries.items() if other is not entry
        }

    def _past(self, session: str, found: Place, generation: int) -> FileView:
        folder = _existing_folder(self._disk, found, session)
        try:
            handle = self._disk.open_read(folder, places.generation_file(generation + 1))
        except FileNotFoundError:
            raise NotFound(
                f"there is no generation {generation}: `steno timeline` shows those that are",
                session=session,
            ) from None
        finally:
            self._disk.close(folder)
        return FileView(SharedHandle(self._disk, handle), self._disk.stat(handle).size)

    def _read_timeline(self, session: str, found: Place) -> list[Happening]:
        folder = _existing_folder(self._disk, found, session)
        try:
            if self._disk.stat_name(folder, places.CONTEXT) is None:
                raise _no_session(session)
            entries = timeline.decode(jsonl.read_file(self._disk, folder, places.TIMELINE))
            rotated: dict[int, float] = {}
            for generation in jsonl.past_generations(self._disk, folder):
                stat = jsonl.stat_generation(self._disk, folder, generation)
                rotated[generation + 1] = stat.modified_s
            return timeline.with_inferred(entries, rotated)
        finally:
            self._disk.close(folder)

    def _inspect(self, session: str, found: Place) -> tuple[Inspection, FileView]:
        folder = _existing_folder(self._disk, found, session)
        try:
            shared = SharedHandle(self._disk, self._disk.open_read(folder, places.CONTEXT))
            try:
                inspection = recovery.inspect(self._disk, folder, shared.handle)
            except BaseException:
                shared.release()
                raise
        except FileNotFoundError:
            raise _no_session(session) from None
        finally:
            self._disk.close(folder)
        return inspection, FileView(shared, inspection.size)

    def _list(self, prefix: str, after: str, limit: int) -> tuple[list[SessionEntry], bool]:
        found: list[SessionEntry] = []
        trees = [("", self._config.root / places.SESSIONS)]
        trees += [(f"{name}:", folder) for name, folder in self._config.mounts.items()]
        for address, folder in trees:
            try:
                handle = self._disk.open_root(str(folder))
            except OSError:
                continue
            found += _walk(self._disk, handle, address, limits.SESSION_TREE_DEPTH_MAX)
        chosen = sorted(
            (
                entry
                for entry in found
                if entry.session.startswith(prefix) and entry.session > after
            ),
            key=lambda entry: entry.session,
        )
        return chosen[:limit], len(chosen) > limit


def place(config: Config, session: str) -> Place:
    """Where a session lies, by its id alone; no file is touched.

    Raises:
        BadRequest: the id is malformed.
        NotFound: it names a mount that is not configured.
    """
    mount, segments = places.split_session(session)
    if mount is None:
        return Place(config.root / places.SESSIONS, segments, shared=False)
    if mount not in config.mounts:
        known = ", ".join(config.mounts) or "none"
        raise NotFound(
            f"the mount {mount!r} is not configured (known: {known}): add it to [mounts] in"
            f" {config.root / places.CONFIG} and restart",
            session=session,
        )
    return Place(config.mounts[mount], segments, shared=True)


def open_place(disk: Disk, found: Place, *, create: bool) -> int:
    """Open a session's folder, segment by segment, so that no link can lead out of the tree."""
    handle = disk.open_root(str(found.tree), create=create)
    for segment in found.segments:
        parent = handle
        try:
            handle = disk.open_folder(parent, segment, create=create)
        finally:
            disk.close(parent)
    return handle


def _existing_folder(disk: Disk, found: Place, session: str) -> int:
    try:
        return open_place(disk, found, create=False)
    except FileNotFoundError:
        raise _no_session(session) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise BadRequest(
                f"{found.path} is no folder, or a symbolic link leads to it: steno follows none",
                session=session,
            ) from None
        raise


def _identity(disk: Disk, found: Place, session: str, *, create: bool) -> tuple[int, int]:
    """What tells a folder from every other, whatever its path."""
    if create:
        folder = open_place(disk, found, create=True)
    else:
        folder = _existing_folder(disk, found, session)
    try:
        if not create and disk.stat_name(folder, places.CONTEXT) is None:
            raise _no_session(session)
        stat = disk.stat(folder)
        return stat.device, stat.inode
    finally:
        disk.close(folder)


def _walk(disk: Disk, folder: int, address: str, depth: int) -> Iterator[SessionEntry]:
    """The sessions in an open folder and below it; closes the folder."""
    try:
        names = disk.names(folder)
        if places.CONTEXT in names and address and not address.endswith(":"):
            stat = disk.stat_name(folder, places.CONTEXT)
            if stat is not None:
                yield SessionEntry(
                    session=address,
                    bytes=stat.size,
                    modified_at=stat.modified_s,
                    generations=sum(places.generation_of(name) is not None for name in names),
                )
        for name in names if depth else []:
            joined = (
                f"{address}/{name}" if address and not address.endswith(":") else address + name
            )
            if _may_be_session(joined):
                yield from _walk_below(disk, folder, name, joined, depth - 1)
    finally:
        disk.close(folder)


def _walk_below(
    disk: Disk, parent: int, name: str, address: str, depth: int
) -> Iterator[SessionEntry]:
    try:
        folder = disk.open_folder(parent, name)
    except OSError:
        return
    yield from _walk(disk, folder, address, depth)


def _may_be_session(address: str) -> bool:
    try:
        places.split_session(address)
    except BadRequest:
        return False
    return True


def _inspection_of(opened: Opened) -> Inspection:
    log, machine = opened.log, opened.machine
    return Inspection(
        size=log.synced,
        inode=log.stat().inode,
        head=machine.head,
        counters=machine.counters,
        incarnation=opened.incarnation,
        stamp=machine.stamp,
    )


def _no_session(session: str) -> NotFound:
    return NotFound(
        "there is no such session: `open` makes it (`steno append --create` from the shell)",
        session=session,
    )


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is ending: the next one takes the command, try again")
