"""The one writer of a session: it takes what waits, decides, writes once, syncs once, then answers.

File first, memory second, answer third. Decisions are `core.machine`'s, bytes are `store`'s; this
is the only place where the two meet, and the order of these steps is the product.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

import anyio
import anyio.lowlevel

from steno_protocol import limits
from steno_protocol.errors import StenoError, StorageFailed
from steno_protocol.replies import Ack, Happening
from stenod import lookup, recovery
from stenod.core import timeline
from stenod.core.keys import Applied
from stenod.core.machine import Machine
from stenod.core.speculation import Answered, Lines, Mailing, Rewrite, ack_of
from stenod.feed import Feed
from stenod.group import Answer, Group, answer_all, refuse_all
from stenod.mailbox import Item, Mailbox
from stenod.recovery import Opened, OpenHow
from stenod.refusals import Refusals, doubted
from stenod.rewriter import InDoubt, Rewriter
from stenod.store.jsonl import JsonlLog
from stenod.workshop import Workshop

_AS_IT_IS = OpenHow()


class Writer:
    """One session's writer task.

    Args:
        session: its id.
        opener: opens the session's files, or opens them again; blocks.
        feed: who is told of every commit.
        workshop: what it works with.
        needs: the writer whose files have to be open before its own.
    """

    def __init__(
        self,
        session: str,
        opener: Callable[[OpenHow], Opened],
        feed: Feed,
        workshop: Workshop,
        needs: "Writer | None" = None,
    ) -> None:
        self.session = session
        self.mailbox = Mailbox(session, workshop.budget)
        self.feed = feed
        self.used_at = workshop.monotonic()
        self._opener = opener
        self._needs = needs
        self._shop = workshop
        self._opened: Opened | None = None
        self._unsynced_since: float | None = None
        self._opening = anyio.Lock()
        self.is_serving = False
        self._has_ended = False
        self._unpublished: list[bytes] = []
        self._marked = 0
        self._proven: int | None = None
        self._refusals = Refusals(session, workshop.tell)
        # A line of the timeline is one write and one sync: two at once would cut each other.
        self._timeline = anyio.Lock()
        self._rewriter = Rewriter(session, workshop, feed, self._timeline)
        self.last_sync_at: float | None = None
        self._is_sync_asked = False
        self._settled = anyio.Event()

    @property
    def is_idle(self) -> bool:
        """True when nothing waits or is under way, nothing is unsynced and nobody follows."""
        is_busy = self.is_serving or self._opening.locked()
        at_rest = not is_busy and not self.mailbox and not self.feed
        return at_rest and self._unsynced_since is None

    @property
    def last_error(self) -> str | None:
        """What went wrong last, if anything ever did."""
        return self._refusals.last_error

    @property
    def opened(self) -> Opened | None:
        """The open session, or None while its files are closed."""
        return self._opened

    async def open(self, how: OpenHow = _AS_IT_IS) -> Opened:
        """Open the files if they are not open.

        Raises:
            ShuttingDown: the writer has ended; nobody would close the files again.
            StenoError, OSError: as `recovery.open_session`; the next command tries again.
        """
        self.used_at = self._shop.monotonic()
        if self._opened is not None:
            return self._opened
        async with self._opening:
            if self._needs is not None:
                await self._needs.open()
            if self._has_ended:
                raise self._refusals.ended()
            if self._opened is None:
                how = replace(how, proven=self._proven)
                async with self._timeline:
                    opened = await self._shop.read(lambda: self._opener(how))
                if self._has_ended:
                    opened.log.close()
                    raise self._refusals.ended()
                self._opened, self._proven = opened, None
                self._marked = opened.log.synced
                self.feed.attach(opened.log, opened.machine.head, opened.incarnation)
                if isinstance(opened.machine, Machine):
                    self.feed.begin_with(opened.machine)
            return self._opened

    async def settle(self) -> None:
        """Return when what was acknowledged as `written` is synced, or withdrawn: reads follow."""
        if self._unsynced_since is not None:
            await self.rest()

    async def rest(self) -> None:
        """Return at an instant when all lines that were decided are durable, or withdrawn."""
        while (opened := self._opened) is not None:
            if opened.machine.head == opened.machine.spoken_head:
                return
            self._is_sync_asked = True
            self.mailbox.nudge()
            await self._settled.wait()

    @property
    def _sync_after_s(self) -> float:
        """How long acknowledged bytes may stay unsynced; less while somebody follows."""
        return limits.LIVE_SYNC_S if self.feed else limits.WRITTEN_SYNC_S

    async def serve(self) -> None:
        """Write until the mailbox is closed and empty, then sync, mark and close the files."""
        try:
            while await self._wait():
                self.is_serving = True
                group = self.mailbox.take()
                self.used_at = self._shop.monotonic()
                if group:
                    await self._serve_group(group)
                await self._sync_when_due()
                self.is_serving = False
                if self.mailbox:
                    # A fast disk makes no task wait, and the others are to have their turn.
                    await anyio.lowlevel.checkpoint()
        finally:
            self._has_ended = True
            self._close()

    async def _wait(self) -> bool:
        """Wait for commands, or until unsynced bytes are due; False at the end."""
        if self._unsynced_since is not None:
            left = self._unsynced_since + self._sync_after_s - self._shop.monotonic()
            with anyio.move_on_after(max(0.0, left)):
                await self.mailbox.wait()
        else:
            await self.mailbox.wait()
        return bool(self.mailbox) or not self.mailbox.is_closed or self._unsynced_since is not None

    async def _serve_group(self, items: list[Item]) -> None:
        """Answer every command of a group, whatever happens."""
        group = Group(room=self._shop.room(self.session, items))
        for item in items:
            try:
                await self._serve_item(item, group)
            except StenoError as error:
                item.to.refuse(error)
            except OSError as error:
                item.to.refuse(self._refusals.storage_failed(error))
            except Exception as error:
                item.to.refuse(self._refusals.internal(error))
        await self._write(group)
        if self._opened is None and self.feed:
            # Those who follow are in the middle of the files, and nobody else may come for long.
            with contextlib.suppress(StenoError, OSError):
                await self.open()
        self._shop.flush()

    async def _serve_item(self, item: Item, group: Group) -> None:
        opened, applied = await self._find(item, group)
        decision = opened.machine.decide(item.command, item.records, applied)
        match decision:
            case Answered():
                group.repeat(item, decision.ack, opened.machine.keys)
            case Lines():
                group.data.append(decision.data)
                group.answers.append(Answer(item, decision.ack, is_new=True))
                group.synced |= item.command.durability == "synced"
            case Rewrite() | Mailing():
                group.synced = True
                await self._write(group)
                if self._opened is not None and self._opened is not opened:
                    # A foreign program came between: decide on what is there now.
                    await self._serve_item(item, group)
                    return
                await self._carry_out(item, decision)
            case _:
                assert_never(decision)

    async def _find(self, item: Item, group: Group) -> tuple[Opened, Applied | None]:
        """The open session, and what the files say of the command's key.

        Raises:
            OutcomeUnknown: the command may have been applied before, and nobody could look.
            StenoError: it was definitely not applied, nor before.
        """
        command = item.command
        try:
            if not command.repeat:
                self._check_deadline(item)
            opened = self._opened
            # Once per write is enough to look: the look after the write finds who came between.
            if opened is None or not group.data:
                opened = await self._open_unchanged(group)
            applied = opened.machine.applied(command.key)
            if applied is None and opened.machine.keys.must_be_looked_up(
                command.key, repeat=command.repeat
            ):
                applied = await self._look_up(opened, item)
        except OSError as error:
            raise doubted(self._refusals.storage_failed(error), command) from None
        except StenoError as error:
            raise doubted(error, command) from None
        # A repeat of what was applied in time gets its first answer, however late it comes.
        if applied is None:
            self._check_deadline(item)
            group.check_room(item)
        return opened, applied

    async def _open_unchanged(self, group: Group) -> Opened:
        """The open session; what a foreign program changed meanwhile is taken in first."""
        opened = await self.open()
        if not opened.log.is_foreign_changed():
            return opened
        # What was answered so far is about the file as it was.
        await self._write(group)
        if self._opened is not opened:
            return await self.open()
        return await self._take_in_foreign(opened)

    async def _take_in_foreign(self, opened: Opened) -> Opened:
        """A foreign program changed the file: keep what it replaced, then believe what is there."""
        before = opened.machine.head
        try:
            kept = await self._shop.read(opened.log.keep_replaced)
        finally:
            # Also when nothing could be kept, because its folder is gone: look again next time.
            self._abandon()
        again = await self.open(OpenHow(create=True))
        after = again.machine.head
        told = Happening(
            kind="foreign",
            generation=after.generation,
            at=self._shop.wall(),
            why="another program changed the file",
            details={"before": str(before), "after": str(after), "kept": kept},
        )
        await self._note(again, told)
        self._shop.tell(
            "foreign_change", session=self.session, before=str(before), after=str(after)
        )
        return again

    async def note(self, happening: Happening) -> None:
        """Tell the session's timeline of something; durable on return.

        Raises:
            StenoError, OSError: as `open`, or the disk refused; nothing was told.
        """
        await self._note(await self.open(), happening)

    async def _note(self, opened: Opened, happening: Happening) -> None:
        async with self._timeline:
            await self._shop.read(lambda: opened.log.tell(timeline.encode(happening)))

    async def _look_up(self, opened: Opened, item: Item) -> Applied | None:
        command, machine = item.command, opened.machine
        if machine.keys.needs_filter:
            machine.keys.use_filter(await self._shop.read(lambda: lookup.build_filter(opened.log)))
            if not machine.keys.must_be_looked_up(command.key, repeat=command.repeat):
                return None
        found = await self._shop.read(
            lambda: lookup.look_up(opened.log, opened.log.path, command.key)
        )
        if found is not None:
            machine.keys.add(command.key, found)
        return found

    async def _write(self, group: Group) -> None:
        """Write and sync a group, then answer it; afterwards the group is empty."""
        opened = self._opened
        if opened is None:
            return
        data, answers, synced = b"".join(group.data), group.answers, group.synced
        group.data, group.answers, group.synced = [], [], False
        has_work = data or (synced and self._unsynced_since is not None)
        if not has_work:
            answer_all(answers, synced=True)
            return
        start = opened.log.size
        try:
            await self._shop.commit(lambda: self._store(opened.log, data, synced=synced))
        except OSError as error:
            await self._fail(opened, answers, error)
            return
        self._shop.statistics.count_group(len(answers), data.count(b"\n"), len(data))
        if data and opened.log.may_be_foreign_changed():
            await self._recount(opened, start, data, answers)
            return
        await self._written(opened, data, answers, synced=synced)

    def _store(self, log: JsonlLog, data: bytes, *, synced: bool) -> None:
        if data:
            log.append(data)
        if synced:
            started = self._shop.monotonic()
            log.sync()
            self._count_sync(self._shop.monotonic() - started)

    async def _written(
        self, opened: Opened, data: bytes, answers: list[Answer], *, synced: bool
    ) -> None:
        self._unpublished.append(data)
        block = b""
        if synced:
            block = self._commit(opened)
        elif self._unsynced_since is None:
            self._unsynced_since = self._shop.monotonic()
        answer_all(answers, synced=synced)
        self._publish(opened, block)
        await self._save_mark_when_due(opened)

    def _commit(self, opened: Opened) -> bytes:
        """Memory second: what is on the disk becomes the state; returns what to publish."""
        block = b"".join(self._unpublished)
        self._forget_unsynced()
        opened.machine.commit()
        opened.machine.pass_by(opened.log.synced)
        return block

    def _publish(self, opened: Opened, block: bytes) -> None:
        """Those who follow come last: their events leave behind the answers."""
        if block:
            self.feed.publish(opened.machine.head, block)

    async def _recount(
        self, opened: Opened, start: int, data: bytes, answers: list[Answer]
    ) -> None:
        """A foreign program wrote between our look and our write: say where our lines really are.

        Ours are one piece, because they were one write; `start` is where the file ended when we
        looked. The files are opened again, which takes the foreign lines in and makes everything
        durable. Lines that the other program's half line swallowed were not applied.
        """
        generation = opened.log.generation
        try:
            again = await self._take_in_foreign(opened)
            size = again.log.size - start
            region = await self._shop.read(lambda: again.log.read(generation, start, size))
        except (OSError, StenoError) as error:
            refuse_all(answers, self._refusals.unknown(f"a foreign program interfered: {error}"))
            return
        found = region.find(data)
        is_there = found == 0 or (found > 0 and region[found - 1 : found] == b"\n")
        if not is_there or again.log.generation != generation:
            refuse_all(answers, self._refusals.unknown("a foreign program interfered"))
            return
        answer_all(answers, synced=True, shift=region.count(b"\n", 0, found))

    async def _fail(self, opened: Opened, answers: list[Answer], error: OSError) -> None:
        """A write or sync failed: nobody of the group is acknowledged, and the log is buried.

        What was acknowledged as `written` and not synced since is withdrawn with it.
        """
        try:
            await self._shop.read(opened.log.take_back)
            refusal: StenoError = self._refusals.storage_failed(error)
        except OSError as worse:
            refusal = self._refusals.unknown(f"the disk failed ({error}), and again ({worse})")
        opened.machine.roll_back()
        self._abandon(proven=opened.log.synced)
        for answer in answers:
            if answer.is_durable:
                answer.item.to.reply(answer.ack)
            else:
                refuse_all([answer], refusal)

    async def _carry_out(self, item: Item, decision: Rewrite | Mailing) -> None:
        opened = self._opened
        if opened is None:
            raise StorageFailed("what was ahead of this could not be stored", session=self.session)
        try:
            ack = await self._rewriter.carry_out(opened, decision)
        except InDoubt as doubt:
            ack = await self._settle(item, doubt.error)
        item.to.reply(ack)
        if self._opened is opened:
            await self._save_mark(opened)

    async def _settle(self, item: Item, error: OSError) -> Ack:
        """A rewrite failed half-way: open the files again, which tells before or after.

        Raises:
            StorageFailed: before; nothing happened.
            OutcomeUnknown: the files cannot be opened either.
        """
        self._abandon()
        key = item.command.key
        try:
            again = await self.open()
            applied = await self._shop.read(lambda: lookup.look_up(again.log, again.log.path, key))
        except (OSError, StenoError) as worse:
            raise self._refusals.unknown(
                f"the disk failed ({error}), and again ({worse})", key
            ) from None
        if applied is None:
            raise self._refusals.storage_failed(error)
        return ack_of(applied, duplicate=False)

    async def _sync_when_due(self) -> None:
        since, opened = self._unsynced_since, self._opened
        if since is None or opened is None:
            return
        is_due = self._shop.monotonic() - since >= self._sync_after_s
        if not (is_due or self._is_sync_asked or self.mailbox.is_closed):
            return
        try:
            await self._shop.commit(lambda: self._store(opened.log, b"", synced=True))
        except OSError as error:
            await self._fail(opened, [], error)
            return
        self._publish(opened, self._commit(opened))
        self._shop.flush()

    async def _save_mark_when_due(self, opened: Opened) -> None:
        if opened.log.synced - self._marked >= limits.MARK_BYTES:
            await self._save_mark(opened)

    async def _save_mark(self, opened: Opened) -> None:
        self._marked = opened.log.synced
        # The mark only makes the next open quicker: without it everything is still right.
        with contextlib.suppress(OSError):
            await self._shop.read(
                lambda: opened.log.save_mark(recovery.mark_of(opened.log, opened.machine))
            )

    def retire(self) -> None:
        """Close the files of an idle session now; the task ends when it next runs."""
        self._has_ended = True
        self.mailbox.close()
        self._close()

    def _close(self) -> None:
        opened = self._opened
        # In the middle of a group nobody knows how far it came: the next opening finds out.
        if opened is not None and not self.is_serving:
            with contextlib.suppress(OSError):
                if self._unsynced_since is not None:
                    opened.log.sync()
                    self._publish(opened, self._commit(opened))
                if opened.log.synced != self._marked:
                    opened.log.save_mark(recovery.mark_of(opened.log, opened.machine))
        self._abandon()

    def _abandon(self, proven: int | None = None) -> None:
        """Believe nothing of the open files any longer; the next command opens them again."""
        opened, self._opened = self._opened, None
        self._proven = proven
        self._forget_unsynced()
        if opened is not None:
            self.feed.detach()
            opened.log.close()

    def _forget_unsynced(self) -> None:
        self._unpublished.clear()
        self._unsynced_since = None
        if self._is_sync_asked:
            self._is_sync_asked = False
            self._settled.set()
            self._settled = anyio.Event()

    def _check_deadline(self, item: Item) -> None:
        if item.deadline_s is not None and self._shop.monotonic() > item.deadline_s:
            raise self._refusals.expired(self._shop.monotonic() - item.deadline_s)

    def _count_sync(self, took_s: float) -> None:
        self._shop.count_sync(self.session, took_s)
        self.last_sync_at = self._shop.wall()
