"""Carries a rewrite out: plan, intent, swap; then memory and those who follow learn of it."""

import anyio

from steno_protocol.replies import Ack
from stenod import rewriting
from stenod.core import timeline
from stenod.core.machine import Machine
from stenod.core.speculation import Rewrite
from stenod.feed import Feed
from stenod.recovery import Opened
from stenod.workshop import Workshop


class InDoubt(Exception):
    """The swap failed half-way: only opening the files again tells before from after."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Rewriter:
    """The rewrites of one session.

    Args:
        session: its id.
        workshop: what it works with.
        feed: who is told.
        timeline: held while a line of the session's timeline is written.
    """

    def __init__(self, session: str, workshop: Workshop, feed: Feed, timeline: anyio.Lock) -> None:
        self._session = session
        self._shop = workshop
        self._feed = feed
        self._timeline = timeline

    async def carry_out(self, opened: Opened, decision: Rewrite) -> Ack:
        """Replace the file of a session all of whose lines are durable; durable on return.

        Raises:
            StenoError: the command cannot be applied; nothing happened.
            OSError: the files could not be read; nothing happened.
            InDoubt: it may have happened.
        """
        log, machine, command = opened.log, opened.machine, decision.command
        # Only the context decides on a rewrite.
        assert isinstance(machine, Machine)
        chosen = await self._shop.read(lambda: rewriting.plan(log, machine, decision))
        entry = await self._shop.read(
            lambda: rewriting.intent(log, chosen, command, self._shop.wall())
        )
        try:
            async with self._timeline:
                rotated = await self._shop.read(
                    lambda: log.replace(chosen.pieces, timeline.encode(entry))
                )
        except OSError as error:
            raise InDoubt(error) from error
        applied = timeline.applied_of(entry, rotated)
        ack = machine.rewritten(command.key, applied, chosen.head, chosen.counters)
        self._feed.reset(chosen.head, chosen.kept, chosen.kind)
        self._shop.tell(
            "rewritten", session=self._session, kind=chosen.kind, head=ack.head, rotated=rotated
        )
        return ack
