"""A session's files as its writer has them: opened on demand, believed until something fails."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol.errors import Busy, StenoError
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.feed.feed import Feed
from stenod.recovery import file_opening
from stenod.recovery.file_opening import Opened, OpenHow
from stenod.runtime.error_mapping import ended
from stenod.runtime.services import Services
from stenod.store.jsonl import Known
from stenod.writer.batch import Batch


class _Aside(msgspec.Struct, frozen=True):
    """Files that are believed no more, and still open for what has to be kept of them."""

    opened: Opened
    since: float
    is_changed: bool


class _Change(msgspec.Struct, frozen=True):
    """What another program did to open files, until they are open again.

    Attributes:
        before: where the file durably ended.
        since: monotonic time when it was noticed.
        is_kept: what was open had to be kept as a generation.
        known: what is known of the bytes that were in it.
    """

    before: Position
    since: float
    is_kept: bool
    known: Known


class SyncBacklog:
    """What was appended since the last sync.

    Attributes:
        since: monotonic time of the first of it, None while there is nothing.
        size: its bytes; from `UNSYNCED_BYTES_MAX` on it is synced with the next batch.
        is_asked: a caller waits until it is empty.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.is_asked = False
        self._blocks: list[bytes] = []
        self.size = 0
        self._settled = anyio.Event()

    def add(self, block: bytes, clock: Callable[[], float]) -> None:
        """Lines were appended."""
        self._blocks.append(block)
        self.size += len(block)
        if self.since is None:
            self.since = clock()

    def take(self, last: bytes = b"") -> bytes:
        """All of it is durable now, or withdrawn: what it was, and `last` behind it."""
        if self.since is None and not self.is_asked:
            return last
        block = b"".join([*self._blocks, last])
        self._blocks.clear()
        self.size = 0
        self.since = None
        if self.is_asked:
            self.is_asked = False
            self._settled.set()
            self._settled = anyio.Event()
        return block

    def ask(self) -> anyio.Event:
        """Have it synced soon; the event is set when there is nothing any more."""
        self.is_asked = True
        return self._settled


class OpenFiles:
    """The files that one writer writes.

    Args:
        session: the session's id.
        opener: opens the files, or opens them again; blocks.
        feed: the followers, which are updated with the head.
        workshop: what a writer works with.
        first: opens other files, which have to be open before these.
        beside: those files, which have the same timeline.

    Attributes:
        opened: the open files, None while they are closed.
        unsynced: what was appended to them and is not durable.
        timeline: a line of the timeline is one write and one sync: two at once would cut each
            other.
    """

    def __init__(
        self,
        session: str,
        opener: Callable[[OpenHow], Opened],
        feed: Feed,
        services: Services,
        first: Callable[[], Awaitable[object]] | None,
        beside: "OpenFiles | None",
    ) -> None:
        self.opened: Opened | None = None
        self.unsynced = SyncBacklog()
        self.timeline: anyio.Lock = anyio.Lock() if beside is None else beside.timeline
        self._session = session
        self._opener = opener
        self._feed = feed
        self._services = services
        self._first = first
        self._beside = beside
        self._opening = anyio.Lock()
        self._proven: int | None = None
        self._aside: _Aside | None = None
        self._change: _Change | None = None
        self._marked = 0
        self._is_saving_recovery_point = False
        self._has_ended = False

    @property
    def are_ready(self) -> bool:
        """True while they are open, and those beside them, which hold the folder's lock."""
        is_locked = self._beside is None or self._beside.opened is not None
        return is_locked and self.opened is not None

    @property
    def is_busy(self) -> bool:
        """True while they are opened, a recovery point is saved, or the timeline is appended to."""
        return self._opening.locked() or self.timeline.locked() or self._is_saving_recovery_point

    @property
    def is_unsynced(self) -> bool:
        """True while there are lines in them that are not durable."""
        return self.unsynced.since is not None

    @property
    def is_recovery_point_due(self) -> bool:
        """True when so much was appended that the next opening would read for long."""
        return (
            self.opened is not None and self.opened.log.synced - self._marked >= limits.MARK_BYTES
        )

    async def open(self, how: OpenHow) -> Opened:
        """Open them if they are not open, and first those that hold the folder's lock.

        Raises:
            ShuttingDown: the writer has ended, and would not close them again.
            StenoError, OSError: as `recovery.open_session`; the next command tries again.
        """
        if self.opened is not None and self.are_ready:
            return self.opened
        async with self._opening:
            if self._first is not None:
                await self._first()
            self._check_ended()
            if self.opened is None:
                if self._aside is not None:
                    await self._keep(self._aside)
                await self._open(self._completed(how))
            assert self.opened is not None
            change, self._change = self._change, None
            if change is not None:
                await self._tell_change(change, self.opened)
            return self.opened

    async def note(self, opened: Opened, happening: TimelineEntry) -> None:
        """Append an entry to the timeline; durable on return.

        Raises:
            Busy: the files are others by now; nothing was written.
            OSError: the disk refused; nothing was written.
        """
        async with self.timeline:
            if self.opened is not opened:
                raise Busy(
                    "the session's files were opened again meanwhile: try again",
                    session=self._session,
                )
            await self._services.read(
                lambda: opened.log.append_timeline(timeline.encode(happening))
            )

    async def take_in_foreign(self) -> Opened:
        """A foreign program changed the file: keep what it replaced, then believe what is there.

        Raises:
            Busy: it took the file away just now; after `FOREIGN_SETTLE_S` a new one is begun.
            StenoError, OSError: as `open`; the next command tries again.
        """
        self.set_aside(is_changed=True)
        return await self.open(OpenHow())

    async def look(self) -> None:
        """Take in what another program changed while nothing of ours is on its way to the disk.

        What cannot be opened then is left closed: it is read as it lies there, and the next command
        says what is the matter.
        """
        opened = self.opened
        if opened is None or self.is_busy or self.is_unsynced:
            return
        if opened.log.may_be_foreign_changed():
            with contextlib.suppress(StenoError, OSError):
                await self.take_in_foreign()

    def set_aside(self, *, is_changed: bool = False, proven: int | None = None) -> None:
        """As `abandon`, but the next opening keeps first what another program replaced.

        Until then the file stays open: what was acknowledged may have no other name.

        Args:
            is_changed: another program changed it.
            proven: the length that was durable when a sync failed.
        """
        opened = self.opened
        if opened is not None:
            self._aside = _Aside(opened, self._services.monotonic(), is_changed)
            self._forget(proven)

    async def rest(self, nudge: Callable[[], None]) -> None:
        """Return when all that was decided is durable, or withdrawn; `nudge` has it done."""
        while (opened := self.opened) is not None:
            if opened.machine.head == opened.machine.tentative_head:
                return
            settled = self.unsynced.ask()
            nudge()
            await settled.wait()

    def append(self, batch: Batch) -> None:
        """Write a batch's bytes; an error is in the batch then."""
        try:
            if batch.data:
                batch.opened.log.append(batch.data)
        except OSError as error:
            batch.error = error

    def store(self, batch: Batch) -> None:
        """Write a batch's bytes, and make them durable if that is wanted; as `append`."""
        self.append(batch)
        if batch.error is None and batch.synced:
            started = self._services.monotonic()
            try:
                batch.opened.log.sync()
            except OSError as error:
                batch.error = error
            batch.sync_s = self._services.monotonic() - started

    def commit(self, opened: Opened, data: bytes = b"") -> None:
        """All that was appended is durable: it becomes the state, and is published to followers.

        Args:
            opened: the files.
            data: the last of what was appended, which `unsynced` does not have.
        """
        block = self.unsynced.take(data)
        head = opened.machine.commit(opened.log.synced)
        opened.log.confirm()
        if block:
            self._feed.publish(head, block)

    def want_recovery_point(self) -> None:
        """Something was found out that the next opening is to be spared."""
        self._marked = -limits.MARK_BYTES

    async def save_recovery_point(self, opened: Opened) -> None:
        """Note how far they are durable, for the next opening."""
        self._marked = opened.log.synced
        # The mark only makes the next open quicker: without it everything is still right.
        with contextlib.suppress(OSError):
            await self._services.read(lambda: file_opening.save_recovery_point(opened))

    async def renew_recovery_point(self, opened: Opened) -> None:
        """Save a recovery point beside appends; wait if the last one is still being saved."""
        if self._is_saving_recovery_point:
            await self.save_recovery_point(opened)
            return
        log = opened.log
        self._marked = log.synced
        with contextlib.suppress(OSError):
            # Here, before it changes; the end of the file was written just now, and is in memory.
            mark = file_opening.recovery_point_of(log, opened.machine)
            work = partial(log.save_recovery_point, mark, log.generation, log.synced)
            self._is_saving_recovery_point = True
            self._services.spawn(lambda: self._save(work))

    async def _save(self, work: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._services.read(work)
        finally:
            self._is_saving_recovery_point = False

    def abandon(self) -> None:
        """Close them, and believe nothing of them any longer; the next command opens them again."""
        opened = self.opened
        self._forget(None)
        if opened is not None:
            opened.log.close()

    def _forget(self, proven: int | None) -> None:
        opened, self.opened = self.opened, None
        self._proven = proven
        self.unsynced.take()
        if opened is not None:
            opened.machine.keys.drop_filter()
            self._feed.detach()

    def end(self, *, is_whole: bool) -> None:
        """Close them for good.

        Args:
            is_whole: no group is under way; then everything is synced, and the mark is saved.
        """
        self._has_ended = True
        opened, aside = self.opened, self._aside
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.opened.log.leave()
            self._close_aside()
        if opened is not None and is_whole:
            with contextlib.suppress(OSError):
                if self.is_unsynced:
                    opened.log.sync()
                    self.commit(opened)
                # What is still on its way comes too late.
                if self._is_saving_recovery_point or opened.log.synced != self._marked:
                    file_opening.save_recovery_point(opened)
            with contextlib.suppress(OSError):
                # This is the last check, and another program may have replaced it since the check
                # before.
                opened.log.leave()
        self.abandon()

    async def _keep(self, aside: _Aside) -> None:
        """Keep what another program replaced, if it did; the next opening knows of it."""
        log = aside.opened.log
        if aside.is_changed:
            # Another program's sync may have met the error that ours would have met: the file is in
            # doubt then, which the opening knows.
            with contextlib.suppress(OSError):
                await self._services.read(log.check)
        try:
            is_kept = await self._services.read(log.keep_replaced)
        except FileNotFoundError:
            # Its folder is gone, and so is where it could be kept: look again next time.
            self._close_aside()
            raise
        if is_kept or aside.is_changed:
            before = aside.opened.machine.head
            self._change = _Change(before, aside.since, is_kept=is_kept, known=log.known)
        self._close_aside()

    def _close_aside(self) -> None:
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.opened.log.close()

    def _completed(self, how: OpenHow) -> OpenHow:
        """How to open them, with what is known here of how they were closed."""
        change = self._change
        if change is None:
            return msgspec.structs.replace(how, proven=self._proven)
        # The program that moved the file may be about to create another one, as kimi-cli does.
        has_settled = self._services.monotonic() - change.since >= limits.FOREIGN_SETTLE_S
        return msgspec.structs.replace(how, proven=self._proven, taken_in=True, create=has_settled)

    async def _tell_change(self, change: _Change, opened: Opened) -> None:
        before, after = change.before, opened.machine.head
        entry = TimelineEntry(
            kind=timeline_entries.FOREIGN,
            generation=after.generation,
            at=self._services.wall(),
            why="another program changed the file",
            details={"before": str(before), "after": str(after), "kept": change.is_kept},
        )
        await self.note(opened, entry)
        self._services.log(
            "foreign_change", session=self._session, before=str(before), after=str(after)
        )

    async def _open(self, how: OpenHow) -> None:
        try:
            async with self.timeline:
                opened, is_same = await self._services.read(lambda: self._opened(how))
        except OSError:
            if self._proven is None:
                # It may have been the first sync, and then the page cache proves nothing.
                self._proven = 0
            raise
        if self._has_ended:
            opened.log.close()
        self._check_ended()
        self.opened, self._proven = opened, None
        self._marked = opened.log.synced
        self._feed.attach(opened.log, opened.machine.head, opened.incarnation, is_same=is_same)
        self._feed.begin_with(opened.machine)

    def _opened(self, how: OpenHow) -> tuple[Opened, bool]:
        """Open the files; False if what they held is not what stands there now. Blocks."""
        opened, change = self._opener(how), self._change
        try:
            return opened, change is None or opened.log.still_has(change.known)
        except BaseException:
            opened.log.close()
            raise

    def _check_ended(self) -> None:
        if self._has_ended:
            raise ended(self._session)
