"""A daemon with its clients from one seed: several sessions, broken connections, failing disks.

What `simulation` leaves out is played here: the router, the registry and the outbox of the daemon,
the exchange, the mirrors and the readers of the clients, and the messages between them, which are
delivered one by one in an order that the seed decides, held up, dropped at a full socket, or lost
with their connection.
"""

import errno
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest.mock import patch

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from sim.agents import SESSIONS, Agent, Drawing, Fate
from sim.network import Connection
from sim.simulation import run_seed
from sim.whole_verdict import judge
from steno_protocol import limits
from stenod.api.peers import InFlightFrames, Sent
from stenod.core.keys import KeyTable
from support.daemon_in_process import DaemonInProcess
from support.simulated_disk import (
    MOMENTS,
    Death,
    Effect,
    PowerCut,
    ProcessKilled,
    SimulatedDisk,
    Survival,
)

LIVES = 3
KEYS_MAX = 2
STEPS = 60
AGENTS = 3
SETTLING_ROUNDS = 3000
SETTLED_ROUNDS = 10
ROUNDS_A_HOUSEKEEPING = 1000
TIMEOUT_S = 30.0
PAUSES_S = [0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 2.5]
LONG_PAUSE_S = 40.0


class SimulatedDaemon(DaemonInProcess):
    """One life of the daemon, reached by connections; it may die within any call to its disk.

    Attributes:
        connections: by what its socket calls them.
    """

    def __init__(self, disk: SimulatedDisk, now_s: float, wall_s: float) -> None:
        super().__init__(disk)
        self.connections: dict[bytes, Connection] = {}
        self.now_s, self.wall_s = now_s, wall_s

    def start(self, tasks: TaskGroup) -> None:
        """Serve until the tasks are cancelled."""
        self._tasks = tasks

    def burst(self, connection: Connection, count: int) -> None:
        """Take some messages of one connection, and serve what they bring, as a transport does."""
        for _ in range(min(count, len(connection.up))):
            self.router.handle(self, connection.identity, connection.up.popleft())
        self.registry.commit()

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Give a message to its connection, if that is there and has room."""
        connection = self.connections.get(identity)
        if connection is None:
            return Sent.GONE
        return Sent.OK if connection.send_down(frames) else Sent.FULL

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await super()._guarded(work)
        except Death:
            # Whoever looks at the disk next learns of it.
            return


class WholeSimulation:
    """One seed.

    Attributes:
        disk: what all lives of the daemon share.
        agents: its clients, which outlive it.
        now_s: the monotonic clock of the daemon's machine.
        wall_s: its wall clock.
    """

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.now_s, self.wall_s = 1000.0, self.disk.now_s
        self._chance = random.Random(seed)
        self._power_cuts = seed % 2 == 0
        self._faults = seed % 3 != 0
        self._remembers_few = seed % 7 < 3
        self._breaks = seed % 5 != 0
        self._pauses_s: Sequence[float] = PAUSES_S
        self._is_settling = False
        self._drawing = self._make_drawing()
        self.agents: Sequence[Agent] = [
            self._make_agent(f"agent-{number}", self._chance.uniform(-900, 900))
            for number in range(AGENTS)
        ]

    async def run(self) -> None:
        """Live several lives, settle everything, and judge.

        Raises:
            AssertionError: a promise was broken.
        """
        with self._few_keys():
            for _ in range(LIVES):
                await self._live(self._chance.randint(STEPS // 3, STEPS))
            self.disk.heal()
            await self._settle()
        self._judge()

    @property
    def is_sure(self) -> bool:
        """True if nothing can take back what was acknowledged as `written`."""
        return not (self._power_cuts or self._faults)

    # --- what is played --------------------------------------------------------------------------

    def _make_drawing(self) -> Drawing:
        return Drawing(self._chance)

    def _make_agent(self, name: str, ahead_s: float) -> Agent:
        return Agent(name, self._chance, ahead_s)

    def _begin(self) -> None:
        """What agents ask for at the beginning of a daemon's life."""

    def _judge(self) -> None:
        judge(self.disk, self.agents, is_sure=self.is_sure)

    def _few_keys(self) -> AbstractContextManager[object]:
        """In some worlds the daemon remembers so few keys that it has to look most of them up."""
        if not self._remembers_few:
            return nullcontext()
        return patch.object(KeyTable.__init__, "__defaults__", (KEYS_MAX,))

    # --- lives -----------------------------------------------------------------------------------

    async def _live(self, steps: int) -> None:
        async with anyio.create_task_group() as tasks:
            daemon = self._start(tasks)
            self._plan_death()
            with self._dying():
                self._begin()
                for _ in range(steps):
                    await self._step(daemon)
                    if self.disk.died:
                        break
                if not self.disk.died and self._chance.random() < 0.5:
                    daemon.registry.close()
                    await _give_way(60)
            survival = self._die()
            tasks.cancel_scope.cancel()
        self._end(daemon, survival)

    def _start(self, tasks: TaskGroup) -> SimulatedDaemon:
        daemon = SimulatedDaemon(self.disk, self.now_s, self.wall_s)
        daemon.start(tasks)
        return daemon

    def _plan_death(self) -> None:
        call = len(self.disk.calls) + self._chance.randint(0, 150)
        drawn = self._chance.random()
        if drawn < 0.4 and self._power_cuts:
            self.disk.crash_at(call, self._chance.choice(MOMENTS))
        elif drawn < 0.7:
            self.disk.kill_at(call, self._chance.choice(MOMENTS))

    @contextmanager
    def _dying(self) -> Iterator[None]:
        try:
            yield
        except Death:
            assert self.disk.died

    def _die(self) -> Survival | None:
        """End the process, if it did not die: tasks are cancelled in no order that a seed knows.

        Returns:
            What a power cut leaves, None to let the disk decide.
        """
        if self.disk.died:
            return None
        self.disk._death = PowerCut if self._power_cuts else ProcessKilled
        return self._chance.choice([None, Survival.LOST]) if self._power_cuts else None

    def _end(self, daemon: SimulatedDaemon, survival: Survival | None) -> None:
        """Whatever way it ended, nobody gets an answer from this daemon any more."""
        assert not daemon.faults, f"the daemon is at fault: {daemon.faults}"
        for agent in self.agents:
            if agent.connection is not None:
                agent.hang_up()
        self.disk.restart(survival)
        self.disk.heal()
        self.disk.free_bytes = None

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: SimulatedDaemon) -> None:
        chance = self._chance
        self._pass_time(daemon)
        agent = chance.choice(self.agents)
        self._act(agent)
        if self._faults and chance.random() < 0.05:
            self._fail_something()
        if self._breaks and chance.random() < 0.06:
            self._break(chance.choice(self.agents), daemon)
        for _ in range(chance.randint(1, 6)):
            await self._move(chance.choice(self.agents), daemon)
        if chance.random() < 0.05:
            self._keep_house(daemon)

    def _keep_house(self, daemon: SimulatedDaemon) -> None:
        if self._is_settling:
            self._move_clocks(daemon, 10 * limits.HOUSEKEEPING_S)
        daemon.registry.retire_idle()
        daemon.registry.end_stalled()
        daemon.router.forget_gone()

    def _pass_time(self, daemon: SimulatedDaemon) -> None:
        chance = self._chance
        passed_s = LONG_PAUSE_S if chance.random() < 0.01 else chance.choice(self._pauses_s)
        self._move_clocks(daemon, passed_s)

    def _move_clocks(self, daemon: SimulatedDaemon, passed_s: float) -> None:
        self.now_s += passed_s
        self.wall_s += passed_s
        daemon.now_s, daemon.wall_s = self.now_s, self.wall_s
        self.disk.now_s = self.wall_s

    def _act(self, agent: Agent) -> None:
        """One agent wants something."""
        chance = self._chance
        session = chance.choice(SESSIONS)
        drawn = chance.random()
        if drawn < 0.6:
            waiting = agent.waiting()
            if waiting and chance.random() < 0.5:
                order = chance.choice(waiting)
            else:
                order = self._drawing.draw(agent, self.wall_s)
                agent.orders.append(order)
            agent.give(order, self.now_s, chance.choice([TIMEOUT_S, 3.0]))
        elif drawn < 0.65:
            agent.open(session, self.now_s)
        elif drawn < 0.7:
            agent.mirror(session, self.now_s, TIMEOUT_S)
        elif drawn < 0.75 and len(agent.watchers) < 4:
            agent.watch(session, self.now_s, TIMEOUT_S)
        elif drawn < 0.8:
            agent.read(session)

    async def _move(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        """Something moves between one agent and the daemon, and the daemon's tasks have turns."""
        chance = self._chance
        connection = agent.connection
        if connection is None:
            if agent.exchange.wants_connection:
                connection = agent.connect()
                daemon.connections[connection.identity] = connection
            return
        if connection.up and chance.random() < 0.7:
            daemon.burst(connection, chance.choice([1, 1, 3, 100]))
        await _give_way(chance.choice([0, 1, 3, 12, 40]))
        while connection.down and chance.random() < 0.7:
            connection.take_down(agent.now(self.now_s))
        agent.step(self.now_s)

    def _break(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        """A connection ends; what the daemon was sent and did not take may still come to it."""
        connection = agent.connection
        if connection is None:
            return
        if self._chance.random() < 0.5:
            connection.up.clear()
        while connection.up:
            daemon.burst(connection, 1)
        del daemon.connections[connection.identity]
        agent.hang_up()

    def _fail_something(self) -> None:
        chance, disk = self._chance, self.disk
        error = chance.choice([errno.EIO, errno.ENOSPC])
        match chance.randint(0, 3):
            case 0 | 1:
                effect = chance.choice(list(Effect))
                disk.fail_at(len(disk.calls) + chance.randint(0, 12), error, effect)
            case 2:
                method = chance.choice(["read", "stat", "names", "stat_name", "open_read", "lock"])
                disk.fail_next(method, errno.EIO, skip=chance.randint(0, 6))
            case _:
                disk.free_bytes = chance.choice([0, 30, 300, None])

    # --- the end ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """A last daemon on a sound disk: every order gets its answer, every follower the end."""
        self._is_settling = True
        async with anyio.create_task_group() as tasks:
            daemon = self._start(tasks)
            for session in SESSIONS:
                # What a power cut tore is mended by the next opening for writing.
                self.agents[0].open(session, self.now_s, create=False)
            await self._settle_all(daemon)
            # Who was too slow for an event is told so by the daemon's housekeeping, and asks again.
            self._keep_house(daemon)
            self._look_once_more()
            await self._settle_all(daemon)
            # What was acknowledged as `written` is synced and told of now.
            daemon.registry.close()
            await self._settle_all(daemon)
            assert not daemon.faults, f"the daemon is at fault: {daemon.faults}"
            tasks.cancel_scope.cancel()

    def _look_once_more(self) -> None:
        """What agents ask for when all else has its answer."""

    async def _settle_all(self, daemon: SimulatedDaemon) -> None:
        for number in range(SETTLING_ROUNDS):
            await self._settle_a_little(daemon)
            if number > SETTLED_ROUNDS and self._is_settled(daemon):
                return
            if number % ROUNDS_A_HOUSEKEEPING == ROUNDS_A_HOUSEKEEPING - 1:
                # An event for which there was no room is lost until somebody looks after it.
                self._keep_house(daemon)
        raise AssertionError(f"something never ends: {self._unsettled()}")

    async def _settle_a_little(self, daemon: SimulatedDaemon) -> None:
        self._move_clocks(daemon, 0.05)
        for agent in self.agents:
            for order in agent.waiting():
                agent.give(order, self.now_s, TIMEOUT_S)
            if agent.connection is None and agent.exchange.wants_connection:
                connection = agent.connect()
                daemon.connections[connection.identity] = connection
            if agent.connection is not None:
                daemon.burst(agent.connection, 100)
                await _give_way(5)
                while agent.connection.down:
                    agent.connection.take_down(agent.now(self.now_s))
            agent.step(self.now_s)

    def _is_settled(self, daemon: SimulatedDaemon) -> bool:
        return not daemon.registry.queued and not self._unsettled()

    def _unsettled(self) -> list[str]:
        """What still waits for something."""
        found: list[str] = []
        for agent in self.agents:
            found += [f"{each.key} {each.error}" for each in agent.orders if each.fate is Fate.OPEN]
            found += [f"reading {each.session}" for each in agent.readings if not each.is_over]
            followers = [mirror.follower for mirror in agent.mirrors.values()]
            followers += [watcher.follower for watcher in agent.watchers]
            found += [
                f"{agent.name} follows {each.session}"
                for each in followers
                if each.error is None and (not each.is_live or each.name is None or each.inbox)
            ]
            connection = agent.connection
            if connection is not None and (connection.up or connection.down):
                found.append(f"messages of {agent.name}")
        return found


async def _give_way(turns: int) -> None:
    """Let every task of the daemon have so many turns."""
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()


def play_whole(seed: int) -> None:
    """Play one seed.

    Raises:
        AssertionError: a promise was broken; the message names the seed.
    """
    simulation = WholeSimulation(seed)
    run_seed(seed, simulation.run, lambda: simulation.now_s)
