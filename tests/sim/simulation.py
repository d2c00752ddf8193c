"""A session's whole life from one seed: clients, followers, faults and deaths, then the verdict."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import anyio

from sim import verdict
from sim.clients import Fate, Follower, Order, Orders, is_rewrite
from steno_protocol import limits, paths
from steno_protocol.commands import CompactAbort
from steno_protocol.errors import Conflict, StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from stenod.core import timeline
from stenod.core.keys import KeyTable
from stenod.feed.feed import Subscriber
from stenod.recovery.file_opening import OpenOptions
from stenod.sessions.leases import Compactions
from support.lines import SESSION, compact_begin, foreign, user
from support.simulated_disk import MOMENTS, Effect, PowerCut, SimulatedDisk, Survival
from support.stored_session import NOW_S, StoredSession
from support.writing import PATH, Desk, Sent

LIVES = 4
STEPS = 14
TRIES_MAX = 60
KEYS_MAX = 4
CLOCK_STEPS_S = [0.0, 0.001, -3600.0, 3600.0, -1e8, 1e8]

CONTEXT = f"{PATH}/{paths.CONTEXT}"


@dataclass(frozen=True, slots=True)
class World:
    """What a simulation may meet.

    Attributes:
        power_cuts: whether the power is cut; else only processes die.
        faults: whether calls fail.
        has_foreign: whether another program appends lines. Not together with power cuts: what it
            wrote and did not sync may vanish from between our lines, and then no line is where it
            was, whatever we do.
        shared: the folder is a mount's; then the other program may stop in the middle of a line.
        storms: whether the disk fails again and again for a while, and forgets meanwhile what a
            failed sync dropped.
        clock_jumps: wall clocks are set back and forth by hours and years, the clients' and the
            daemon's each by itself, and the daemon remembers few keys, so that it looks most up.
        at_once: the disk counts as fast, so that rounds serve the commands, not the tasks alone.
        ignore_fdatasync: see `SimulatedDisk`.
        ignore_folder_fsync: see `SimulatedDisk`.
    """

    power_cuts: bool = True
    faults: bool = True
    has_foreign: bool = False
    shared: bool = False
    storms: bool = False
    clock_jumps: bool = False
    at_once: bool = False
    ignore_fdatasync: bool = False
    ignore_folder_fsync: bool = False


def world_of(seed: int) -> World:
    """Which world a seed is played in."""
    has_foreign = seed % 4 == 3
    return World(
        power_cuts=not has_foreign,
        faults=seed % 4 != 0,
        has_foreign=has_foreign,
        shared=seed % 8 == 7,
        storms=seed % 4 != 0 and seed % 5 == 0,
        # Whether a half line of another program stood still for a while, only a clock can tell.
        clock_jumps=not has_foreign and seed % 3 == 1,
        at_once=seed // 8 % 2 == 0,
    )


class Simulation:
    """One seed.

    Attributes:
        log: what happened, for the report of a failure.
    """

    def __init__(self, seed: int, world: World) -> None:
        self.log: list[str] = []
        self._chance = random.Random(seed)
        self._world = world
        self._disk = SimulatedDisk(
            seed,
            ignore_fdatasync=world.ignore_fdatasync,
            ignore_folder_fsync=world.ignore_folder_fsync,
        )
        self._disk.foreign.make_folder(PATH)
        self._disk.sync_all()
        self._wall_s = NOW_S
        # By itself, so that what else happens does not depend on it.
        self._clocks = random.Random(seed)
        self._storms = random.Random(seed)
        self._skew_s = 0.0
        self._orders = Orders(self._chance, self._client_wall_s)
        self._misuses = random.Random(seed)
        self._misused: list[tuple[Order, Sent]] = []
        self._followers: list[Follower] = []
        self._head = Position(0, 0)
        self._half_line = b""

    async def run(self) -> None:
        """Live several lives, settle everything, and judge.

        Raises:
            AssertionError: a promise was broken.
        """
        with self._few_keys():
            for _ in range(LIVES):
                await self._live(self._chance.randint(3, STEPS))
        self._disk.heal()
        self._disk.free_bytes = None
        await self._settle()
        self._disk.crash(Survival.LOST if self._world.power_cuts else Survival.KEPT)
        self._judge()

    def trace(self) -> tuple[object, ...]:
        """All calls to the disk and all files at the end."""
        return tuple(self._disk.calls), self._disk.tree()

    # --- lives ---------------------------------------------------------------------------------

    async def _live(self, steps: int) -> None:
        """One daemon, from its start to its death or end."""
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            self._plan_death()
            for _ in range(steps):
                await self._step(desk)
                if self._disk.died:
                    break
            await self._end(desk)
            tasks.cancel_scope.cancel()

    def _start(self, tasks: anyio.abc.TaskGroup) -> Desk:
        self._tick()
        desk = self._make_desk()
        desk._tasks = tasks
        self._compactions = Compactions(
            desk.services.read, desk.services.monotonic, desk.services.wall
        )

        async def open_session() -> None:
            try:
                await desk.writer.open(OpenOptions(create=True))
            except (OSError, StenoError) as error:
                self.log.append(f"not opened: {error!r}")

        desk.spawn(desk.writer.serve)
        desk.spawn(open_session)
        return desk

    def _make_desk(self) -> Desk:
        world = self._world
        return Desk(self._disk, wall_s=self._wall_s, shared=world.shared, at_once=world.at_once)

    def _tick(self) -> None:
        self._wall_s += self._chance.choice([0.0, 0.001, 1.0, 10.0])
        self._set_clocks()
        self._disk.now_s = self._wall_s

    def _set_clocks(self) -> None:
        """Somebody sets a wall clock; deadlines and leases are none of its business."""
        if self._world.clock_jumps:
            self._wall_s = max(1.0, self._wall_s + self._clocks.choice(CLOCK_STEPS_S))
            self._skew_s = self._clocks.choice([0.0, 0.0, *CLOCK_STEPS_S])

    def _client_wall_s(self) -> float:
        return max(1.0, self._wall_s + self._skew_s)

    def _few_keys(self) -> contextlib.AbstractContextManager[object]:
        if not self._world.clock_jumps:
            return contextlib.nullcontext()
        return patch.object(KeyTable.__init__, "__defaults__", (KEYS_MAX,))

    def _plan_death(self) -> None:
        call = len(self._disk.calls) + self._chance.randint(0, 45)
        moment = self._chance.choice(MOMENTS)
        drawn = self._chance.random()
        if drawn < 0.45 and self._world.power_cuts:
            self._disk.crash_at(call, moment)
        elif drawn < 0.7:
            self._disk.kill_at(call, moment)

    async def _end(self, desk: Desk) -> None:
        """Whatever way it ends, nobody gets an answer from this daemon any more."""
        if not self._disk.died and self._chance.random() < 0.5:
            desk.writer.mailbox.close()
            await desk.settle(60)
        self.log.append(f"life ends: {desk.death or 'drained or cut off'}")
        self._orders.lose_answers()
        for follower in self._followers:
            follower.subscriber = None
        if not self._disk.died:
            # Nothing of what is still running may touch the disk of the next life.
            self._disk._death = PowerCut
            self._disk.restart(None if self._world.power_cuts else Survival.KEPT)
        else:
            self._disk.restart()
        desk.feed.detach()
        desk.writer._files.opened = None
        self._disk.heal()
        if self._chance.random() < 0.3:
            self._evict()

    def _evict(self) -> None:
        for name in (paths.CONTEXT, paths.TIMELINE):
            if f"{PATH}/{name}" in self._disk.tree():
                self._disk.evict(f"{PATH}/{name}")

    # --- steps ---------------------------------------------------------------------------------

    async def _step(self, desk: Desk) -> None:
        chance = self._chance
        self._head = max(self._head, desk.feed.head)
        self._set_clocks()
        desk.wall_s = self._disk.now_s = self._wall_s
        for _ in range(chance.randint(1, 4)):
            self._send(desk, self._choose_order())
        if self._misuses.random() < 0.2:
            self._misuse_keys(desk, 1)
        if chance.random() < 0.3:
            self._compact(desk)
        if chance.random() < 0.3:
            self._follow(desk)
        if chance.random() < 0.3:
            self._grant(desk)
        if self._world.faults and chance.random() < 0.15:
            self._fail_something()
        if self._world.storms and self._storms.random() < 0.2:
            self._begin_storm()
        if self._world.has_foreign and chance.random() < 0.2:
            self._write_foreign()
        await desk.settle(chance.choice([0, 1, 3, 12, 40]))
        self._orders.take_answers()
        self._check_misuses()

    def _choose_order(self) -> Order:
        waiting = self._orders.waiting()
        drawn = self._chance.random()
        if waiting and drawn < 0.5:
            return self._chance.choice(waiting)
        done = [order for order in self._orders.all if order.fate is Fate.DONE and not order.copies]
        if done and drawn < 0.6:
            return self._chance.choice(done)
        return self._orders.draw(self._head)

    def _send(self, desk: Desk, order: Order) -> None:
        command = order.make(order.tries > 0)
        order.tries += 1
        assert order.tries < TRIES_MAX, f"{order.key} was sent {order.tries} times in vain"
        late = desk.now_s - 1 if self._chance.random() < 0.03 else None
        with contextlib.suppress(StenoError):
            order.copies.append(desk.send(command, *order.records, deadline_s=late))
            if self._chance.random() < 0.08:
                order.copies.append(desk.send(order.make(True), *order.records))

    def _misuse_keys(self, desk: Desk, count: int) -> None:
        """Send keys of orders that are done again, with records that they did not come with."""
        done = [
            order
            for order in self._orders.all
            if order.fate is Fate.DONE and order.records and not is_rewrite(order)
        ]
        for order in self._misuses.sample(done, min(count, len(done))):
            other = [*order.records[1:], user("other contents")]
            with contextlib.suppress(StenoError):
                self._misused.append((order, desk.send(order.make(True), *other)))

    def _check_misuses(self) -> None:
        """None was taken for a repeat; that nothing of it is in the files, `_judge` sees."""
        for order, sent in self._misused:
            assert not isinstance(sent.answer, Ack), f"{order.key} answered other contents"
            if isinstance(sent.answer, Conflict):
                assert f"at {order.acks[0].first}" in str(sent.answer), f"{sent.answer}"

    def _compact(self, desk: Desk) -> None:
        """Begin a compaction, or give one up; who commits it later knows of no lease."""
        lease = self._chance.choice(["first", "second"])
        if self._chance.random() < 0.2:
            self._compactions.abort(desk.writer, CompactAbort(session=SESSION, lease=lease))
            return
        command = compact_begin(lease, preserve=self._chance.randint(1, 3))

        async def begin() -> None:
            with contextlib.suppress(StenoError, OSError):
                answer = await self._compactions.begin(desk.writer, command)
                assert bool(answer.messages) != bool(answer.why)
                if answer.messages:
                    self._orders.begun.append(answer)

        desk.spawn(begin)

    def _follow(self, desk: Desk) -> None:
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
        # Nobody was ever shown a record that a crash could take back.
        desk.feed.check(follower.position)
        credit = self._chance.choice([1100, 5000, 100_000])
        follower.mail = None
        follower.subscriber = Subscriber(follower.send, follower.position, credit)
        desk.feed.add(follower.subscriber)

    def _grant(self, desk: Desk) -> None:
        for follower in self._followers:
            if follower.subscriber is not None:
                desk.feed.grant(follower.subscriber, self._chance.choice([100, 3000, 50_000]))

    def _fail_something(self) -> None:
        chance, disk = self._chance, self._disk
        effect = chance.choice(list(Effect))
        error = chance.choice([errno.EIO, errno.ENOSPC])
        match chance.randint(0, 5):
            case 0 | 1:
                disk.fail_at(len(disk.calls) + chance.randint(0, 12), error, effect)
            case 2:
                disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT, effect=effect)
                if chance.random() < 0.5:
                    disk.fail_next("truncate", errno.EIO, name=paths.CONTEXT)
            case 3:
                method = chance.choice(["read", "stat", "names", "stat_name", "open_read"])
                disk.fail_next(method, errno.EIO, skip=chance.randint(0, 6))
            case 4:
                disk.shorten_next("write", chance.randint(1, 20), times=3)
            case _:
                disk.free_bytes = chance.choice([0, 30, 300, None])

    def _begin_storm(self) -> None:
        chance = self._storms
        self._disk.storm(chance, chance.choice([0.1, 0.3, 0.7]), chance.randint(3, 40))
        if chance.random() < 0.3:
            self._evict()

    def _write_foreign(self) -> None:
        if CONTEXT not in self._disk.tree():
            return
        line = self._half_line or foreign("theirs")
        cut = self._chance.randint(1, len(line)) if self._world.shared else len(line)
        self._half_line = line[cut:]
        self._disk.foreign.append(CONTEXT, line[:cut])

    # --- the end -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """A last daemon on a sound disk: every order gets its answer, every follower the end."""
        # Long enough for a half line to be nobody's any more.
        self._wall_s += 10 * limits.FOREIGN_SETTLE_S
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            await desk.settle(20)
            self._follow(desk)
            while waiting := self._orders.waiting():
                for order in waiting:
                    self._send(desk, order)
                await desk.settle(20 + 6 * len(waiting))
                self._orders.take_answers()
            for order in self._orders.all:
                if self._chance.random() < 0.3 and order.fate is Fate.DONE:
                    self._send(desk, order)
            await desk.settle(60)
            self._orders.take_answers()
            self._misused.clear()
            self._misuse_keys(desk, len(self._orders.all))
            await desk.settle(60)
            self._check_misuses()
            wrong = [sent.answer for _, sent in self._misused]
            assert all(isinstance(answer, Conflict) for answer in wrong), f"{wrong}"
            await self._catch_up(desk)
            desk.writer.mailbox.close()
            await desk.settle(20)
            tasks.cancel_scope.cancel()

    async def _catch_up(self, desk: Desk) -> None:
        for follower in self._followers:
            if follower.subscriber is None:
                desk.feed.check(follower.position)
                follower.mail = None
                follower.subscriber = Subscriber(follower.send, follower.position, 1 << 20)
                desk.feed.add(follower.subscriber)
            desk.feed.grant(follower.subscriber, 1 << 20)
        await desk.settle(200)
        for follower in self._followers:
            assert follower.position == desk.feed.head, (
                f"a follower is at {follower.position}, the session ends at {desk.feed.head}"
            )

    def _judge(self) -> None:
        tree = self._disk.tree()
        names = [f"{PATH}/{paths.CONTEXT}"]
        number = 1
        while f"{PATH}/{paths.generation_file(number)}" in tree:
            names.insert(number - 1, f"{PATH}/{paths.generation_file(number)}")
            number += 1
        verdict.check(
            [tree[name].splitlines(keepends=True) for name in names],
            timeline.decode(tree[f"{PATH}/{paths.TIMELINE}"]),
            self._orders.all,
            self._followers,
            waiting=StoredSession(self._disk, PATH).mail(),
            has_foreign=self._world.has_foreign,
        )


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run on a clock that only its simulation moves.

    On the machine's own clock a seed would be played in another way on a busy machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._simulated = clock
        super().__init__()

    def time(self) -> float:
        """Seconds on the simulated clock."""
        return self._simulated()


def play(seed: int, world: World | None = None, kind: type[Simulation] = Simulation) -> None:
    """Play one seed to its end.

    Raises:
        AssertionError: a promise was broken; the message begins with the seed.
    """
    run_seed(seed, kind(seed, world or world_of(seed)).run)


def run_seed(
    seed: int, run: Callable[[], Awaitable[None]], clock: Callable[[], float] | None = None
) -> None:
    """Run what a seed plays.

    Args:
        seed: the seed.
        run: plays it.
        clock: what timers wait for, in place of the time that passes.

    Raises:
        AssertionError: it ended with an error; the message begins with the seed.
    """
    options = {} if clock is None else {"loop_factory": partial(SimulatedLoop, clock)}
    try:
        anyio.run(run, backend="asyncio", backend_options=options)
    except BaseExceptionGroup as group:
        raise AssertionError(f"seed {seed}: {_first(group)!r}") from group
    except (AssertionError, OSError, StenoError, ValueError, LookupError) as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
