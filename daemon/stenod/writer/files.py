"""The open files of one writer: opened on demand, closed after a failure."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.errors import Busy, StenoError
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.feed.feed import Feed
from stenod.recovery import recovery_points
from stenod.recovery.opened import NoFileYet, Opened, OpenOptions
from stenod.runtime.error_mapping import ended
from stenod.store.jsonl import TailChecksum
from stenod.writer.services import Services


class _Aside(msgspec.Struct, frozen=True):
    """Files that are no longer written, and still open because they may have no other name.

    Attributes:
        opened: the files.
        since: monotonic time at which they were set aside.
        is_changed: another program changed them.
    """

    opened: Opened
    since: float
    is_changed: bool


class _Change(msgspec.Struct, frozen=True):
    """A change by another program, until the files are open again.

    Attributes:
        before: the durable end of the file before the change.
        since: monotonic time at which the change was noticed.
        is_kept: the file had to be kept as a generation.
        known: the checksum of its last bytes.
    """

    before: Position
    since: float
    is_kept: bool
    known: TailChecksum


class SyncBacklog:
    """The lines that were appended since the last sync.

    Attributes:
        since: monotonic time of the first of them; None while there are none.
        size: their bytes; from `UNSYNCED_BYTES_MAX` on they are synced with the next batch.
        is_asked: a caller waits until there are none.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.is_asked = False
        self._blocks: list[bytes] = []
        self.size = 0
        self._settled = anyio.Event()

    def add(self, block: bytes, clock: Callable[[], float]) -> None:
        """Add lines that were appended."""
        self._blocks.append(block)
        self.size += len(block)
        if self.since is None:
            self.since = clock()

    def take(self, last: bytes = b"") -> bytes:
        """Empty the backlog, which is durable now or withdrawn; return its lines, then `last`."""
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
        """Ask for a sync soon; the event is set when the backlog is empty."""
        self.is_asked = True
        return self._settled


class OpenFiles:
    """The files that one writer writes.

    Args:
        session: the session's id.
        opener: opens the files, or opens them again; blocks.
        feed: the followers, which are updated with the head.
        services: clocks, threads and the log.
        first: opens the files that must be open before these.
        beside: those files, which share the timeline.

    Attributes:
        opened: the open files; None while they are closed.
        unsynced: the lines that were appended to them and are not durable.
        timeline: held while a line of the timeline is written: two writers at once would truncate
            each other's line after a failure.
    """

    def __init__(
        self,
        session: str,
        opener: Callable[[OpenOptions], Opened],
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
        """True while they are open, and so are the files that hold the folder's lock."""
        is_locked = self._beside is None or self._beside.opened is not None
        return is_locked and self.opened is not None

    @property
    def is_busy(self) -> bool:
        """True while they are being opened, or a recovery point or the timeline is written."""
        return self._opening.locked() or self.timeline.locked() or self._is_saving_recovery_point

    @property
    def is_unsynced(self) -> bool:
        """True while there are lines in them that are not durable."""
        return self.unsynced.since is not None

    @property
    def is_recovery_point_due(self) -> bool:
        """True when the next opening would have to read more than `MARK_BYTES`."""
        return (
            self.opened is not None and self.opened.log.synced - self._marked >= limits.MARK_BYTES
        )

    async def open(self, how: OpenOptions) -> Opened:
        """Open them if they are not open, after the files that hold the folder's lock.

        Raises:
            ShuttingDown: the writer has ended, and would not close them again.
            StenoError, OSError: see `file_opening.open_session`; the next command tries again.
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
                try:
                    await self._open(self._completed(how))
                except NoFileYet as missing:
                    self._feed.attach_missing(missing.first, missing.incarnation)
                    raise
            assert self.opened is not None
            change, self._change = self._change, None
            if change is not None:
                await self._note_change(change, self.opened)
            return self.opened

    async def note(self, opened: Opened, entry: TimelineEntry) -> None:
        """Append an entry to the timeline; durable on return.

        Raises:
            Busy: the files were opened again meanwhile; nothing was written.
            OSError: the write or sync failed; nothing was written.
        """
        async with self.timeline:
            if self.opened is not opened:
                raise Busy(
                    "the session's files were opened again meanwhile: try again",
                    session=self._session,
                )
            await self._services.read(lambda: opened.log.append_timeline(timeline.encode(entry)))

    async def take_in_foreign(self) -> Opened:
        """Take in a change by another program: keep the file that it replaced, then open its file.

        Raises:
            Busy: the file was removed just now; after `FOREIGN_SETTLE_S` a new one is created.
            StenoError, OSError: see `open`; the next command tries again.
        """
        self.set_aside(is_changed=True)
        return await self.open(OpenOptions())

    async def look(self) -> None:
        """Take in a change by another program while no write of the daemon is under way.

        Files that cannot be opened then stay closed: readers get them as they are, and the next
        command gets the error.
        """
        opened = self.opened
        if opened is None or self.is_busy or self.is_unsynced:
            return
        if opened.log.may_be_foreign_changed():
            with contextlib.suppress(StenoError, OSError):
                await self.take_in_foreign()

    def set_aside(self, *, is_changed: bool = False, proven: int | None = None) -> None:
        """As `abandon`, but the next opening first keeps the file that another program replaced.

        Until then the file stays open: acknowledged lines may be reachable by no name.

        Args:
            is_changed: another program changed it.
            proven: the durable size in bytes at the time of a failed sync.
        """
        opened = self.opened
        if opened is not None:
            self._aside = _Aside(opened, self._services.monotonic(), is_changed)
            self._forget(proven)

    async def rest(self, nudge: Callable[[], None]) -> None:
        """Return when every decided line is durable or withdrawn; `nudge` wakes the writer."""
        while (opened := self.opened) is not None:
            if opened.machine.head == opened.machine.tentative_head:
                return
            settled = self.unsynced.ask()
            nudge()
            await settled.wait()

    def commit(self, opened: Opened, data: bytes = b"") -> None:
        """Every appended line is durable: update the state, and publish to the followers.

        Args:
            opened: the files.
            data: the last lines, which are not in `unsynced`.
        """
        block = self.unsynced.take(data)
        head = opened.machine.commit(opened.log.synced)
        opened.log.confirm()
        if block:
            self._feed.publish(head, block)

    def want_recovery_point(self) -> None:
        """Save a recovery point soon, so that the next opening need not repeat a long lookup."""
        self._marked = -limits.MARK_BYTES

    def mark(self, opened: Opened) -> None:
        """Note that a recovery point of their durable head was saved."""
        self._marked = opened.log.synced

    async def save_recovery_point(self, opened: Opened) -> None:
        """Save how far they are durable, for the next opening."""
        self._marked = opened.log.synced
        # A recovery point only makes the next opening quicker: its loss costs nothing else.
        with contextlib.suppress(OSError):
            await self._services.read(lambda: recovery_points.save_recovery_point(opened))

    async def renew_recovery_point(self, opened: Opened) -> None:
        """Save a recovery point while appends go on; wait if one is being saved already."""
        if self._is_saving_recovery_point:
            await self.save_recovery_point(opened)
            return
        log = opened.log
        self._marked = log.synced
        with contextlib.suppress(OSError):
            # On the loop, before the state changes; the end of the file is in the page cache.
            point = recovery_points.present_recovery_point(opened)
            work = partial(log.save_recovery_point, point, log.generation, log.synced)
            self._is_saving_recovery_point = True
            self._services.spawn(lambda: self._save(work))

    async def _save(self, work: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._services.read(work)
        finally:
            self._is_saving_recovery_point = False

    def abandon(self) -> None:
        """Close them without a sync; the next command opens them again."""
        opened = self.opened
        self._forget(None)
        if opened is not None:
            opened.log.close()

    def _forget(self, proven: int | None) -> None:
        opened, self.opened = self.opened, None
        self._proven = proven
        self.unsynced.take()
        if opened is not None:
            # Also those that were acknowledged as `written`: their lines may be durable or not.
            self._services.unknown.add(opened.machine.tentative_keys)
            opened.machine.keys.drop_filter()
            self._feed.detach()

    def end(self, *, is_whole: bool) -> None:
        """Close them for good.

        Args:
            is_whole: no commit is under way; then they are synced and a recovery point is saved.
        """
        self._has_ended = True
        opened, aside = self.opened, self._aside
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.opened.log.keep_replaced_at_close()
            self._close_aside()
        if opened is not None and is_whole:
            with contextlib.suppress(OSError):
                if self.is_unsynced:
                    opened.log.sync()
                    self.commit(opened)
                # A recovery point that is still being saved would come too late.
                if self._is_saving_recovery_point or opened.log.synced != self._marked:
                    recovery_points.save_recovery_point(opened)
            with contextlib.suppress(OSError):
                # Another program may have replaced the file since the last check.
                opened.log.keep_replaced_at_close()
        self.abandon()

    async def _keep(self, aside: _Aside) -> None:
        """Keep the file that another program replaced, if it did, and remember the change."""
        log = aside.opened.log
        if aside.is_changed:
            # Another program's sync may have consumed the error of a failed writeback. This sync
            # shows it, and the opening then treats the file as in doubt.
            with contextlib.suppress(OSError):
                await self._services.read(log.check)
        try:
            is_kept = await self._services.read(log.keep_replaced)
        except FileNotFoundError:
            # The folder was removed, so that the file cannot be kept in it.
            self._close_aside()
            raise
        if is_kept or aside.is_changed:
            before = aside.opened.machine.head
            self._change = _Change(before, aside.since, is_kept=is_kept, known=log.confirmed_tail)
        self._close_aside()

    def _close_aside(self) -> None:
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.opened.log.close()

    def _completed(self, how: OpenOptions) -> OpenOptions:
        """Add to `how` what is known of how they were closed."""
        change = self._change
        if change is None:
            return msgspec.structs.replace(how, proven=self._proven)
        # A program that moved the file may be about to create another one, as kimi-cli does.
        has_settled = self._services.monotonic() - change.since >= limits.FOREIGN_SETTLE_S
        return msgspec.structs.replace(
            how, proven=self._proven, changed_while_open=True, create=has_settled
        )

    async def _note_change(self, change: _Change, opened: Opened) -> None:
        before, after = change.before, opened.machine.head
        entry = TimelineEntry(
            kind=timeline_entries.FOREIGN,
            generation=after.generation if opened.log.name == paths.CONTEXT else 0,
            at=self._services.wall(),
            why="another program changed the file",
            details={"before": str(before), "after": str(after), "kept": change.is_kept},
        )
        await self.note(opened, entry)
        self._services.log(
            "foreign_change", session=self._session, before=str(before), after=str(after)
        )

    async def _open(self, how: OpenOptions) -> None:
        try:
            async with self.timeline:
                opened, is_same = await self._services.read(lambda: self._opened(how))
        except OSError:
            if self._proven is None:
                # If the first sync failed, the page cache proves nothing of the file.
                self._proven = 0
            raise
        if self._has_ended:
            opened.log.close()
        self._check_ended()
        self.opened, self._proven = opened, None
        if opened.repaired:
            self._services.repairs.add(self._session, opened.repaired)
        self._marked = opened.log.synced
        self._feed.attach(opened.log, opened.machine.head, opened.incarnation, is_same=is_same)
        self._feed.load_state(opened.machine)

    def _opened(self, how: OpenOptions) -> tuple[Opened, bool]:
        """Open the files; False if they lost bytes that they held before. Blocks."""
        opened, change = self._opener(how), self._change
        try:
            return opened, change is None or opened.log.still_holds(change.known)
        except BaseException:
            opened.log.close()
            raise

    def _check_ended(self) -> None:
        if self._has_ended:
            raise ended(self._session)
