"""The simulation of a replicated session: two hosts, their deaths, and a journal with faults."""

import random
from contextlib import ExitStack, suppress
from unittest.mock import patch

from anyio.abc import TaskGroup

from sim.files import Folder
from sim.hosts import TREE, HostWriters, SimulatedHost
from sim.hosts_forks import HostsForks
from sim.journal_files import JournalFiles
from sim.orders import done
from sim.session_simulation import DEATH_SHARES, STEPS, SessionSimulation
from sim.verdicts.orders import Tree
from sim.worlds import World
from sim.writers import WireSent, Writers
from steno_protocol import paths
from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack
from stenod_cluster import limits
from stenod_cluster.mirror import is_replicated
from stenod_cluster.owned_folder import is_hint
from support.lines import SESSION
from support.memory_journal import Fault, MemoryStream
from support.simulated_disk import MOMENTS, Death, PowerCut, SimulatedDisk

RATES = {
    Fault.UNANSWERED: 0.04, Fault.DROPPED: 0.03, Fault.LATE: 0.04, Fault.UNREACHED: 0.03,
    Fault.STALE: 0.2,
}  # fmt: skip
SHORT = {"JOURNAL_MARK_BYTES": 600, "JOURNAL_COPY_BYTES_MIN": 40}
"""Limits that a session of some lines reaches, too."""
SMALL = {"JOURNAL_DATA_BYTES_MAX": 150, "JOURNAL_BODY_BYTES_MAX": 700}


class HostsSimulation(SessionSimulation):
    """One seed of the world `hosts`.

    Attributes:
        stream: the servers.
        hosts: those that write the session.
    """

    lives = 4

    def __init__(self, seed: int, world: World, disk: SimulatedDisk | None = None) -> None:
        super().__init__(seed, world, disk)
        self._events = random.Random(f"hosts {seed}")
        rates = RATES if world.bad_journal else {}
        self.stream = MemoryStream(seed, rates, lambda: self.wall_s)
        self._truth = JournalFiles(self.stream, SESSION)
        self._forks = HostsForks(self.stream, seed)
        disks = [self.disk, SimulatedDisk(seed + 1)]
        self.hosts = [
            SimulatedHost(self.stream, name, disk)
            for name, disk in zip(("one", "two"), disks, strict=True)
        ]
        self._at = self.hosts[0]

    async def run(self) -> None:
        """See `Simulation`."""
        with ExitStack() as held:
            shortened = {**SHORT, **(SMALL if self.world.small_messages else {})}
            for name, value in shortened.items():
                held.enter_context(patch.object(limits, name, value))
            await super().run()

    # --- lives -----------------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[TaskGroup, int]:
        self._tick()
        for host in self.hosts:
            self._pass_time(host)
            self._boot(host, tasks)
        victim = self._events.choice(self.hosts)
        self.disk = victim.simulated
        call, moment = self._chance.randint(0, 60), self._chance.choice(MOMENTS)
        self._plan_death(self._chance.random(), call, DEATH_SHARES, moment)
        self._go_to(self._at)
        return tasks, self._chance.randint(3, STEPS)

    def _boot(self, host: SimulatedHost, tasks: TaskGroup) -> None:
        """Start the process of a host."""
        before = self._at
        self._at, self.disk = host, host.simulated
        self._make_writers(tasks, at_once=self.world.at_once)
        self._at, self.disk = before, before.simulated

    def _make_writers(self, tasks: TaskGroup, *, at_once: bool) -> HostWriters:
        self._at.start()
        return self._open_desk(self._at, tasks)

    def _open_desk(self, host: SimulatedHost, tasks: TaskGroup) -> HostWriters:
        desk = HostWriters(host, self._truth, tasks, wall_s=self.wall_s)
        host.desk = desk
        self._serve(desk)
        return desk

    def _start(self, tasks: TaskGroup) -> Writers:
        desk = super()._start(tasks)
        # The process before this one is dead for sure.
        self._at.now += 100.0
        return desk

    def _evict(self) -> None:
        # A host that never had the session has no folder.
        with suppress(FileNotFoundError):
            super()._evict()

    async def _drain(self, daemon: TaskGroup) -> None:
        for host in self.hosts:
            if host.desk is not None:
                self.disk = host.simulated
                await super()._drain(host.desk)
                if not self.disk.died and self._events.random() < 0.5:
                    await host.mortal.rest()
                    host.ownership.close()

    def _kill(self, daemon: TaskGroup) -> None:
        for host in self.hosts:
            self._bury(host)

    def _bury(self, host: SimulatedHost) -> None:
        """End the process of a host, with its machine if that lost its power."""
        if host.desk is None:
            return
        self._leave()
        self.disk = disk = host.simulated
        is_cut = disk._death is PowerCut or (not disk.died and self.world.power_cuts)
        super()._kill(host.desk)
        if is_cut:
            host.boot_again()
        host.end()

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: TaskGroup) -> None:
        for host in self.hosts:
            self._pass_time(host)
            self._disturb(host)
        for host in self.hosts:
            if not host.simulated.died:
                host.beat()
        before = self._at
        is_out = self._at.desk is None or self.stream.is_cut_off(self._at.name)
        if self._events.random() < (0.6 if is_out else 0.15):
            self._go_to(self._events.choice(self.hosts))
        if self._at.desk is None:
            self._boot(self._at, daemon)
        self._go_to(self._at)
        if self._events.random() < 0.15:
            await self._shorten(self._at)
        if self.world.has_forks and self._forks.is_due:
            await self._ask_for_forks(self._at)
        assert self._at.desk is not None
        if self._at is not before and self._events.random() < 0.5:
            await self._repeat_newest(self._at.desk)
        await super()._step(self._at.desk)
        for host in self.hosts:
            if host.desk is not None and host.lost and self._events.random() < 0.5:
                await self._close_lost(host, host.desk, daemon)
            if host.simulated.died:
                self._bury(host)

    async def _repeat_newest(self, desk: HostWriters) -> None:
        """Repeat to a host, too late, what another one did: it may still count itself the owner."""
        for order in done(self.orders)[-2:]:
            with suppress(StenoError):
                late = desk.now_s - 1
                again = desk.send(order.repeated(repeat=True), *order.records, deadline_s=late)
                order.copies.append(again)
            await desk.settle(3)

    async def _shorten(self, host: SimulatedHost) -> None:
        """Let a host publish a copy of the session, and purge what is before it."""
        await host.mortal.rest()
        with suppress(OSError, StenoError, Death):
            host.ownership.shorten(SESSION)
            host.log.append("shortened")

    async def _ask_for_forks(self, host: SimulatedHost) -> None:
        """Let a host make a fork, or do something with one."""
        assert host.desk is not None
        with suppress(OSError, StenoError, Death):
            opened = await host.desk.writer.open()
            await host.mortal.rest()
            self._forks.note()
            self._forks.ask(host, opened)
            host.log.append("forked")
        if not host.simulated.died:
            host.close()
        self._forks.note()

    async def _close_lost(self, host: SimulatedHost, desk: HostWriters, tasks: TaskGroup) -> None:
        """Close the session on a host that lost it; the process lives on."""
        if host is self._at:
            self._leave()
        host.lost.clear()
        for writer in (desk.wire, desk.stream, desk.writer):
            writer.mailbox.close()
        await desk.settle(100)
        if not host.simulated.died:
            self._take_answers()
            desk.end()
            self._open_desk(host, tasks)

    def _follow(self, desk: Writers) -> None:
        if self._owns(desk):
            super()._follow(desk)

    def _follow_wire(self, desk: Writers) -> None:
        if self._owns(desk):
            super()._follow_wire(desk)

    def _follow_stream(self, desk: Writers) -> None:
        if self._owns(desk):
            super()._follow_stream(desk)

    def _owns(self, desk: Writers) -> bool:
        """Whether a host owns the session; a stale owner does not know yet what came since."""
        assert isinstance(desk, HostWriters)
        last = self._truth.last
        return last is not None and last.owner == desk.host.hosts.owner

    def _go_to(self, host: SimulatedHost) -> None:
        """Let the clients talk to a host from now on."""
        if host is not self._at:
            self._leave()
            for order in self.orders:
                # Another daemon knows nothing of it.
                order.is_unknown = False
        self._at, self.disk = host, host.simulated

    def _leave(self) -> None:
        """Let the followers leave the host that the clients talk to."""
        desk = self._at.desk
        beside = [self._wire_follower, self._stream_follower]
        for follower in (*self._followers, *beside):
            if follower.subscriber is not None and desk is not None:
                for feed in (desk.feed, desk.wire_feed, desk.stream_feed):
                    feed.remove(follower.subscriber)
                # A task of the feed may still be reading for it.
                follower.subscriber.send = _nobody
            follower.subscriber = None

    def _pass_time(self, host: SimulatedHost) -> None:
        host.now += self._events.choice([0.1, 0.5, 1.0, 3.0])

    def _disturb(self, host: SimulatedHost) -> None:
        """Cut a host off from the journal, or from the others' sight, or end that."""
        if not self.world.bad_journal:
            return
        drawn = self._events.random()
        if drawn < 0.07:
            self.stream.partition(host.name)
        elif drawn < 0.2:
            self.stream.heal(host.name)
        elif drawn < 0.3:
            host.set_silent(True)
        elif drawn < 0.5:
            host.set_silent(False)

    # --- the end ---------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.stream.rates = {}
        self.stream.settle()
        for host in self.hosts:
            self.stream.heal(host.name)
            host.set_silent(False)
            host.now += 100.0
            self.disk = host.simulated
            super()._heal()
        self._go_to(self._events.choice(self.hosts))

    def _judge(self) -> None:
        third = SimulatedHost(self.stream, "three", SimulatedDisk(self._seed + 2))
        for host in (*self.hosts, third):
            self._check_takeover(host)
        self.disk = third.simulated
        super()._judge()

    def _judge_events(self, folder: Folder, tree: Tree) -> None:
        # What was acknowledged as written is lost with its owner, and may come to the same line.
        self._wire_answers = [sent for sent in self._wire_answers if _is_synced(sent)]
        super()._judge_events(folder, tree)

    def _check_takeover(self, host: SimulatedHost) -> None:
        """A host that takes the session over has the files of the journal."""
        host.simulated.kill()
        host.end()
        host.start()
        for each in self.hosts:
            each.now += 100.0
        host.now += 200.0
        self._check_files(host, SESSION, self._truth)
        for fork in self._forks.kept:
            if fork.is_made or fork.truth.now():
                found = self._check_files(host, fork.name, fork.truth)
                context = found[paths.CONTEXT]
                assert context.startswith(fork.begins), f"{fork} begins with {context!r}"
                lost = [each for each in fork.lines if context.count(each) != 1]
                assert not lost, f"{fork} has not {lost} once"

    def _check_files(
        self, host: SimulatedHost, session: str, truth: JournalFiles
    ) -> dict[str, bytes]:
        try:
            host.ownership.acquire(session)
            if session != SESSION:
                # What this host alone wrote without an answer counts from its next opening on.
                host.open(session, create=False)
                host.close()
        except (OSError, StenoError) as error:
            raise AssertionError(f"{host.name} cannot take {session} over: {error!r}") from error
        wanted = {name: data for name, data in truth.now().items() if _is_lasting(name)}
        above = f"{TREE}/{session}/"
        files = {
            path.removeprefix(above): content
            for path, content in host.simulated.tree().items()
            if path.startswith(above) and _is_lasting(path.removeprefix(above))
        }
        assert files == wanted, f"{host.name} has other files of {session} than the journal"
        return files


def _nobody(*_: object) -> bool:
    return True


def _is_synced(sent: WireSent) -> bool:
    return isinstance(sent.answer, Ack) and sent.answer.durability == "synced"


def _is_lasting(name: str) -> bool:
    return is_replicated(name) and not is_hint(name)
