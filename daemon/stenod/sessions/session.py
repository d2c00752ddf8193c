"""One open session: the writer of its context, the writer of its wire file, and their openers."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from steno_protocol import limits
from steno_protocol.errors import Busy
from steno_protocol.positions import Position
from stenod.core.keys import KeyTable
from stenod.feed.feed import Feed
from stenod.recovery import file_opening
from stenod.recovery.file_opening import Inspection, Opened, OpenHow, Opening
from stenod.runtime.executor import Spawn
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.writer.services import Services
from stenod.writer.writer import Writer

File = Literal["context", "wire"]
"""Which of a session's files."""

Start = Callable[[Writer], None]
"""Starts a writer's task."""


class ClosedSessionKeys:
    """The keys of sessions without stamps, beyond the closing of their files: they stand in none.

    Files are opened in threads, several at a time.
    """

    def __init__(self, keys_max: int = limits.KEYS_KEPT_MAX) -> None:
        self._tables: OrderedDict[tuple[str, str, str], KeyTable] = OrderedDict()
        self._keys_max = keys_max
        self._lock = threading.Lock()

    def carry_on(self, path: str, file: File, opened: Opened) -> None:
        """Let newly opened files remember what they did when they were open last.

        Of too many keys those of the files are forgotten that were not opened for longest.

        Args:
            path: the session's folder; a copy of it is another session.
            file: which of its files was opened.
            opened: that file.
        """
        if opened.machine.stamp:
            return
        place, keys = (path, opened.incarnation, file), opened.machine.keys
        with self._lock:
            before = self._tables.pop(place, None)
            if before is not None:
                keys.carry_on(before)
            self._tables[place] = keys
            while len(self._tables) > 1 and self._count() > self._keys_max:
                self._tables.popitem(last=False)

    def _count(self) -> int:
        # An empty table takes room, too, and the last one fills as its session is written to.
        return sum(len(table) + 1 for table in self._tables.values())


class _ContextOpener(msgspec.Struct, frozen=True):
    """Opens a session's context for its writer, again after a failure."""

    disk: Disk
    trees: SessionFolders
    place: Place
    wall: Callable[[], float]
    kept: ClosedSessionKeys

    def __call__(self, how: OpenHow) -> Opened:
        with _placed(self.place):
            folder = self.trees.open_folder(self.place, create=how.create, keep=True)
            opened = file_opening.open_session(self.disk, folder, self.opening(how))
        self.kept.carry_on(self.place.path, "context", opened)
        return opened

    def opening(self, how: OpenHow) -> Opening:
        """What recovery is to know."""
        return Opening(
            session=self.place.session,
            path=self.place.path,
            now=self.wall(),
            incarnation=os.urandom(8).hex(),
            create=how.create,
            stamp=how.stamp,
            shared=self.place.shared,
            by=how.by,
            key=how.key,
            proven=how.proven,
            taken_in=how.taken_in,
            failed_syncs=self.trees.failed_syncs,
        )


class _WireOpener(msgspec.Struct, frozen=True):
    """Opens a session's wire file; the context, open before it, holds the folder's lock."""

    opener: _ContextOpener
    context: Writer

    def __call__(self, how: OpenHow) -> Opened:
        opened = self.context.opened
        if opened is None:
            raise Busy(
                "the session is being opened again after a failure: try again",
                session=self.context.session,
            )
        with _placed(self.opener.place):
            folder = self.opener.trees.open_folder(self.opener.place)
            wire = file_opening.open_wire(
                self.opener.disk,
                folder,
                self.opener.opening(how),
                stamp=opened.machine.stamp,
                context_head=self._context_head,
            )
        self.opener.kept.carry_on(self.opener.place.path, "wire", wire)
        return wire

    def _context_head(self) -> Position:
        return self.context.feed.head


class Session:
    """The writers of one session.

    Args:
        place: where it lies.
        trees: opens its folder.
        disk: the disk it lies on.
        workshop: what its writers work with.
        kept: what of its keys outlives it.
        spawn: starts a background task.
        start: starts a writer's task.

    Attributes:
        is_claimed: one caller got the reply that it created the session.
    """

    def __init__(
        self,
        place: Place,
        trees: SessionFolders,
        disk: Disk,
        services: Services,
        kept: ClosedSessionKeys,
        spawn: Spawn,
        start: Start,
    ) -> None:
        self._services = services
        self._spawn = spawn
        self._start = start
        self.place = place
        self.is_claimed = False
        self._id = place.session
        self._opener = _ContextOpener(disk, trees, place, services.wall, kept)
        self.context = Writer(self._id, self._opener, self._feed(), services)
        self._wire: Writer | None = None
        start(self.context)

    @property
    def writers(self) -> list[Writer]:
        """Its writers, the ones that need others first."""
        return [self.context] if self._wire is None else [self._wire, self.context]

    @property
    def is_idle(self) -> bool:
        """True when all its writers are."""
        return all(writer.is_idle for writer in self.writers)

    @property
    def is_followed(self) -> bool:
        """True while one of its files has followers."""
        return any(writer.feed for writer in self.writers)

    @property
    def used_at(self) -> float:
        """Monotonic time at which it was last written to."""
        return max(writer.used_at for writer in self.writers)

    def writer(self, file: File) -> Writer:
        """The writer of one of its files; the wire file's is made at its first use."""
        if file == "context":
            return self.context
        if self._wire is None:
            opener = _WireOpener(self._opener, self.context)
            self._wire = Writer(self._id, opener, self._feed(), self._services, needs=self.context)
            self._start(self._wire)
        return self._wire

    def opened(self, file: File) -> Opened | None:
        """One of its files, if it is open."""
        writer = self.context if file == "context" else self._wire
        return writer.opened if writer is not None else None

    def inspect(self) -> Inspection | None:
        """What the files of its context say, if they are open."""
        opened = self.context.opened
        return inspection_of(opened) if opened is not None else None

    async def look(self) -> None:
        """Take in changes of other programs, for the followers."""
        for writer in reversed(self.writers):
            if writer.feed:
                await writer.look()

    def retire(self) -> None:
        """Close its files now; it is idle."""
        for writer in self.writers:
            writer.retire()

    def close(self) -> None:
        """Take no more commands; what is queued is still written."""
        for writer in self.writers:
            writer.mailbox.close()

    def _feed(self) -> Feed:
        return Feed(self._spawn, self._services.read, self._services.monotonic)


def inspection_of(opened: Opened) -> Inspection:
    """What the files of an open context say."""
    return Inspection(
        size=opened.log.synced,
        head=opened.machine.head,
        counters=opened.machine.counters.copy(),
        incarnation=opened.incarnation,
        stamp=opened.machine.stamp,
    )


@contextmanager
def _placed(place: Place) -> Generator[None]:
    """Name the whole path in what a disk refuses: the kernel names a file in it, or none."""
    try:
        yield
    except OSError as error:
        if error.filename2 is None:
            name: object = error.filename
            error.filename = str(Path(place.path, name if isinstance(name, str) else ""))
        raise
