"""One open session: the writer of its context, the writer of its wire file, and their openers."""

import os
from collections.abc import Callable
from typing import Literal

import msgspec

from steno_protocol.errors import Busy
from steno_protocol.positions import Position
from stenod import recovery
from stenod.feed import Feed, Spawn
from stenod.recovery import Opened, OpenHow, Opening
from stenod.store.disk import Disk
from stenod.trees import Place, Trees
from stenod.workshop import Workshop
from stenod.writer import Writer

File = Literal["context", "wire"]
"""Which of a session's files."""

Start = Callable[[Writer], None]
"""Starts a writer's task."""


class _ContextOpener(msgspec.Struct, frozen=True):
    """Opens a session's context for its writer, again after a failure."""

    disk: Disk
    trees: Trees
    place: Place
    wall: Callable[[], float]

    def __call__(self, how: OpenHow) -> Opened:
        folder = self.trees.open_folder(self.place, create=how.create)
        return recovery.open_session(self.disk, folder, self.opening(how))

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
            proven=how.proven,
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
        folder = self.opener.trees.open_folder(self.opener.place)
        return recovery.open_wire(
            self.opener.disk,
            folder,
            self.opener.opening(how),
            stamp=opened.machine.stamp,
            context_head=self._context_head,
        )

    def _context_head(self) -> Position:
        return self.context.feed.head


class Session:
    """The writers of one session.

    Args:
        place: where it lies.
        trees: opens its folder.
        disk: the disk it lies on.
        workshop: what its writers work with.
        spawn: starts a background task.
        start: starts a writer's task.

    Attributes:
        is_claimed: somebody was told whether the session was made for them.
    """

    def __init__(
        self,
        place: Place,
        trees: Trees,
        disk: Disk,
        workshop: Workshop,
        spawn: Spawn,
        start: Start,
    ) -> None:
        self._shop = workshop
        self._spawn = spawn
        self._start = start
        self.place = place
        self.is_claimed = False
        self._id = place.session
        self._opener = _ContextOpener(disk, trees, place, workshop.wall)
        self.context = Writer(self._id, self._opener, self._feed(), workshop)
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
    def used_at(self) -> float:
        """Monotonic time at which it was last written to."""
        return max(writer.used_at for writer in self.writers)

    def writer(self, file: File) -> Writer:
        """The writer of one of its files; the wire file's is made at its first use."""
        if file == "context":
            return self.context
        if self._wire is None:
            opener = _WireOpener(self._opener, self.context)
            self._wire = Writer(self._id, opener, self._feed(), self._shop, needs=self.context)
            self._start(self._wire)
        return self._wire

    def opened(self, file: File) -> Opened | None:
        """One of its files, if it is open."""
        writer = self.context if file == "context" else self._wire
        return writer.opened if writer is not None else None

    def retire(self) -> None:
        """Close its files now; it is idle."""
        for writer in self.writers:
            writer.retire()

    def close(self) -> None:
        """Take no more commands; what is queued is still written."""
        for writer in self.writers:
            writer.mailbox.close()

    def _feed(self) -> Feed:
        return Feed(self._spawn, self._shop.read, self._shop.monotonic)
