"""Simulated agents that use all of a session: events, compactions, D-Mails, and looks at them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from sim.agents import SESSIONS, Agent, Drawing, Fate, Order, mutation_again, nothing
from steno._sansio.compaction import Begun, Compacting
from steno._sansio.pending import Pending
from steno._sansio.reading import PastReader
from steno._sansio.requests import mutation, result_of
from steno._sansio.wire_events import WireReader
from steno_protocol import commands, replies
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.replies import Ack
from support.lines import user, uuid7
from support.wire_writing import encode_event

_WEIGHTS = {
    "event": 16, "mail": 8, "deliver": 5, "fork": 2, "checkpoint": 6, "revert": 4, "restore": 2,
}  # fmt: skip

OF_ONE_FILE = 0.5
"""Share of the orders that `agents` draws by itself."""

LONGEVITY = 0.8
"""Share of the deletions that do not take place: most sessions are to have a life worth judging."""

WRITTEN = 0.3
"""Share of the appends that do not wait for a sync, beside those that `agents` draws so."""

TIMEOUT_S = 30.0
THINKING_S = [0.0, 0.0, 0.5, 5.0]
"""How long a model takes for a summary."""

LEASES_MS = [60_000, 60_000, 400]


@dataclass(eq=False)
class Summing:
    """A compaction from its beginning to its commit.

    Attributes:
        job: what the client sends and understands.
        thinks_s: how long the model takes.
        gives_up: it is aborted when the model is done.
        begun: what there is to do, once that is known.
        past: the lines to summarise.
        due: when the model is done.
    """

    job: Compacting
    number: int
    thinks_s: float
    gives_up: bool
    pending: Pending | None = None
    begun: Begun | None = None
    past: PastReader | None = None
    due: float = inf
    is_over: bool = False


@dataclass(eq=False)
class Look:
    """A question for the D-Mail that waits.

    Attributes:
        gone: mails that were known to wait no longer when it was asked.
        is_last: everything else had its answer before.
    """

    session: str
    pending: Pending
    gone: frozenset[str]
    is_last: bool = False


@dataclass(eq=False)
class Again:
    """One more copy of an order that was acknowledged long ago."""

    order: Order
    pending: Pending


class FullAgent(Agent):
    """An agent that uses both files of its sessions, and everything that can be done to them.

    Attributes:
        compactions: every one that it began.
        looks: every time that it asked for a mail.
        copies: what it repeated though it had an answer.
    """

    def __init__(self, name: str, chance: random.Random, ahead_s: float) -> None:
        super().__init__(name, chance, ahead_s)
        self.compactions: list[Summing] = []
        self.looks: list[Look] = []
        self.copies: list[Again] = []

    def step(self, now_s: float) -> None:
        """What its loop does: its compactions, too."""
        for summing in self.compactions:
            if not summing.is_over:
                self._go_on(summing, now_s)
        super().step(now_s)

    def known_gone(self) -> set[str]:
        """The mails that it knows to wait no longer."""
        return {
            order.command.mail_id
            for order in self.orders
            if order.fate is Fate.DONE and isinstance(order.command, commands.DeliverDmail)
        }

    def look(
        self, session: str, now_s: float, gone: frozenset[str], *, is_last: bool = False
    ) -> None:
        """Ask which mail waits."""
        asked = commands.PendingDmail(session=session)
        pending = self.exchange.submit(asked, (), nothing, self.now(now_s), TIMEOUT_S)
        self.looks.append(Look(session, pending, gone, is_last))

    def repeat(self, now_s: float) -> None:
        """Send something once more that was acknowledged."""
        done = [
            order
            for order in self.orders
            if order.fate is Fate.DONE and isinstance(order.command, commands.Mutation)
        ]
        if done:
            order = self._chance.choice(done)
            assert isinstance(order.command, commands.Mutation)
            command = mutation_again(order.command)
            pending = self.exchange.submit(
                command, order.records, nothing, self.now(now_s), TIMEOUT_S
            )
            self.copies.append(Again(order, pending))

    def read_file(self, session: str, done: Sequence[Order], *, is_wire: bool) -> None:
        """Begin to read one of a session's files."""
        self.read(session)
        reading = self.readings[-1]
        reading.done_before = done
        if is_wire:
            reading.reader = WireReader(session, None)

    # --- compactions -----------------------------------------------------------------------------

    def compact(self, session: str, number: int, wall_s: float, now_s: float) -> None:
        """Begin a compaction."""
        chance = self._chance
        job = Compacting(
            session,
            self.name,
            uuid7(int(wall_s * 1000), number),
            chance.randint(1, 3),
            chance.choice(LEASES_MS),
        )
        summing = Summing(job, number, chance.choice(THINKING_S), chance.random() < 0.1)
        summing.pending = self._ask(job.begin, now_s)
        self.compactions.append(summing)

    def _go_on(self, summing: Summing, now_s: float) -> None:
        if summing.pending is not None:
            if not summing.pending.is_done:
                return
            self._take(summing, summing.pending, now_s)
        if summing.is_over or summing.past is None:
            return
        command = summing.past.reader.next_command()
        if command is not None:
            summing.pending = self._ask(command, now_s)
        elif now_s >= summing.due:
            self._commit(summing, now_s)

    def _take(self, summing: Summing, pending: Pending, now_s: float) -> None:
        summing.pending = None
        try:
            reply, block = result_of(pending, replies.Reply)
        except StenoError:
            summing.is_over = True
            return
        if summing.past is not None:
            assert isinstance(reply, replies.Lines)
            summing.past.reader.take(reply, block)
            summing.past.absorb()
            return
        assert isinstance(reply, replies.Compaction)
        summing.begun = summing.job.begun(reply)
        summing.is_over = summing.begun is None
        if summing.begun is not None:
            summing.past = summing.begun.past()
            summing.due = now_s + summing.thinks_s

    def _commit(self, summing: Summing, now_s: float) -> None:
        summing.is_over = True
        assert summing.begun is not None
        assert summing.past is not None
        if summing.gives_up or not _has_messages(summing.past):
            self._ask(summing.job.abort, now_s)
            return
        session, key = summing.job.begin.session, summing.job.key
        fields = summing.begun.commit_fields("", None)
        command = mutation(
            commands.CompactCommit, session, self.name, key, None, "synced", **fields
        )
        order = Order(command, [user(f"summary {summing.number}")], key, session)
        self.orders.append(order)
        self.give(order, now_s, TIMEOUT_S)

    def _ask(self, command: commands.Command, now_s: float) -> Pending:
        return self.exchange.submit(command, (), nothing, self.now(now_s), TIMEOUT_S)


def _has_messages(past: PastReader) -> bool:
    """False for a session that was deleted and made again while it was read, and has none yet."""
    try:
        return bool(past.state().history)
    except NotFound:
        return False


class FullDrawing(Drawing):
    """Draws orders for both files, and for D-Mails."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._mails: list[Order] = []

    def next_number(self) -> int:
        """A number that nothing else has."""
        self._number += 1
        return self._number

    def draw(self, agent: Agent, wall_s: float) -> Order:
        """A change of some session, with a key that is made now."""
        if self._chance.random() < OF_ONE_FILE:
            order = super().draw(agent, wall_s)
            while isinstance(order.command, commands.Delete) and self._chance.random() < LONGEVITY:
                order = super().draw(agent, wall_s)
        else:
            number, session = self.next_number(), self._chance.choice(SESSIONS)
            order = self._draw_more(agent, number, session, uuid7(int(wall_s * 1000), number))
        is_append = isinstance(order.command, commands.Append)
        if is_append and self._chance.random() < WRITTEN:
            order.command = replace(order.command, durability="written")
        order.after = _done_beside(order, agent)
        return order

    def _draw_more(self, agent: Agent, number: int, session: str, key: str) -> Order:
        chance, by = self._chance, agent.name
        kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if kind == "deliver" and not self._mails_done(session):
            kind = "mail"
        if kind in ("mail", "revert") and not _has_checkpoint(agent, session):
            kind = "checkpoint"
        fields = {"session": session, "key": key, "by": by}
        command: commands.Command
        records: list[bytes] = []
        match kind:
            case "event":
                return self._draw_events(by, number, session, key)
            case "mail":
                command = self._mail(fields, number)
            case "deliver":
                shown = chance.random() < 0.5
                mail = self._mail_of(session)
                command = commands.DeliverDmail(**fields, mail_id=mail, add_user_message=shown)
            case "revert":
                command = commands.RevertTo(**fields, checkpoint_id=chance.choice([0, 0, 1, 2]))
            case "restore":
                command = commands.RestoreGeneration(**fields, generation=chance.choice([0, 0, 1]))
            case "fork":
                cut = chance.choice([{"checkpoint_id": chance.randint(0, 2)}, {"undo": 1}])
                command = commands.Fork(**fields, new_session=f"fork-{number}", **cut)
            case _:
                command = commands.Checkpoint(**fields, add_user_message=chance.random() < 0.5)
        order = Order(command, records, key, session)
        if kind == "mail":
            self._mails.append(order)
        return order

    def _draw_events(self, by: str, number: int, session: str, key: str) -> Order:
        chance = self._chance
        durability = "synced" if chance.random() < 0.3 else "written"
        expect = f"0:{chance.randint(0, 6)}" if chance.random() < 0.05 else None
        command = commands.AppendWire(
            session=session, key=key, by=by, durability=durability, expect=expect
        )
        count = chance.choice([1, 1, 2, 4])
        kinds = [chance.choice(["TurnBegin", "TextPart"]) for _ in range(count)]
        records = [
            encode_event(kind, {"n": f"{number} {part}" * (part + 1)}, 1.5)
            for part, kind in enumerate(kinds)
        ]
        return Order(command, records, key, session)

    def _mail(self, fields: dict[str, str], number: int) -> commands.SendDmail:
        chance = self._chance
        replaces = self._mail_of(fields["session"]) if chance.random() < 0.2 else None
        return commands.SendDmail(
            **fields,
            checkpoint_id=chance.choice([0, 0, 0, 1, 2]),
            message=f"turn back {number}",
            replaces=replaces,
        )

    def _mail_of(self, session: str) -> str:
        """The id of a mail to a session, the latest that is known to be there most of the time."""
        known = self._mails_done(session)
        if not known or self._chance.random() < 0.05:
            return "nobody"
        return known[-1] if self._chance.random() < 0.8 else self._chance.choice(known)

    def _mails_done(self, session: str) -> list[str]:
        mails = [order for order in self._mails if order.session == session]
        return [order.key for order in mails if order.fate is Fate.DONE]


def _has_checkpoint(agent: Agent, session: str) -> bool:
    """Whether an agent ever set a checkpoint in a session."""
    return any(
        isinstance(order.command, commands.Checkpoint) and order.session == session
        for order in agent.orders
        if order.fate is Fate.DONE
    )


def _done_beside(order: Order, agent: Agent) -> Order | None:
    """What the agent had last done in the other file, durably and as it knows."""
    is_wire = isinstance(order.command, commands.AppendWire)
    for other in reversed(agent.orders):
        is_beside = isinstance(other.command, commands.AppendWire) is not is_wire
        if is_beside and other.session == order.session and _is_durable(other):
            return other
    return None


def _is_durable(order: Order) -> bool:
    ack = order.answers[0] if order.answers else None
    return isinstance(ack, Ack) and ack.durability == "synced"
