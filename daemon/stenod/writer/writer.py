"""The one writer of a session's file: decide, write, sync, reply.

The order is the product: the file first, the replies second, the state in memory third, and nothing
else runs between the last two. `core` makes the decisions and `store` writes the bytes; they meet
here for each command. Rewrites are in `rewriter`, opening and foreign changes in `files`, and the
replies after a failed commit in `commit_failures`.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import assert_never

import anyio
import anyio.lowlevel

from steno_protocol import limits
from steno_protocol.commands import (
    Append,
    AppendStream,
    AppendWire,
    Checkpoint,
    Mutation,
    UpdateTokenCount,
)
from steno_protocol.errors import StenoError, StorageFailed
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.keys import Applied
from stenod.core.machine import Answered, Decision, Lines, Mailing, Rewrite
from stenod.feed.feed import Feed
from stenod.recovery import key_lookup
from stenod.recovery.opened import Opened, OpenOptions
from stenod.runtime.error_mapping import ErrorMapping, doubted
from stenod.runtime.quotas import Account
from stenod.writer.commit_failures import CommitFailures
from stenod.writer.files import OpenFiles
from stenod.writer.mailbox import Batch, Item, Mailbox, answer_all
from stenod.writer.rewriter import InDoubt, Rewriter
from stenod.writer.services import Services
from stenod.writer.storing import store_soon

_AS_IT_IS = OpenOptions()

TO_FOLLOW = OpenOptions(to_follow=True)
"""Opens a file for those who follow it, without creating it."""

_APPENDING = (Append, AppendWire, AppendStream, Checkpoint, UpdateTokenCount)
"""Commands that only append."""


class Writer:
    """The task that writes one of a session's files, its context, its wire file or a stream.

    Args:
        session: the session's id.
        opener: opens the file, or opens it again after a failure; blocks.
        feed: the followers, which receive every commit.
        services: clocks, threads, counters and the log.
        needs: the writer whose files must be open before these.

    Attributes:
        appended_records: lines that were stored and acknowledged since the writer began.
        appended_bytes: their bytes.
        appended_s: monotonic time at which the last of them were taken from the mailbox.
        last_author: the author of the last one.
    """

    def __init__(
        self,
        session: str,
        opener: Callable[[OpenOptions], Opened],
        feed: Feed,
        services: Services,
        needs: "Writer | None" = None,
    ) -> None:
        self.session = session
        self.mailbox = Mailbox(session, services.budget)
        self.feed = feed
        self.used_at = services.monotonic()
        self.is_serving = False
        self.last_sync_at: float | None = None
        self.appended_records = 0
        self.appended_bytes = 0
        self.appended_s = 0.0
        self.last_author: str | None = None
        self._services = services
        self._error_mapping = ErrorMapping(session, services.log)
        first, beside = (None, None) if needs is None else (needs.open, needs._files)
        self._files: OpenFiles = OpenFiles(session, opener, feed, services, first, beside)
        self._commit_failures = CommitFailures(self._files, self._error_mapping, services)
        self._rewriter = Rewriter(session, services, feed, self._files.timeline)
        self._deferred: Callable[[], Awaitable[None]] | None = None
        self._released: anyio.Event | None = None
        self._batch: Batch | None = None
        quotas = services.quotas
        self._account = Account(session) if quotas is None else quotas.account(session)
        self._is_account_short = False
        self._is_owner_proven = False

    @property
    def is_idle(self) -> bool:
        """True when no command waits or runs, all bytes are synced and there is no follower."""
        is_busy = self.is_serving or self._files.is_busy or self._files.is_unsynced
        return not (is_busy or self.mailbox or self.feed)

    @property
    def last_error(self) -> str | None:
        """The text of the last error, if there was one."""
        return self._error_mapping.last_error

    @property
    def opened(self) -> Opened | None:
        """The open session, or None while its files are closed."""
        return self._files.opened

    async def open(self, how: OpenOptions = _AS_IT_IS) -> Opened:
        """Open the files if they are not open.

        Raises:
            ShuttingDown: the writer has ended, and would not close the files again.
            StenoError, OSError: see `file_opening.open_session`; the next command tries again.
        """
        self.used_at = self._services.monotonic()
        return await self._files.open(how)

    async def note(self, entry: TimelineEntry) -> None:
        """Append an entry to the session's timeline; durable on return. Raises as `open` does."""
        await self._files.note(await self.open(), entry)

    async def settle(self) -> None:
        """Return when all lines acknowledged as `written` are synced or withdrawn; before reads."""
        if self._files.is_unsynced:
            await self.rest()
        else:
            await self.look()

    async def look(self) -> None:
        """Take in changes by other programs, unless a waiting command is about to do so."""
        if not (self.is_serving or self.mailbox):
            await self._files.look()
            await self._open_for_followers()

    async def rest(self) -> None:
        """Return at an instant at which every decided line is durable or withdrawn."""
        await self._files.rest(self.mailbox.nudge)

    @property
    def _sync_after_s(self) -> float:
        """Seconds that `written` bytes may stay unsynced; fewer while the file has followers."""
        return limits.LIVE_SYNC_S if self.feed else limits.WRITTEN_SYNC_S

    async def serve(self) -> None:
        """Serve commands until the mailbox is closed and empty, then sync and close the files."""
        try:
            while await self._wait():
                self.is_serving = True
                await self._serve_next()
                await self._open_for_followers()
                self._services.flush()
                await self._sync_when_due()
                if self.opened is not None and self._files.is_recovery_point_due:
                    await self._files.renew_recovery_point(self.opened)
                self.is_serving = False
                if self.mailbox:
                    # On a fast disk nothing above waits, and the other tasks need their turn.
                    await anyio.lowlevel.checkpoint()
        finally:
            self._close()

    async def _serve_next(self) -> None:
        """Do the deferred work, if there is any, or else serve the mailbox."""
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            await deferred()
        elif self.mailbox:
            await self._serve_rest(self._take())

    async def _wait(self) -> bool:
        """Wait for commands, or until unsynced bytes are due; False at the end."""
        since = self._files.unsynced.since
        if since is not None:
            left_s = since + self._sync_after_s - self._services.monotonic()
            with anyio.move_on_after(max(0.0, left_s)):
                await self.mailbox.wait()
        else:
            await self.mailbox.wait()
        while self._released is not None:
            await self._released.wait()
        has_work = bool(self.mailbox or self._deferred or self._files.is_unsynced)
        return has_work or not self.mailbox.is_closed

    # --- on the event loop, without a wait -------------------------------------------------------

    def begin(self) -> Batch | None:
        """Decide the waiting commands, if no step has to wait.

        Commands that have to wait for a file or a lookup are deferred to the writer's task.

        Returns:
            The batch, to be stored, then passed to `answer` and, if that returns True, to
            `conclude`. Nothing else may run in between, or else only between `hold` and `release`.
            None if there is no batch.
        """
        if self.is_serving:
            self.mailbox.wake()
            return None
        items = self._take()
        for number, item in enumerate(items):
            if not self._decide_now(item):
                self._defer(partial(self._serve_rest, items[number:]))
                return None
        return self._sealed()

    def hold(self) -> None:
        """Keep the task from serving while a batch is stored in a thread."""
        self.is_serving = True
        self._released = anyio.Event()

    def release(self) -> None:
        """End `hold`."""
        assert self._released is not None
        self.is_serving = False
        self._released.set()
        self._released = None

    def answer(self, batch: Batch) -> bool:
        """Reply to a batch that was stored; `conclude` must follow.

        Returns:
            False if the commit failed: its replies are deferred to the writer's task.
        """
        is_stored = _is_stored(batch)
        if is_stored:
            answer_all(batch.decided, synced=batch.synced)
        else:
            self._defer(partial(self._commit_failures.answer, batch))
        return is_stored

    def conclude(self, batch: Batch) -> None:
        """Commit the acknowledged state and publish it to followers."""
        unsynced = self._files.unsynced
        was_unsynced = unsynced.since is not None
        self._remember(batch)
        is_first_unsynced = unsynced.since is not None and not was_unsynced
        is_due = unsynced.is_asked or self._files.is_recovery_point_due
        if is_first_unsynced or is_due:
            self.mailbox.nudge()

    def give_up(self, error: Exception) -> None:
        """End the task after an internal error; the next command opens the files again."""

        async def end() -> None:
            raise error

        self._defer(end)

    def _defer(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have the task do this work before anything else."""
        self._deferred = work
        self.is_serving = True
        self.mailbox.nudge()

    def _take(self) -> list[Item]:
        items, size = self.mailbox.take()
        self.used_at = self._services.monotonic()
        account = self._account
        if self.used_at > account.until_s or account.left <= size:
            self._renew(account)
        self._is_account_short = account.left <= size
        if not self._is_account_short:
            account.left -= size
            account.taken += size
        return items

    def _renew(self, account: Account) -> None:
        if self._services.quotas is not None:
            self._services.quotas.renew(account)

    def _decide_now(self, item: Item) -> bool:
        """Decide on a command, or refuse it; False if that has to wait for a file or a lookup."""
        command = item.command
        if not (isinstance(command, _APPENDING) and self._files.are_ready):
            return False
        if command.key in self._services.unknown.keys:
            return False
        opened = self._files.opened
        assert opened is not None
        machine = opened.machine
        try:
            # One check per write is enough: the check after the write finds a foreign change in
            # between.
            is_first = self._batch is None or not self._batch.pieces
            if is_first and opened.log.may_be_foreign_changed():
                return False
            applied = machine.applied(command.key)
            if applied is not None:
                decision = machine.decide(command, item.records, applied)
            elif self._must_be_proven(opened, command) or self._must_be_looked_up(opened, command):
                return False
            else:
                self._check_new(item)
                decision = machine.decide_new(command, item.records)
            self._put(item, decision, opened)
        except Exception as error:
            item.to.refuse(self._error_mapping.of(error))
        return True

    # --- in the writer's task --------------------------------------------------------------------

    async def _serve_rest(self, items: Sequence[Item]) -> None:
        """Decide each command, then store the batch; every command gets a reply."""
        for item in items:
            if not self._decide_now(item):
                await self._serve_item(item)
        await self._write()

    async def _open_for_followers(self) -> None:
        """Reopen failed files for the followers."""
        if self.opened is None and self.feed:
            with contextlib.suppress(StenoError, OSError):
                await self.open(TO_FOLLOW)

    async def _serve_item(self, item: Item) -> None:
        try:
            await self._decide(item)
        except Exception as error:
            item.to.refuse(self._error_mapping.of(error))

    async def _decide(self, item: Item) -> None:
        opened, applied = await self._find(item)
        decision = opened.machine.decide(item.command, item.records, applied)
        match decision:
            case Answered() | Lines():
                self._put(item, decision, opened)
            case Rewrite() | Mailing():
                await self._write(synced=True)
                if self.opened is not None and self.opened is not opened:
                    # Another program changed the file meanwhile: decide on its present content.
                    await self._decide(item)
                    return
                await self._carry_out(item, decision)
            case _:
                assert_never(decision)

    def _put(self, item: Item, decision: Decision, opened: Opened) -> None:
        """Add a decided command to the batch: an append, or a repeat."""
        batch = self._batch
        if batch is None:
            batch = self._batch = Batch(opened, opened.log.size)
        match decision:
            case Lines():
                batch.add(item, decision)
                self._files.unsynced.is_asked |= item.is_awaited
            case Answered():
                batch.repeat(item, decision.ack)
            case Rewrite() | Mailing():
                raise AssertionError(f"{item.command} is no append")
            case _:
                assert_never(decision)

    async def _find(self, item: Item) -> tuple[Opened, Applied | None]:
        """Return the open session, and how the command's key was used before, if it was.

        Raises:
            OutcomeUnknown: the command may have been applied before, and the lookup failed.
            StenoError: the command was not applied, now or before.
        """
        command, unknown = item.command, self._services.unknown
        try:
            if not unknown.may_be_applied(command):
                self._check_deadline(item)
            opened = self.opened
            # One check per write is enough: the check after the write finds a foreign change in
            # between.
            if opened is None or self._batch is None or not self._batch.pieces:
                opened = await self._open_unchanged()
            applied = opened.machine.applied(command.key)
            if applied is None and self._must_be_looked_up(opened, command):
                applied = await self._look_up(opened, item)
            if applied is None and self._must_be_proven(opened, command):
                # Another owner may have applied it: only the present one may refuse it.
                await self._services.read(opened.log.confirm_owner)
                # The commands that are decided from here on without a wait were in hand before.
                self._is_owner_proven = True
        except OSError as error:
            failed = self._error_mapping.storage_failed(error)
            raise doubted(failed, command, unknown) from None
        except StenoError as error:
            raise doubted(error, command, unknown) from None
        unknown.settle(command.key)
        # A repeat of a command that was applied in time gets its first reply, however late it is.
        if applied is None:
            self._check_new(item)
        return opened, applied

    def _must_be_proven(self, opened: Opened, command: Mutation) -> bool:
        """Whether another owner may have applied a command that is not in the files."""
        is_doubtful = opened.log.has_rivals and self._services.unknown.may_be_applied(command)
        return is_doubtful and not self._is_owner_proven

    def _must_be_looked_up(self, opened: Opened, command: Mutation) -> bool:
        """Whether a command with a key that is not in the table may be in the files."""
        unknown = self._services.unknown
        is_repeat = command.repeat or command.key in unknown.keys or unknown.are_too_many
        return opened.machine.keys.must_be_looked_up(command.key, repeat=is_repeat)

    async def _open_unchanged(self) -> Opened:
        """Return the open session, with the changes of other programs taken in."""
        if not self._files.are_ready:
            self._is_owner_proven = False
        opened = await self.open()
        if not opened.log.is_foreign_changed():
            return opened
        # The commands that are decided so far refer to the file before the change.
        await self._write()
        if self.opened is not opened:
            return await self.open()
        return await self._files.take_in_foreign()

    async def _look_up(self, opened: Opened, item: Item) -> Applied | None:
        command, machine, log = item.command, opened.machine, opened.log
        self._is_owner_proven = False
        if machine.keys.needs_filter:
            if not machine.keys.knows_youngest:
                self._files.want_recovery_point()
            machine.keys.use_filter(await self._services.read(lambda: key_lookup.build_filter(log)))
            if not self._must_be_looked_up(opened, command):
                return None
        oldest = machine.keys.oldest_generation(command.key)
        found = await self._services.read(
            lambda: key_lookup.look_up(log, log.path, command.key, oldest)
        )
        if found is not None:
            machine.keys.add(command.key, found)
        return found

    # --- storing ---------------------------------------------------------------------------------

    async def _write(self, *, synced: bool = False) -> None:
        """Store the batch and reply to it; with `synced`, make every appended line durable."""
        batch = self._sealed(synced=synced)
        if batch is None:
            return
        await store_soon([batch], self._services)
        if _is_stored(batch):
            answer_all(batch.decided, synced=batch.synced)
            self._remember(batch)
        else:
            await self._commit_failures.answer(batch)

    def _sealed(self, *, synced: bool = False) -> Batch | None:
        """Close the batch for storing; None if there is nothing to write or to sync."""
        batch, self._batch = self._batch, None
        self._is_owner_proven = False
        opened, unsynced = self._files.opened, self._files.unsynced
        if batch is None:
            if not synced or opened is None:
                return None
            batch = Batch(opened, opened.log.size)
        batch.synced |= synced or unsynced.size >= limits.UNSYNCED_BYTES_MAX
        batch.data = b"".join(batch.pieces)
        if batch.data or (batch.synced and unsynced.since is not None):
            return batch
        answer_all(batch.decided, synced=True)
        return None

    def _remember(self, batch: Batch) -> None:
        """Update the state in memory, and publish to the followers, after the replies."""
        if batch.synced:
            self._files.commit(batch.opened, batch.data)
            if self._services.statistics.count_sync(batch.sync_s):
                self._note_slow_sync(batch.sync_s)
            self.last_sync_at = self._services.wall()
        else:
            self._files.unsynced.add(batch.data, self._services.monotonic)
        if batch.data:
            self._services.statistics.count_group(len(batch.decided), batch.lines, len(batch.data))
            self.appended_records += batch.lines
            self.appended_bytes += len(batch.data)
            self.appended_s = self.used_at
            self.last_author = batch.decided[-1].item.command.by

    def _note_slow_sync(self, took_s: float) -> None:
        statistics = self._services.statistics
        statistics.slow_syncs += 1
        statistics.slow_sync_at = self._services.wall()
        self._services.log(
            "slow_sync", session=self.session, took_s=took_s, expected_s=statistics.slow_sync_s
        )

    async def _carry_out(self, item: Item, decision: Rewrite | Mailing) -> None:
        opened = self.opened
        if opened is None:
            raise StorageFailed(
                "the commands before this one could not be stored, and nothing of it was: send it"
                " again",
                session=self.session,
            )
        if self._account.left <= opened.log.size:
            self._renew(self._account)
        try:
            ack = await self._rewriter.carry_out(opened, decision, self._account)
        except InDoubt as doubt:
            ack = await self._commit_failures.settle(item.command.key, doubt.error)
        item.acknowledge(ack)
        if self.opened is not opened:
            return
        if isinstance(decision, Rewrite):
            self._files.mark(opened)
        else:
            await self._files.save_recovery_point(opened)

    async def _sync_when_due(self) -> None:
        since, opened = self._files.unsynced.since, self.opened
        if since is None or opened is None:
            return
        is_due = self._services.monotonic() - since >= self._sync_after_s
        if is_due or self._files.unsynced.is_asked or self.mailbox.is_closed:
            await self._write(synced=True)
            self._services.flush()

    def retire(self) -> None:
        """Close the files of an idle session now; the task ends when it next runs."""
        self.mailbox.close()
        self._close()

    def _close(self) -> None:
        # The progress of an interrupted commit is unknown: the next opening determines it.
        self._files.end(is_whole=not self.is_serving)

    def _check_new(self, item: Item) -> None:
        """Refuse a new command that is past its deadline or does not fit into the quota."""
        if item.deadline_s is not None:
            self._check_deadline(item)
        if self._is_account_short:
            self._account.check(item.command, item.size)

    def _check_deadline(self, item: Item) -> None:
        if item.deadline_s is not None and self._services.monotonic() > item.deadline_s:
            raise self._error_mapping.expired(self._services.monotonic() - item.deadline_s)


def _is_stored(batch: Batch) -> bool:
    """True when the batch is in the file at the positions of its replies."""
    return batch.error is None and not (batch.data and batch.opened.log.may_be_foreign_changed())
