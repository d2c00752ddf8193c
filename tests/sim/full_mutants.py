"""Guards of events, compactions and D-Mails taken out: each has to make full seeds fail."""

from typing import Any

from sim.whole_mutants import Patch, WholeMutant
from steno_protocol.positions import Position
from steno_protocol.wire import metadata_line
from stenod.core import dmail
from stenod.core.machine import Machine
from stenod.core.speculation import Mailing
from stenod.core.wire_machine import WireMachine
from stenod.feed.feed import Feed
from stenod.recovery import file_opening
from stenod.rewrite import compaction
from stenod.sessions.session import _WireOpener
from stenod.store.failed_syncs import FailedSyncs
from stenod.writer.writer import Writer


def _spoken_head(self: _WireOpener) -> Position:
    opened = self.context.opened
    return self.context.feed.head if opened is None else opened.machine.tentative_head


def _lines_of_any_generation(log: Any, machine: Machine, command: Any) -> tuple[int, int]:
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    return min(cut.line, machine.head.line), min(at.line, machine.head.line)


def _mail_at_any_time(self: Machine, command: Any) -> Mailing:
    return Mailing(command)


def _with_a_header_each_time(self: WireMachine, command: Any, data: Any) -> Any:
    decision = _decide(self, command, data)
    header = metadata_line() if self.head.line == 0 else b""
    return type(decision)(header + decision.data, decision.ack)


def _never(*_: Any, **__: Any) -> bool:
    return False


def _always(*_: Any, **__: Any) -> bool:
    return True


def _none(*_: Any, **__: Any) -> int:
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _at_once(self: Writer) -> None:
    return None


_decide = WireMachine._decide

FULL_MUTANTS = {
    "an event that is joined to what is not durable": WholeMutant(
        [Patch(_WireOpener, "_context_head", _spoken_head)], 3
    ),
    "a header in each group until one is synced": WholeMutant(
        [Patch(WireMachine, "_decide", _with_a_header_each_time)]
    ),
    "a read that does not wait for what was written": WholeMutant(
        [Patch(Writer, "settle", _at_once)], 197
    ),
    "a compaction of a session that was rewritten since": WholeMutant(
        [Patch(compaction, "_lines_named", _lines_of_any_generation)]
    ),
    "a reserved id that the next daemon gives out": WholeMutant(
        [Patch(file_opening.timeline, "unreserved_id", _none)], 110
    ),
    "a second mail in place of the one that waits": WholeMutant(
        [Patch(Machine, "_send", _mail_at_any_time)], 11
    ),
    "a mail that outlives its checkpoint": WholeMutant([Patch(dmail, "outlives", _always)]),
    "a mail that nobody is told of when they come late": WholeMutant(
        [Patch(Feed, "load_state", _nothing)], 5
    ),
    "a file in doubt that is read as any other": WholeMutant(
        [Patch(FailedSyncs, "has", _never)], 7033
    ),
    "a follower with no room for live that is not tried again": WholeMutant(
        [Patch(Feed, "_stall", _nothing)], 5
    ),
}
"""Every guard that full seeds are known to miss."""
