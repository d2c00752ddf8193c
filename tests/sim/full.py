"""A daemon with its clients from one seed, as in `whole`, with all that a session has.

Beside the context there are events, read and followed; compactions that a model thinks about while
others write, revert and die; and D-Mails that are sent, looked for, delivered and expire.
"""

from sim.agents import SESSIONS, Agent, Drawing, Fate, Order
from sim.full_agents import TIMEOUT_S, FullAgent, FullDrawing
from sim.full_verdict import judge_all
from sim.network import UNDER_WAY_MAX
from sim.simulation import run_seed
from sim.whole import SimulatedDaemon, WholeSimulation
from steno_protocol import commands
from stenod.core.wire_machine import WireMachine

MORE = 0.22
"""Share of the acts that `whole` does not know."""


HASTY_PAUSES_S = [0.0, 0.0, 0.0, 0.001, 0.02]
"""In worlds in which much happens between a write and its sync."""

NARROW = 6
"""Messages that a connection takes in worlds in which queues are often full."""


class FullSimulation(WholeSimulation):
    """One seed."""

    def __init__(self, seed: int) -> None:
        self._has_narrow_queues = seed % 4 == 1
        super().__init__(seed)
        if seed % 5 == 2:
            self._pauses_s = HASTY_PAUSES_S

    def _make_drawing(self) -> Drawing:
        return FullDrawing(self._chance)

    def _make_agent(self, name: str, ahead_s: float) -> Agent:
        agent = FullAgent(name, self._chance, ahead_s)
        if self._has_narrow_queues:
            agent.under_way_max = NARROW
        return agent

    def _begin(self) -> None:
        for agent in self.agents:
            agent.open(self._chance.choice(SESSIONS), self.now_s)

    @property
    def _full_agents(self) -> list[FullAgent]:
        return [agent for agent in self.agents if isinstance(agent, FullAgent)]

    def _judge(self) -> None:
        super()._judge()
        judge_all(self.disk, self._full_agents, is_sure=self.is_sure)

    def _act(self, agent: Agent) -> None:
        if self._chance.random() >= MORE:
            super()._act(agent)
            return
        assert isinstance(agent, FullAgent)
        chance, now_s = self._chance, self.now_s
        session = chance.choice(SESSIONS)
        match chance.choices(
            ["compact", "read", "watch", "look", "repeat", "open"], [8, 6, 2, 3, 3, 4]
        )[0]:
            case "compact":
                assert isinstance(self._drawing, FullDrawing)
                agent.compact(session, self._drawing.next_number(), self.wall_s, now_s)
            case "read":
                self._read(agent, session)
            case "watch":
                if len(agent.watchers) < 6:
                    agent.watch(session, now_s, TIMEOUT_S, "wire")
            case "open":
                agent.open(session, now_s)
            case "look":
                agent.look(session, now_s, self._gone())
            case _:
                agent.repeat(now_s)

    async def _move(self, agent: Agent, daemon: SimulatedDaemon) -> None:
        await super()._move(agent, daemon)
        for session in SESSIONS:
            _check_joined(daemon, session)

    def _read(self, agent: FullAgent, session: str) -> None:
        """Somebody reads a file, as often as not the one that it has just written to."""
        is_wire = self._chance.random() < 0.7
        done = [order for order in agent.orders if order.fate is Fate.DONE]
        if done and self._chance.random() < 0.5:
            session = done[-1].session
            is_wire = isinstance(done[-1].command, commands.AppendWire)
        agent.read_file(session, self._done(session), is_wire=is_wire)

    def _done(self, session: str) -> list[Order]:
        """Every order for a session that anybody knows to be done."""
        return [
            order
            for agent in self.agents
            for order in agent.orders
            if order.session == session
            and order.fate is Fate.DONE
            and isinstance(order.command, commands.Mutation)
        ]

    def _gone(self) -> frozenset[str]:
        return frozenset[str]().union(*(agent.known_gone() for agent in self._full_agents))

    # --- the end ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        for agent in self.agents:
            # Who has no room is asked again by the housekeeping alone, which takes its time.
            agent.under_way_max = UNDER_WAY_MAX
        for session in SESSIONS:
            # A torn wire file, too, is mended by its next opening for writing.
            self.agents[0].watch(session, self.now_s, TIMEOUT_S, "wire")
        await super()._settle()

    async def _settle_all(self, daemon: SimulatedDaemon) -> None:
        for agent in self._full_agents:
            # No model thinks any longer; what was committed has its answer to get.
            for summing in agent.compactions:
                summing.is_over = True
        await super()._settle_all(daemon)

    def _look_once_more(self) -> None:
        for session in SESSIONS:
            self._full_agents[0].look(session, self.now_s, self._gone(), is_last=True)

    def _unsettled(self) -> list[str]:
        found = super()._unsettled()
        for agent in self._full_agents:
            found += [f"a look at {each.session}" for each in agent.looks if _is_open(each)]
            found += [f"{each.order.key} again" for each in agent.copies if _is_open(each)]
        return found


def _check_joined(daemon: SimulatedDaemon, session: str) -> None:
    """No event is joined to what a power cut could take from the context."""
    found = daemon.registry.known(session)
    wire = found.opened("wire") if found is not None else None
    if found is not None and wire is not None:
        machine, head = wire.machine, found.context.feed.head
        if isinstance(machine, WireMachine):
            floor = machine._floor
            assert floor <= head, f"{session}: an event is joined to {floor}, durable is {head}"


def _is_open(asked: object) -> bool:
    return not asked.pending.is_done


def play_full(seed: int) -> FullSimulation:
    """Play one seed, and return what it left.

    Raises:
        AssertionError: a promise was broken; the message names the seed.
    """
    simulation = FullSimulation(seed)
    run_seed(seed, simulation.run, lambda: simulation.now_s)
    return simulation
