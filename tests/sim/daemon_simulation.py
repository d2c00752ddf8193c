"""The simulation of a daemon and its clients: several sessions and connections that break.

The router, the registry and the outbox of the daemon take part, the exchange, the mirrors and the
readers of the clients, and the messages between them, which are delivered one by one in an order
that the seed decides, held up, dropped at a full socket, or lost with their connection.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from sim.agents import TIMEOUT_S, Agent
from sim.drawing import AgentDrawing, pick
from sim.files import folders_of
from sim.network import UNDER_WAY_MAX, Connection
from sim.orders import Fate, Order, waiting
from sim.simulation import Simulation
from sim.verdicts.folders import check_compactions, check_files, check_folder, check_fork
from sim.verdicts.moves import check_incarnations, moved_ids
from sim.verdicts.orders import check_order, tree_of
from sim.verdicts.views import check_agent, check_joins, check_reading, check_repeat
from sim.worlds import World
from steno_protocol import commands, limits, paths
from stenod.api.peers import InFlightFrames, Sent
from stenod.core.wire_machine import WireMachine
from support.daemon_in_process import ROOT, DaemonInProcess
from support.simulated_disk import Death, Effect, PowerCut, ProcessKilled, SimulatedDisk, Survival

SESSIONS = ["a", "b", "a/sub"]
TREE = f"{ROOT}/{paths.SESSIONS}"
STEPS = 60
DEATH_SHARES = (0.4, 0.7)
AGENTS = 3
SETTLING_ROUNDS = 3000
SETTLED_ROUNDS = 10
ROUNDS_A_HOUSEKEEPING = 1000
PAUSES_S = [0.0, 0.0, 0.001, 0.05, 0.3, 1.0, 2.5]
SHORT_PAUSES_S = [0.0, 0.0, 0.0, 0.001, 0.02]
LONG_PAUSE_S = 40.0

NARROW = 6
"""Messages that a connection takes in worlds in which queues are often full."""

MORE = 0.22
"""Share of the acts that belong to the world of everything alone."""

MORE_WEIGHTS = {"compact": 8, "read": 6, "watch": 2, "look": 3, "repeat": 3, "open": 4}


class SimulatedDaemon(DaemonInProcess):
    """One life of the daemon, reached by connections; it may die within any call to its disk.

    Attributes:
        connections: by their identity at its socket.
    """

    def __init__(self, disk: SimulatedDisk, now_s: float, wall_s: float) -> None:
        super().__init__(disk)
        self.connections: dict[bytes, Connection] = {}
        self.now_s, self.wall_s = now_s, wall_s

    def start(self, tasks: TaskGroup) -> None:
        """Serve until the tasks are cancelled."""
        self._tasks = tasks

    def burst(self, connections: Sequence[Connection], count: int) -> None:
        """Take some messages of each connection, and serve them, as a transport does."""
        for connection in connections:
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
            # The next call to the disk raises it again.
            return


class DaemonSimulation(Simulation):
    """One seed of the worlds `daemon`, `full`, `groups` and `moves`.

    Attributes:
        agents: the daemon's clients, which outlive it.
    """

    lives = 3
    keys_max = 2

    def __init__(self, seed: int, world: World) -> None:
        super().__init__(seed, world)
        self.wall_s = self.disk.now_s
        self._is_settling = False
        self._survival: Survival | None = None
        self._drawing = AgentDrawing(
            self._chance, SESSIONS, has_all=world.has_all, has_moves=world.has_moves
        )
        room = NARROW if world.narrow_queues else UNDER_WAY_MAX
        self.agents = [
            Agent(f"agent-{number}", self._chance, self._chance.uniform(-900, 900), room)
            for number in range(AGENTS)
        ]

    @property
    def orders(self) -> list[Order]:
        """Everything that agents asked for."""
        return [order for agent in self.agents for order in agent.orders]

    # --- lives -----------------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[SimulatedDaemon, int]:
        steps = self._chance.randint(STEPS // 3, STEPS)
        daemon = self._start(tasks)
        call = self._chance.randint(0, 150)
        self._plan_death(self._chance.random(), call, DEATH_SHARES)
        for agent in self.agents if self.world.has_all else ():
            agent.open(self._chance.choice(SESSIONS), self.now_s)
        return daemon, steps

    def _start(self, tasks: TaskGroup) -> SimulatedDaemon:
        daemon = SimulatedDaemon(self.disk, self.now_s, self.wall_s)
        daemon.start(tasks)
        return daemon

    async def _drain(self, daemon: SimulatedDaemon) -> None:
        if not self.disk.died and self._chance.random() < 0.5:
            daemon.registry.close()
            await _give_way(60)

    def _kill(self, daemon: SimulatedDaemon) -> None:
        self._survival = None
        if self.disk.died:
            return
        # It has to be dead before its tasks are cancelled, in an order that no seed knows.
        self.disk._death = PowerCut if self.world.power_cuts else ProcessKilled
        if self.world.power_cuts:
            self._survival = self._chance.choice([None, Survival.LOST])

    def _end_life(self, daemon: SimulatedDaemon) -> None:
        assert not daemon.faults, f"the daemon is at fault: {daemon.faults}"
        for agent in self.agents:
            if agent.connection is not None:
                agent.hang_up()
        self.disk.restart(self._survival)
        self._heal()

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: SimulatedDaemon) -> None:
        chance, world = self._chance, self.world
        pauses_s = SHORT_PAUSES_S if world.short_pauses else PAUSES_S
        is_long = chance.random() < 0.01
        self._move_clocks(daemon, LONG_PAUSE_S if is_long else chance.choice(pauses_s))
        agent = chance.choice(self.agents)
        if world.has_all and chance.random() < MORE:
            self._act_more(agent)
        else:
            self._act(agent)
        if world.faults and chance.random() < 0.05:
            self._fail_something()
        if world.has_groups and chance.random() < 0.3:
            self._act_together(daemon)
        if world.disconnects and chance.random() < 0.06:
            self._disconnect(chance.choice(self.agents), daemon)
        for _ in range(chance.randint(1, 6)):
            await self._move(chance.choice(self.agents), daemon)
            for session in SESSIONS:
                _check_joined(daemon, session)
        if chance.random() < 0.05:
            self._keep_house(daemon)

    def _keep_house(self, daemon: SimulatedDaemon) -> None:
        if self._is_settling:
            self._move_clocks(daemon, 10 * limits.HOUSEKEEPING_S)
        daemon.registry.retire_idle()
        daemon.registry.end_stalled()
        daemon.router.forget_gone()

    def _move_clocks(self, daemon: SimulatedDaemon, passed_s: float) -> None:
        self.now_s += passed_s
        self.wall_s += passed_s
        daemon.now_s, daemon.wall_s = self.now_s, self.wall_s
        self.disk.now_s = self.wall_s

    def _act(self, agent: Agent) -> None:
        """Let an agent change, open, follow or read a session."""
        chance, now_s = self._chance, self.now_s
        session = chance.choice(SESSIONS)
        drawn = chance.random()
        if drawn < 0.6:
            again = waiting(agent.orders)
            if again and chance.random() < 0.5:
                order = chance.choice(again)
            else:
                order = self._drawing.draw(agent.name, agent.orders, self.wall_s)
                agent.orders.append(order)
            agent.give(order, now_s, chance.choice([TIMEOUT_S, 3.0]))
        elif drawn < 0.65:
            agent.open(session, now_s)
        elif drawn < 0.7:
            agent.mirror(session, now_s)
        elif drawn < 0.75 and len(agent.watchers) < 4:
            agent.watch(session, now_s)
        elif drawn < 0.8:
            agent.read(session)

    def _act_together(self, daemon: SimulatedDaemon) -> None:
        """Let all agents act before the daemon takes what they sent; a sync of it may fail."""
        for agent in self.agents:
            self._act(agent)
            agent.step(self.now_s)
        if self.world.faults and self._chance.random() < 0.3:
            self.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        connections = [each.connection for each in self.agents if each.connection is not None]
        daemon.burst(connections, 100)

    def _act_more(self, agent: Agent) -> None:
        """Let an agent compact, look for mail, repeat an order, read or follow either file."""
        now_s = self.now_s
        session = self._chance.choice(SESSIONS)
        match pick(self._chance, MORE_WEIGHTS):
            case "compact":
                agent.compact(session, self._drawing.next_number(), self.wall_s, now_s)
            case "read":
                self._read(agent, session)
            case "watch":
                if len(agent.watchers) < 6:
                    agent.watch(session, now_s, "wire")
            case "open":
                agent.open(session, now_s)
            case "look":
                agent.look(session, now_s, self._gone())
            case _:
                agent.repeat(now_s)

    def _read(self, agent: Agent, session: str) -> None:
        """Read a file, as often as not the one that the agent has just written to."""
        is_wire = self._chance.random() < 0.7
        acknowledged = [order for order in agent.orders if order.is_acknowledged]
        if acknowledged and self._chance.random() < 0.5:
            session, is_wire = acknowledged[-1].session, acknowledged[-1].is_event
        done = [
            order
            for order in self.orders
            if order.session == session
            and order.is_acknowledged
            and isinstance(order.command, commands.Mutation)
        ]
        agent.read(session, done, is_wire=is_wire)

    def _gone(self) -> frozenset[str]:
        return frozenset[str]().union(*(agent.known_gone() for agent in self.agents))

    async def _move(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        """Move messages between one agent and the daemon, and let the daemon's tasks run."""
        chance = self._chance
        connection = agent.connection
        if connection is None:
            self._connect(agent, daemon)
            return
        if connection.up and chance.random() < 0.7:
            daemon.burst([connection], chance.choice([1, 1, 3, 100]))
        await _give_way(chance.choice([0, 1, 3, 12, 40]))
        while connection.down and chance.random() < 0.7:
            connection.take_down(agent.now(self.now_s))
        agent.step(self.now_s)

    def _connect(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        if agent.connection is None and agent.exchange.wants_connection:
            connection = agent.connect()
            daemon.connections[connection.identity] = connection

    def _disconnect(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        """End a connection; messages that the daemon did not take may still come to it."""
        connection = agent.connection
        if connection is None:
            return
        if self._chance.random() < 0.5:
            connection.up.clear()
        while connection.up:
            daemon.burst([connection], 1)
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
        self._is_settling = True
        first = self.agents[0]
        for agent in self.agents:
            # An agent without room is asked again by the housekeeping alone, which takes its time.
            agent.under_way_max = UNDER_WAY_MAX
        for session in SESSIONS if self.world.has_all else ():
            # A torn wire file, too, is mended by its next opening for writing.
            first.watch(session, self.now_s, "wire")
        async with anyio.create_task_group() as tasks:
            daemon = self._start(tasks)
            for session in self._present() if self.world.has_moves else SESSIONS:
                # A torn file is mended by its next opening for writing.
                first.open(session, self.now_s, create=False)
            await self._settle_all(daemon)
            # The housekeeping resets a subscriber that was too slow for an event, which asks again.
            self._keep_house(daemon)
            for session in SESSIONS if self.world.has_all else ():
                first.look(session, self.now_s, self._gone(), is_last=True)
            await self._settle_all(daemon)
            # Written records are synced and published now.
            daemon.registry.close()
            await self._settle_all(daemon)
            assert not daemon.faults, f"the daemon is at fault: {daemon.faults}"
            tasks.cancel_scope.cancel()

    def _present(self) -> list[str]:
        """The sessions that are not in the trash."""
        folders = folders_of(self.disk.tree(), TREE)
        return [path for path in folders if not path.startswith(paths.TRASH)]

    async def _settle_all(self, daemon: SimulatedDaemon) -> None:
        for agent in self.agents:
            # No model thinks any longer; a committed compaction has its reply to get.
            for summary in agent.compactions:
                summary.is_over = True
        for number in range(SETTLING_ROUNDS):
            await self._settle_a_little(daemon)
            if number > SETTLED_ROUNDS and not (daemon.registry.queued or self._unsettled()):
                return
            if number % ROUNDS_A_HOUSEKEEPING == ROUNDS_A_HOUSEKEEPING - 1:
                # An event without room is lost until the housekeeping finds its subscriber.
                self._keep_house(daemon)
        raise AssertionError(f"something never ends: {self._unsettled()}")

    async def _settle_a_little(self, daemon: SimulatedDaemon) -> None:
        self._move_clocks(daemon, 0.05)
        for agent in self.agents:
            for order in waiting(agent.orders):
                agent.give(order, self.now_s)
            self._connect(agent, daemon)
            if agent.connection is not None:
                daemon.burst([agent.connection], 100)
                await _give_way(5)
                while agent.connection.down:
                    agent.connection.take_down(agent.now(self.now_s))
            agent.step(self.now_s)

    def _unsettled(self) -> list[str]:
        """Everything that still waits for a reply or an event, for a message."""
        found: list[str] = []
        for agent in self.agents:
            found += [f"{each.key} {each.error}" for each in agent.orders if each.fate is Fate.OPEN]
            found += [f"reading {each.session}" for each in agent.readings if not each.is_over]
            found += [f"a look at {each.session}" for each in agent.looks
                      if not each.pending.is_done]  # fmt: skip
            found += [f"{each.order.key} again" for each in agent.repeats
                      if not each.pending.is_done]  # fmt: skip
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

    def _judge(self) -> None:
        files = self.disk.tree()
        everywhere = tree_of(folders_of(files, TREE), moved=moved_ids(files, TREE))
        check_incarnations(everywhere)
        orders = self.orders
        by_key = {order.key: order for order in orders}
        # Nothing failed that could take back what was acknowledged as `written`.
        is_sure = not (self.world.power_cuts or self.world.faults)
        mails: dict[str, str | None] = {}
        for path, folder in everywhere.folders.items():
            forked = next((entry for entry in folder.entries if entry.kind == "forked"), None)
            if path.startswith(paths.TRASH):
                # A write that was cut short just before the deletion is never repaired.
                continue
            if forked is not None:
                check_files(path, folder)
                check_fork(path, folder, forked, everywhere.folders)
                continue
            mails[path] = check_folder(path, folder, by_key)
            check_compactions(path, folder, by_key)
            # An order that is sent again to a session that was made again is applied once more.
            if everywhere.has_lived_on(path):
                check_joins(folder, orders)
        for order in orders:
            check_order(order, everywhere, is_sure=is_sure)
        repeated = {repeat.order.key for agent in self.agents for repeat in agent.repeats}
        for agent in self.agents:
            check_agent(agent, everywhere, mails, by_key)
            for reading in agent.readings:
                check_reading(reading, everywhere, repeated)
            for repeat in agent.repeats:
                check_repeat(repeat, everywhere, is_sure=is_sure)


def _check_joined(daemon: SimulatedDaemon, session: str) -> None:
    """No event is joined to what a power cut could take from the context."""
    found = daemon.registry.known(session)
    wire = found.opened("wire") if found is not None else None
    if found is not None and wire is not None:
        machine, head = wire.machine, found.context.feed.head
        if isinstance(machine, WireMachine):
            floor = machine._floor
            assert floor <= head, f"{session}: an event is joined to {floor}, durable is {head}"


async def _give_way(turns: int) -> None:
    """Let every task of the daemon have so many turns."""
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
