"""Leases of running compactions: holders and times of expiry.

Leases coordinate compactors and are kept in memory only. A commit is correct without one, because
it is refused if the session was rewritten since.
"""

from weakref import WeakKeyDictionary

import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol.commands import CompactAbort, CompactBegin
from steno_protocol.errors import Busy, Conflict
from steno_protocol.positions import Position
from steno_protocol.replies import Compaction
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.compaction import Cut
from stenod.core.machine import Machine
from stenod.recovery.opened import Opened
from stenod.rewrite import compaction
from stenod.writer.services import Services
from stenod.writer.writer import Writer


class _Lease(msgspec.Struct):
    """The lease of one compaction; `answer` is None until its cut is chosen."""

    name: str
    by: str
    until: float
    answer: Compaction | None = None


class Compactions:
    """The compactions of one daemon.

    Args:
        services: clocks, and threads for work that reads files.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._leases: WeakKeyDictionary[Writer, _Lease] = WeakKeyDictionary()

    async def begin(self, writer: Writer, command: CompactBegin) -> Compaction:
        """Choose the lines to summarise, and grant the lease.

        Raises:
            Busy: another compactor has the lease.
            Conflict: the session is being rewritten repeatedly.
            StenoError, OSError: the session cannot be opened or read.
        """
        held = self._live(writer)
        if held is not None:
            return self._renewed(writer, held, command)
        lease = _Lease(command.lease, command.by or "a client without a name", self._until(command))
        self._leases[writer] = lease
        try:
            answer = lease.answer = await self._begin(writer, command)
        except BaseException:
            self._end(writer, lease)
            raise
        if answer.messages == 0:
            self._end(writer, lease)
        return answer

    def abort(self, writer: Writer, command: CompactAbort) -> None:
        """Release the lease of a compaction, if it is held."""
        held = self._leases.get(writer)
        if held is None or held.name != command.lease:
            return
        self._end(writer, held)
        opened, answer = writer.opened, held.answer
        if opened is not None and answer is not None and isinstance(opened.machine, Machine):
            opened.machine.release_checkpoint_id(answer.checkpoint_id)

    def _end(self, writer: Writer, lease: _Lease) -> None:
        """Release a lease, but not a later one of another client."""
        if self._leases.get(writer) is lease:
            del self._leases[writer]

    def _live(self, writer: Writer) -> _Lease | None:
        held = self._leases.get(writer)
        if held is None or held.until < self._services.monotonic():
            return None
        if held.answer is None:
            return held
        # A rewrite ends every compaction, its own commit first of all.
        generation = Position.parse(held.answer.at).generation
        return held if generation == writer.feed.head.generation else None

    def _renewed(self, writer: Writer, held: _Lease, command: CompactBegin) -> Compaction:
        if held.name != command.lease or held.answer is None:
            left_s = held.until - self._services.monotonic()
            raise Busy(
                f"{held.by} is compacting the session (lease {held.name}, {left_s:.0f} s left):"
                " wait for it, or until its lease expires",
                session=writer.session,
            )
        held.until = self._until(command)
        return held.answer

    def _until(self, command: CompactBegin) -> float:
        return self._services.monotonic() + command.lease_ms / 1000

    async def _begin(self, writer: Writer, command: CompactBegin) -> Compaction:
        for _ in range(limits.COMPACTION_ATTEMPTS_MAX):
            opened = await writer.open()
            await writer.rest()
            if writer.opened is opened:
                answer = await self._cut(writer, opened, command)
                if answer is not None:
                    return answer
        raise Conflict(
            "the session is being rewritten repeatedly: try again later",
            session=writer.session,
            head=str(writer.feed.head),
        )

    async def _cut(
        self, writer: Writer, opened: Opened, command: CompactBegin
    ) -> Compaction | None:
        """Choose the cut and record it; None if the session was rewritten meanwhile."""
        machine, head = opened.machine, opened.machine.head
        # Only a context is compacted.
        assert isinstance(machine, Machine)
        # At the same time as the head, so that every later checkpoint has a larger id.
        number = machine.reserve_checkpoint_id()
        cut, is_recorded = None, False
        try:
            cut = await self._choose(opened, head, command.preserve)
            if cut is not None:
                # On disk, so that the next daemon does not assign the id either.
                await writer.note(self._entry(head, number, command))
                is_recorded = True
        finally:
            if not is_recorded:
                machine.release_checkpoint_id(number)
        is_present = writer.opened is opened and machine.head.generation == head.generation
        if not is_present:
            return None
        answer = _answer(head, cut, number, command)
        return msgspec.structs.replace(answer, incarnation=opened.incarnation)

    async def _choose(self, opened: Opened, head: Position, preserve: int) -> Cut | None:
        view = opened.log.view(head.generation)
        try:
            return await self._services.read(
                lambda: compaction.choose_cut(view, preserve, head.line)
            )
        finally:
            view.release()

    def _entry(self, head: Position, number: int, command: CompactBegin) -> TimelineEntry:
        return TimelineEntry(
            kind=timeline_entries.COMPACTING,
            generation=head.generation,
            at=self._services.wall(),
            by=command.by,
            claim=command.claim,
            details={"checkpoint_id": number, "at": str(head)},
        )


def _answer(head: Position, cut: Cut | None, number: int, command: CompactBegin) -> Compaction:
    if cut is None:
        why = f"there is nothing before the last {command.preserve} user and assistant messages"
        if command.preserve <= 0:
            why = "a compaction that preserves nothing would remove the task from the context"
        return Compaction(at=str(head), cut=str(Position(head.generation, 0)), why=why)
    return Compaction(
        at=str(head),
        cut=str(Position(head.generation, cut.line)),
        messages=cut.messages,
        checkpoint_id=number,
        lease_ms=command.lease_ms,
    )
