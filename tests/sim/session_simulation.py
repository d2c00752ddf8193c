"""The simulation of one session's writers: orders, followers, faults, deaths, foreign lines."""

import contextlib
import math
import random
from functools import partial
from unittest.mock import patch

import anyio
from anyio.abc import TaskGroup

from sim.drawing import WriterDrawing
from sim.faults import Fault, inject
from sim.files import Folder, read_folder
from sim.followers import Follower
from sim.orders import REWRITES, Fate, Order, done, lose_answers, waiting
from sim.simulation import Simulation
from sim.verdicts.folders import check_folder, check_stream, check_wire
from sim.verdicts.orders import Tree, check_order, tree_of
from sim.verdicts.views import check_follower, check_mail_event, check_wire_answers
from sim.worlds import World
from sim.writers import STREAM, WireSent, Writers
from steno_protocol import limits, paths
from steno_protocol.commands import CompactAbort
from steno_protocol.errors import Conflict, StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from stenod.core import garbage, timeline
from stenod.core.garbage import Past
from stenod.recovery import cold_streams, crash_recovery
from stenod.recovery.cold_streams import compress_stream, compressible_streams
from stenod.store import compressing
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing
from stenod.store.names import past_generations, read_file
from support.lines import SESSION, compact_begin, foreign, user
from support.simulated_disk import MOMENTS, Death, PowerCut, SimulatedDisk, Survival
from support.stored_session import StoredSession
from support.writing import PATH, Sent

ANSWER_ROUNDS_MAX = 500
"""Attempts of a client in which each command has its answer, once nothing fails any more."""

STEPS = 14
TRIES_MAX = 80
DEATH_SHARES = (0.45, 0.7)
CLOCK_STEPS_S = [0.0, 0.001, -3600.0, 3600.0, -1e8, 1e8]

CONTEXT = f"{PATH}/{paths.CONTEXT}"
WIRE = f"{PATH}/{paths.WIRE}"
TIMELINE = f"{PATH}/{paths.TIMELINE}"

FAULTS = [Fault.CALL, Fault.CALL, Fault.SYNC, Fault.LOOK, Fault.WRITE, Fault.SPACE]


class SessionSimulation(Simulation):
    """One seed of the worlds `context`, `files` and `streams`."""

    lives = 4
    keys_max = 4
    again_below, durable_below = 0.5, 0.6

    def __init__(self, seed: int, world: World, disk: SimulatedDisk | None = None) -> None:
        super().__init__(seed, world, disk)
        self.disk.foreign.make_folder(PATH)
        self.disk.sync_all()
        # Generators of their own, so that no other draw depends on them.
        self._clocks = random.Random(seed)
        self._storms = random.Random(seed)
        self._misuses = random.Random(seed)
        self._compressions = random.Random(seed)
        self._skew_s = 0.0
        self._drawing = WriterDrawing(self._chance, self._client_wall_s)
        self._misused: list[tuple[Order, Sent]] = []
        self._followers: list[Follower] = []
        self._wire_follower = Follower(Position(0, 0), from_start=True)
        self._stream_follower = Follower(Position(0, 0), from_start=True)
        self._stream_head = Position(0, 0)
        self._wire_answers: list[WireSent] = []
        self._head = Position(0, 0)
        self._half_line = b""

    @property
    def orders(self) -> list[Order]:
        """Everything that clients asked for."""
        return self._drawing.orders

    # --- lives -----------------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[Writers, int]:
        if self.world.compresses and self.world.has_stream:
            self._compress_stream()
        steps = self._chance.randint(3, STEPS)
        desk = self._start(tasks)
        call, moment = self._chance.randint(0, 45), self._chance.choice(MOMENTS)
        self._plan_death(self._chance.random(), call, DEATH_SHARES, moment)
        return desk, steps

    def _start(self, tasks: TaskGroup) -> Writers:
        self._tick()
        return self._make_writers(tasks, at_once=self.world.at_once)

    def _make_writers(self, tasks: TaskGroup, *, at_once: bool) -> Writers:
        shared = self.world.shared
        desk = Writers(self.disk, tasks, shared=shared, wall_s=self.wall_s, at_once=at_once)
        self._serve(desk)
        return desk

    def _serve(self, desk: Writers) -> None:
        """Start the tasks of the writers."""
        desk.wire_answers = self._wire_answers
        desk.spawn(desk.writer.serve)
        desk.spawn(desk.open_context)
        if self.world.has_wire:
            desk.spawn(desk.wire.serve)
        if self.world.has_stream:
            desk.spawn(desk.stream.serve)

    def _tick(self) -> None:
        self.wall_s += self._chance.choice([0.0, 0.001, 1.0, 10.0])
        self._set_clocks()
        self.disk.now_s = self.wall_s

    def _set_clocks(self) -> None:
        """Set the wall clocks; deadlines and leases do not depend on them."""
        if self.world.clock_jumps:
            self.wall_s = max(1.0, self.wall_s + self._clocks.choice(CLOCK_STEPS_S))
            self._skew_s = self._clocks.choice([0.0, 0.0, *CLOCK_STEPS_S])

    def _client_wall_s(self) -> float:
        return max(1.0, self.wall_s + self._skew_s)

    async def _drain(self, daemon: Writers) -> None:
        writers = [daemon.wire] if self.world.has_wire else []
        writers += [daemon.stream] if self.world.has_stream else []
        writers.append(daemon.writer)
        for writer in writers:
            if not self.disk.died and self._chance.random() < 0.5:
                writer.mailbox.close()
                await daemon.settle(60)

    def _kill(self, daemon: Writers) -> None:
        lose_answers(self.orders)
        for follower in (*self._followers, self._wire_follower, self._stream_follower):
            follower.subscriber = None
        survival = None
        if not self.disk.died:
            # No task that still runs may touch the disk of the next life.
            self.disk._death = PowerCut
            survival = None if self.world.power_cuts else Survival.KEPT
        self.disk.restart(survival)
        daemon.end()
        self.disk.heal()
        if self._chance.random() < 0.3:
            self._evict()

    def _evict(self) -> None:
        """Memory gets short: the disk forgets what it can read again."""
        for path in (CONTEXT, TIMELINE, WIRE, f"{PATH}/{STREAM}"):
            if self.disk.has_file(path):
                self.disk.evict(path)

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: Writers) -> None:
        chance, world = self._chance, self.world
        if world.has_wire:
            self._follow_wire(daemon)
        if world.has_stream:
            self._follow_stream(daemon)
            self._stream_head = max(self._stream_head, daemon.stream_feed.head)
        self._head = max(self._head, daemon.feed.head)
        self._set_clocks()
        daemon.wall_s = self.disk.now_s = self.wall_s
        for _ in range(chance.randint(1, 4)):
            self._send(daemon, self._choose_order())
        if self._misuses.random() < 0.2:
            self._misuse_keys(daemon, 1)
        if chance.random() < 0.3:
            self._compact(daemon)
        if world.compresses and self._compressions.random() < 0.7:
            daemon.spawn(partial(self._compress, daemon.failed_syncs))
        if chance.random() < 0.3:
            self._follow(daemon)
        if chance.random() < 0.3:
            self._grant(daemon)
        if world.faults and chance.random() < 0.15:
            names = [paths.CONTEXT, STREAM] if world.has_stream else [paths.CONTEXT]
            inject(self.disk, chance, FAULTS, names)
        if world.storms and self._storms.random() < 0.2:
            self._begin_storm()
        if world.foreign_lines and chance.random() < 0.2:
            self._write_foreign()
        await daemon.settle(chance.choice([0, 1, 3, 12, 40]))
        self._take_answers()

    def _take_answers(self) -> None:
        for order in self.orders:
            order.take_answers()
        self._check_misuses()

    def _choose_order(self) -> Order:
        """An order of unknown outcome, a durable one, or a new one."""
        drawn, chance = self._chance.random(), self._chance
        again, durable = waiting(self.orders), done(self.orders)
        if again and drawn < self.again_below:
            return chance.choice(again)
        if durable and drawn < self.durable_below:
            return chance.choice(durable)
        return self._draw_order()

    def _draw_order(self) -> Order:
        stream_head = self._stream_head if self.world.has_stream else None
        return self._drawing.draw(self._head, has_wire=self.world.has_wire, stream_head=stream_head)

    def _send(self, desk: Writers, order: Order) -> None:
        command = order.next_copy()
        order.tries += 1
        assert order.tries < TRIES_MAX, f"{order.key} was sent {order.tries} times in vain"
        late = desk.now_s - 1 if self._chance.random() < 0.03 else None
        with contextlib.suppress(StenoError):
            order.copies.append(desk.send(command, *order.records, deadline_s=late))
            if self._chance.random() < 0.08:
                order.copies.append(desk.send(order.repeated(repeat=True), *order.records))

    def _misuse_keys(self, desk: Writers, count: int) -> None:
        """Send keys of durable orders again, with records that they did not come with."""
        durable = [
            order
            for order in self.orders
            if order.fate is Fate.DONE and order.records and not isinstance(order.command, REWRITES)
        ]
        for order in self._misuses.sample(durable, min(count, len(durable))):
            other = [*order.records[1:], user("other contents")]
            with contextlib.suppress(StenoError):
                self._misused.append((order, desk.send(order.repeated(repeat=True), *other)))

    def _check_misuses(self) -> None:
        """None was taken for a repeat; `_judge` checks that no file contains its records."""
        for order, sent in self._misused:
            assert not isinstance(sent.answer, Ack), f"{order.key} answered other contents"
            if isinstance(sent.answer, Conflict):
                assert f"at {order.acks[0].first}" in str(sent.answer), f"{sent.answer}"

    def _compact(self, desk: Writers) -> None:
        """Begin a compaction, or give one up; its commit comes later and without the lease."""
        lease = self._chance.choice(["first", "second"])
        if self._chance.random() < 0.2:
            desk.compactions.abort(desk.writer, CompactAbort(session=SESSION, lease=lease))
            return
        command = compact_begin(lease, preserve=self._chance.randint(1, 3))

        async def begin() -> None:
            with contextlib.suppress(StenoError, OSError):
                answer = await desk.compactions.begin(desk.writer, command)
                assert bool(answer.messages) != bool(answer.why)
                if answer.messages:
                    self._drawing.begun.append(answer)

        desk.spawn(begin)

    async def _compress(self, failed_syncs: FailedSyncs) -> None:
        """Compress the past generations that a rule may name, large or small."""
        with (
            contextlib.suppress(OSError),
            patch.object(compressing, "BLOCK_BYTES", 1),
            closing(self.disk, self.disk.open_root(PATH)) as folder,
        ):
            entries = timeline.decode(read_file(self.disk, folder, paths.TIMELINE))
            present = crash_recovery.present_generation(self.disk, folder)
            known = past_generations(self.disk, folder)
            past = [Past(each, 0, 0.0) for each in known if each < present]
            for each in garbage.compressible(past, entries, math.inf):
                name = paths.generation_file(each.generation + 1)
                found = self.disk.stat_name(folder, name)
                if found is not None and not failed_syncs.has(found):
                    compressing.compress_generation(self.disk, folder, each.generation)

    def _compress_stream(self) -> None:
        """Compress the closed stream, as often as not with a death meanwhile."""
        chance = self._compressions
        call = chance.randint(0, 9)
        self._plan_death(chance.random(), call, DEATH_SHARES, chance.choice(MOMENTS))
        with (
            contextlib.suppress(OSError, Death),
            patch.object(compressing, "BLOCK_BYTES", 1),
            patch.object(cold_streams, "BLOCK_BYTES", 1),
            closing(self.disk, self.disk.open_root(PATH)) as folder,
        ):
            failed = FailedSyncs()
            for name, _ in compressible_streams(self.disk, folder, math.inf, failed):
                compress_stream(self.disk, folder, name)
        if self.disk.died:
            self.disk.restart(None if self.world.power_cuts else Survival.KEPT)
        self.disk.heal()

    def _follow(self, desk: Writers) -> None:
        if desk.writer.opened is None:
            return
        idle = [follower for follower in self._followers if follower.subscriber is None]
        if idle:
            follower = self._chance.choice(idle)
        elif len(self._followers) < 3:
            from_start = self._chance.random() < 0.7
            position = Position(0, 0) if from_start else desk.feed.head
            follower = Follower(position, from_start=from_start)
            self._followers.append(follower)
        else:
            return
        follower.subscribe(desk.feed, self._chance.choice([1100, 5000, 100_000]))

    def _follow_wire(self, desk: Writers) -> None:
        if self._wire_follower.subscriber is None and desk.wire.opened is not None:
            self._wire_follower.subscribe(desk.wire_feed, 1 << 20)

    def _follow_stream(self, desk: Writers) -> None:
        if self._stream_follower.subscriber is None and desk.stream.opened is not None:
            self._stream_follower.subscribe(desk.stream_feed, 1 << 20)

    def _grant(self, desk: Writers) -> None:
        for follower in self._followers:
            if follower.subscriber is not None:
                desk.feed.grant(follower.subscriber, self._chance.choice([100, 3000, 50_000]))

    def _begin_storm(self) -> None:
        chance = self._storms
        self.disk.storm(chance, chance.choice([0.1, 0.3, 0.7]), chance.randint(3, 40))
        if chance.random() < 0.3:
            self._evict()

    def _write_foreign(self) -> None:
        if not self.disk.has_file(CONTEXT):
            return
        line = self._half_line or foreign("theirs")
        cut = self._chance.randint(1, len(line)) if self.world.shared else len(line)
        self._half_line = line[cut:]
        self.disk.foreign.append(CONTEXT, line[:cut])

    # --- the end ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        # Long enough for a half line to count as abandoned.
        self.wall_s += 10 * limits.FOREIGN_SETTLE_S
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            await desk.settle(20)
            self._follow(desk)
            await self._answer_all(desk)
            for order in self.orders:
                if self._chance.random() < 0.3 and order.fate is Fate.DONE:
                    self._send(desk, order)
            await desk.settle(60)
            self._take_answers()
            await self._misuse_all(desk)
            await self._catch_up(desk)
            if self.world.has_wire:
                await self._catch_up_with_events(desk)
            if self.world.has_stream:
                await self._catch_up_with_stream(desk)
            desk.writer.mailbox.close()
            await desk.settle(20)
            tasks.cancel_scope.cancel()
        self.disk.crash(Survival.LOST if self.world.power_cuts else Survival.KEPT)

    async def _answer_all(self, desk: Writers) -> None:
        """Send every order of unknown outcome until none is left; `_judge` names one that is."""
        for _ in range(ANSWER_ROUNDS_MAX):
            if all(order.fate is not Fate.OPEN for order in self.orders):
                return
            again = waiting(self.orders)
            for order in again:
                self._send(desk, order)
            await desk.settle(20 + 6 * len(again))
            for order in self.orders:
                order.take_answers()

    async def _misuse_all(self, desk: Writers) -> None:
        self._misused.clear()
        self._misuse_keys(desk, len(self.orders))
        await desk.settle(60)
        self._check_misuses()
        wrong = [sent.answer for _, sent in self._misused]
        assert all(isinstance(answer, Conflict) for answer in wrong), f"{wrong}"

    async def _catch_up(self, desk: Writers) -> None:
        for follower in self._followers:
            if follower.subscriber is None:
                follower.subscribe(desk.feed, 1 << 20)
            desk.feed.grant(follower.subscriber, 1 << 20)
        await desk.settle(200)
        for follower in self._followers:
            assert follower.position == desk.feed.head, (
                f"a follower is at {follower.position}, the session ends at {desk.feed.head}"
            )

    async def _catch_up_with_events(self, desk: Writers) -> None:
        await desk.wire.open()
        self._follow_wire(desk)
        await desk.wire.settle()
        await desk.settle(200)
        desk.wire.mailbox.close()
        assert self._wire_follower.position == desk.wire_feed.head

    async def _catch_up_with_stream(self, desk: Writers) -> None:
        await desk.stream.open()
        self._follow_stream(desk)
        await desk.stream.settle()
        await desk.settle(200)
        desk.stream.mailbox.close()
        assert self._stream_follower.position == desk.stream_feed.head

    def _judge(self) -> None:
        folder = read_folder(self.disk.tree(), PATH)
        tree = tree_of({PATH: folder}, has_foreign=self.world.foreign_lines)
        self._judge_context(folder, tree)
        self._judge_events(folder, tree)
        self._judge_stream(folder, tree)

    def _judge_context(self, folder: Folder, tree: Tree) -> None:
        has_foreign = self.world.foreign_lines
        by_key = {order.key: order for order in self.orders}
        mail = check_folder(SESSION, folder, by_key, has_foreign=has_foreign)
        stored = StoredSession(self.disk, PATH).mail()
        assert mail == (stored and stored.id)
        for order in self.orders:
            if not (order.is_event or order.is_stream):
                check_order(order, tree)
        for follower in self._followers:
            check_mail_event(follower, mail)
            check_follower(follower, folder.generations)

    def _judge_stream(self, folder: Folder, tree: Tree) -> None:
        check_stream(SESSION, folder)
        for order in self.orders:
            if order.is_stream:
                check_order(order, tree)
        check_follower(self._stream_follower, [folder.stream])

    def _judge_events(self, folder: Folder, tree: Tree) -> None:
        check_wire(SESSION, folder)
        for order in self.orders:
            if order.is_event:
                check_order(order, tree)
        check_follower(self._wire_follower, [folder.wire])
        check_wire_answers(self._wire_answers, tree)
