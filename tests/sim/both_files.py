"""A session's whole life as in `simulation`, its wire file's writer beside its context's."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sim import wire_verdict
from sim.clients import Follower, Order, Orders
from sim.simulation import Simulation, World
from steno_protocol import paths
from steno_protocol.commands import AppendWire, Mutation
from steno_protocol.errors import Busy
from steno_protocol.positions import Position
from stenod.feed.feed import Feed, Subscriber
from stenod.recovery import file_opening
from stenod.recovery.file_opening import Opened, Opening, OpenOptions
from stenod.writer.mailbox import Item
from stenod.writer.writer import Writer
from support import lines
from support.lines import SESSION
from support.simulated_disk import SimulatedDisk
from support.wire_writing import append_wire, event
from support.writing import PATH, Desk, Sent

WIRE_SHARE = 0.4
"""Of all orders; the rest are the context's."""


class BothDesk(Desk):
    """A desk with two writers: that of the context, and beside it `wire`.

    Attributes:
        wire: the writer of the wire file.
        wire_feed: who follows it.
        wire_answers: every answered command of the wire file, in the order of the answers.
    """

    def __init__(
        self,
        disk: SimulatedDisk,
        wire_answers: "list[WireSent]",
        *,
        shared: bool,
        wall_s: float,
        at_once: bool,
    ) -> None:
        super().__init__(disk, shared=shared, wall_s=wall_s, at_once=at_once)
        self.wire_answers = wire_answers
        self._is_shared = shared
        self.wire_feed = Feed(self.spawn, self._read, lambda: self.now_s)
        services = msgspec.structs.replace(self.services)
        self.wire = Writer(SESSION, self._open_wire, self.wire_feed, services, needs=self.writer)

    def send(
        self,
        command: Mutation,
        *records: bytes,
        deadline_s: float | None = None,
        size: int | None = None,
    ) -> Sent:
        """Put one command into the mailbox of the writer that it is for."""
        if not isinstance(command, AppendWire):
            return super().send(command, *records, deadline_s=deadline_s, size=size)
        sent = WireSent(command, self)
        self._submit(self.wire, Item(command, records, sent, sum(map(len, records)), deadline_s))
        return sent

    def _open_wire(self, how: OpenOptions) -> Opened:
        context = self.writer.opened
        if context is None:
            # As a daemon's: the context failed meanwhile, and is opened by the next command.
            raise Busy("the session is being opened again", session=SESSION)
        opening = Opening(
            session=SESSION,
            path=PATH,
            now=self.wall_s,
            incarnation="first",
            shared=self._is_shared,
            proven=how.proven,
            changed_while_open=how.changed_while_open,
            failed_syncs=self.failed_syncs,
        )
        return file_opening.open_wire(
            self.disk,
            self.disk.open_root(PATH),
            opening,
            stamp=context.machine.stamp,
            context_head=lambda: context_head(self.writer),
        )


def context_head(writer: Writer) -> Position:
    """What an event is joined to: where the context durably ends."""
    return writer.feed.head


class WireSent(Sent):
    """A command of the wire file; `heads` are where the context ended when it was sent, and then.

    The second one is counted in the bytes that a power cut could not take.
    """

    __slots__ = ("heads",)

    def __init__(self, command: Mutation, desk: BothDesk) -> None:
        super().__init__(command, desk)
        self.heads = (desk.feed.head, desk.feed.head)

    def _answered(self, answer: Any) -> None:
        super()._answered(answer)
        assert isinstance(self.desk, BothDesk)
        generation = self.desk.feed.head.generation
        size = len(self.durable_then)
        # What is read there counts, too: of a file that was never ours, a sync that failed at its
        # first opening can have lost lines of others, which are theirs to sync.
        read = self.desk.file()[:size] if size else b""
        count = max(self.durable_then.count(b"\n"), read.count(b"\n"))
        # Right behind a rename the file is that of the next generation already.
        most = max(self.desk.feed.head, Position(generation, count))
        self.heads = (self.heads[0], most)
        self.desk.wire_answers.append(self)


class BothOrders(Orders):
    """Draws the orders of both files."""

    def __init__(self, chance: random.Random, wall_s: Callable[[], float]) -> None:
        super().__init__(chance, wall_s)
        self._dice = chance
        self._clock = wall_s

    def draw(self, head: Position) -> Order:
        """One more order, of either file."""
        if self._dice.random() >= WIRE_SHARE:
            return super().draw(head)
        order = self._draw_events()
        self.all.append(order)
        return order

    def _draw_events(self) -> Order:
        dice, number = self._dice, len(self.all)
        made_ms = int(self._clock() * 1000)
        key = lines.uuid7(made_ms, number) if dice.random() < 0.7 else f"event-{number}"
        durability = dice.choice(["synced", "written"])
        by = dice.choice([None, "planner"])
        records = [event(part, f"{number} {part}" * part) for part in range(dice.randint(1, 4))]

        def make(repeat: bool) -> AppendWire:
            return append_wire(key, repeat=repeat, durability=durability, by=by)

        return Order(key, make, records, gives_up=dice.random() < 0.3)


class BothFiles(Simulation):
    """One seed with both files."""

    def __init__(self, seed: int, world: World) -> None:
        super().__init__(seed, world)
        self._orders: BothOrders = BothOrders(self._chance, self._client_wall_s)
        self._reader = Follower(Position(0, 0), from_start=True)
        self._wire_answers: list[WireSent] = []

    def _make_desk(self) -> Desk:
        return BothDesk(
            self._disk, self._wire_answers, wall_s=self._wall_s, shared=self._world.shared,
            at_once=self._world.at_once,
        )  # fmt: skip

    def _start(self, tasks: Any) -> Desk:
        desk = super()._start(tasks)
        assert isinstance(desk, BothDesk)
        desk.spawn(desk.wire.serve)
        return desk

    async def _step(self, desk: Desk) -> None:
        assert isinstance(desk, BothDesk)
        self._follow_wire(desk)
        await super()._step(desk)

    def _follow_wire(self, desk: BothDesk) -> None:
        reader = self._reader
        if reader.subscriber is None and desk.wire.opened is not None:
            desk.wire_feed.check(reader.position)
            reader.subscriber = Subscriber(reader.send, reader.position, 1 << 20)
            desk.wire_feed.add(reader.subscriber)

    async def _end(self, desk: Desk) -> None:
        assert isinstance(desk, BothDesk)
        if not self._disk.died and self._chance.random() < 0.5:
            desk.wire.mailbox.close()
            await desk.settle(60)
        await super()._end(desk)
        self._reader.subscriber = None
        desk.wire_feed.detach()
        desk.wire._files.opened = None

    def _evict(self) -> None:
        super()._evict()
        if f"{PATH}/{paths.WIRE}" in self._disk.tree():
            self._disk.evict(f"{PATH}/{paths.WIRE}")

    async def _catch_up(self, desk: Desk) -> None:
        await super()._catch_up(desk)
        assert isinstance(desk, BothDesk)
        await desk.wire.open()
        self._follow_wire(desk)
        await desk.wire.settle()
        await desk.settle(200)
        desk.wire.mailbox.close()
        assert self._reader.position == desk.wire_feed.head

    def _judge(self) -> None:
        orders: Sequence[Order] = self._orders.all
        self._orders.all = [each for each in orders if not isinstance(each.command, AppendWire)]
        super()._judge()
        wire = [each for each in orders if isinstance(each.command, AppendWire)]
        content = self._disk.tree().get(f"{PATH}/{paths.WIRE}", b"")
        found = content.splitlines(keepends=True)
        wire_verdict.check(found, wire, self._wire_answers, self._reader.seen)
