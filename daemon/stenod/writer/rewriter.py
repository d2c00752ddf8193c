"""Rewrites: plan, intent, swap, recovery point; then the state and the followers are updated.

The sending of a D-Mail is here too, because it is a line of the timeline, as an intent is.
"""

import contextlib
from typing import Literal, NamedTuple

import anyio

from steno_protocol import timeline_entries
from steno_protocol.commands import CompactCommit
from steno_protocol.errors import Conflict
from steno_protocol.events import DmailEvent
from steno_protocol.replies import Ack, Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.keys import Applied
from stenod.core.machine import Machine, Mailing, Rewrite, RewriteCommand
from stenod.core.seek_index import SeekIndex
from stenod.feed.feed import Feed
from stenod.recovery.opened import Opened
from stenod.recovery.recovery_points import recovery_point_of
from stenod.rewrite import delivery, planner
from stenod.rewrite.plan import Plan
from stenod.runtime.quotas import Account
from stenod.store.jsonl import JsonlLog, Replaced
from stenod.store.log import Copy
from stenod.store.usage import BLOCK_BYTES
from stenod.writer.services import Services


class InDoubt(Exception):
    """A rewrite failed half-way: its outcome is unknown until the files are opened again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Rewriter:
    """The rewrites of one session.

    Args:
        session: its id.
        services: clocks, threads, counters and the log.
        feed: the followers.
        timeline: held while a line of the session's timeline is written.
    """

    def __init__(self, session: str, services: Services, feed: Feed, timeline: anyio.Lock) -> None:
        self._session = session
        self._services = services
        self._feed = feed
        self._timeline = timeline

    async def carry_out(self, opened: Opened, decision: Rewrite | Mailing, account: Account) -> Ack:
        """Apply a decision; durable on return. Every line of the session must be durable before.

        Args:
            opened: the session's files.
            decision: what is applied.
            account: the room for the new file of a rewrite: the old one stays as a generation.

        Raises:
            StenoError: the command cannot be applied, or does not fit; nothing changed.
            OSError: the files could not be read; nothing changed.
            InDoubt: it may have been applied.
        """
        # The machine of a wire file makes none of these decisions.
        assert isinstance(opened.machine, Machine)
        if isinstance(decision, Mailing):
            return await self._send(opened.log, opened.machine, decision)
        return await self._rewrite(opened.log, opened.machine, decision, account)

    async def _rewrite(
        self, log: JsonlLog, machine: Machine, decision: Rewrite, account: Account
    ) -> Ack:
        command = decision.command
        self._check_incarnation(command, machine)
        async with self._timeline:
            done = await self._services.read(
                lambda: _carried_out(log, machine, decision, account, self._services.wall())
            )
        chosen = done.plan
        ack = machine.rewritten(command.key, done.applied, chosen.head, chosen.counters)
        machine.checkpoint_floor = chosen.checkpoint_floor
        machine.seek_index = done.seek_index
        self._feed.reset(chosen.head, chosen.kept, chosen.kind, chosen.checkpoint_floor)
        self._forget_mail(machine, chosen)
        self._services.statistics.rewrites[chosen.kind] += 1
        self._services.log(
            "rewritten",
            session=self._session,
            kind=chosen.kind,
            head=ack.head,
            rotated=done.applied.rotated,
        )
        return ack

    def _check_incarnation(self, command: RewriteCommand, machine: Machine) -> None:
        """Refuse a compaction that was begun before the session was deleted and created again.

        Positions do not show that, because they begin at 0:0 in each incarnation.
        """
        if not isinstance(command, CompactCommit):
            return
        if command.incarnation not in {None, self._feed.incarnation}:
            raise Conflict(
                f"the session was deleted and created again while the summary of {command.cut} was"
                f" being made: it is at {machine.head} now, begin the compaction again",
                session=self._session,
                head=str(machine.head),
            )

    async def _send(self, log: JsonlLog, machine: Machine, decision: Mailing) -> Ack:
        command = decision.command
        try:
            async with self._timeline:
                entry = await self._services.read(
                    lambda: delivery.send(log, machine, command, self._services.wall())
                )
        except OSError as error:
            raise InDoubt(error) from error
        replaced = machine.mail
        if replaced is not None:
            self._feed.mailed(_event(replaced, "expired"))
        mail = dmail.mail_of(entry)
        ack = machine.mailed(mail, dmail.applied_of(entry))
        self._feed.mailed(_event(mail, "sent"))
        return ack

    def _forget_mail(self, machine: Machine, chosen: Plan) -> None:
        """Publish the effect of a rewrite on the pending mail."""
        mail = machine.mail
        if mail is None:
            return
        if chosen.kind == timeline_entries.DELIVERED:
            self._feed.mailed(_event(mail, "delivered"))
        elif planner.expired_mail(machine, chosen) is not None:
            self._feed.mailed(_event(mail, "expired"))
        else:
            return
        machine.mail = None


class _Done(NamedTuple):
    """A rewrite that is durable."""

    plan: Plan
    applied: Applied
    seek_index: SeekIndex


def _carried_out(
    log: JsonlLog, machine: Machine, decision: Rewrite, account: Account, now: float
) -> _Done:
    """Plan a rewrite and make it true; blocks. The machine still has the state before it.

    Raises: as `Rewriter.carry_out`.
    """
    key = decision.command.key
    chosen = planner.plan(log, machine, decision)
    size = BLOCK_BYTES
    for piece in chosen.pieces:
        size += piece.size if isinstance(piece, Copy) else len(piece)
    if account.left <= size:
        account.check(decision.command, size)
    else:
        account.left -= size
        account.taken += size
    entry = planner.intent(log, chosen, decision.command, now)
    seek_index = machine.seek_index.up_to(_bytes_kept(log.generation, chosen))
    try:
        rotated = _swap(log, chosen, entry)
    except OSError as error:
        raise InDoubt(error) from error
    # A recovery point only makes the next opening quicker: its loss costs nothing else.
    with contextlib.suppress(OSError):
        youngest_ms = machine.keys.youngest_ms_with(key)
        point = recovery_point_of(log, chosen.head, chosen.counters, youngest_ms, seek_index)
        log.save_recovery_point(point, log.generation, log.synced)
    return _Done(chosen, timeline.applied_of(entry, rotated), seek_index)


def _swap(log: JsonlLog, chosen: Plan, entry: TimelineEntry) -> str:
    """Apply a plan; blocks. Returns the path of the generation that was left behind."""
    try:
        return log.replace(chosen.pieces, timeline.encode(entry))
    except Replaced:
        # The swap did not take place, though the present files may look as if it had.
        with contextlib.suppress(OSError):
            log.append_timeline(timeline.encode(timeline.voided(entry)))
        raise


def _bytes_kept(generation: int, chosen: Plan) -> int:
    """Size of the common beginning of the present generation and the planned one."""
    match chosen.pieces:
        case [Copy(generation=source, offset=0, size=size), *_] if source == generation:
            return size
        case _:
            return 0


def _event(mail: Mail, state: Literal["sent", "delivered", "expired"]) -> DmailEvent:
    return DmailEvent(state=state, id=mail.id, checkpoint_id=mail.checkpoint_id)
