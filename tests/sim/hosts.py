"""The hosts of a simulated cluster: each has a disk, a journal and the writers of one session."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import anyio.lowlevel
from anyio.abc import TaskGroup

from sim.journal_files import JournalFiles
from sim.writers import Writers
from steno_protocol import paths
from stenod.recovery.opened import Opened, OpenOptions
from stenod.store.disk import Disk
from stenod_cluster.journal import (
    ForeignMessage,
    InDoubt,
    Journal,
    JournalLost,
    Marker,
    Message,
    Owner,
    Publication,
)
from support.commits import TestCommits
from support.lines import SESSION
from support.memory_journal import MemoryStream
from support.replicated import Host, HostJournal
from support.simulated_disk import Call, PowerCut, SimulatedDisk
from support.writing import PATH

T = TypeVar("T")

TREE = PATH.rpartition("/")[0]


class MortalJournal(Journal):
    """A journal whose calls fail and die as those of the disk.

    Args:
        journal: the journal.
        disk: counts a publication as one of its calls.
        chance: draws how long a publication is under way.

    Attributes:
        is_silent: its process says nothing to the others, as a stopped one.
        under_way: publications that the event loop awaits.
    """

    def __init__(self, journal: HostJournal, disk: SimulatedDisk, chance: random.Random) -> None:
        self._journal = journal
        self._disk = disk
        self._chance = chance
        self._is_dead = False
        self.under_way = 0
        self.listen = journal.listen
        self.is_silent = False

    def publish(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """See `Journal`."""
        return [self._publish(publication) for publication in publications]

    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """See `Journal`; other tasks of the process run meanwhile."""
        self.under_way += 1
        try:
            for _ in range(self._chance.choice([0, 1, 2, 8])):
                await anyio.lowlevel.checkpoint()
            if self._is_dead:
                raise PowerCut
            return self.publish(publications)
        finally:
            self.under_way -= 1

    async def rest(self) -> None:
        """Return when the event loop awaits no publication: a thread would wait for its lock."""
        while self.under_way:
            await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """End with the process."""
        self._is_dead = True
        self._journal.close()

    def marker(self) -> Marker:
        """See `Journal`."""
        return self._journal.marker()

    def confirm(self) -> None:
        """See `Journal`."""
        self._journal.confirm()

    def last_of(
        self, subjects: Sequence[str], *, at_leader: bool = False
    ) -> list[Message | ForeignMessage | None]:
        """See `Journal`."""
        return self._asked(
            "last",
            " ".join(subjects),
            lambda: self._journal.last_of(subjects, at_leader=at_leader),
        )

    def read(self, subject: str, after: int, last: int) -> Iterator[Message]:
        """See `Journal`."""
        yield from self._asked("read", subject, lambda: self._journal.read(subject, after, last))

    def names(self, above: str | None = None, *, oldest: bool = False) -> list[str]:
        """See `Journal`."""
        return self._journal.names(above, oldest=oldest)

    def purge(self, subject: str, before: int, after: int = 0) -> None:
        """See `Journal`."""
        self._journal.purge(subject, before, after)

    def announce(self, owner: Owner, topic: str, body: bytes) -> None:
        """See `Journal`."""
        if not self.is_silent:
            self._journal.announce(owner, topic, body)

    def _publish(self, publication: Publication) -> int | OSError:
        call = Call("publish", publication.subject, publication.kind)
        try:
            return self._disk._change(call, lambda: self._journal.publish([publication])[0])
        except OSError as error:
            return InDoubt(None, f"the answer was lost: {error}")

    def _asked(self, method: str, folder: str, ask: Callable[[], T]) -> T:
        try:
            return self._disk._look(Call(method, folder), ask)
        except JournalLost:
            raise
        except OSError as error:
            raise JournalLost(None, f"no server answers: {error}") from error


class SimulatedHost(Host):
    """A host on a simulated disk.

    Attributes:
        desk: the writers of its process; None while it is dead.
        lost: the folders that others took over, until their files are closed.
    """

    def __init__(self, stream: MemoryStream, name: str, disk: SimulatedDisk) -> None:
        self.simulated = disk
        self.desk: HostWriters | None = None
        self.lost: list[str] = []
        super().__init__(stream, name, TREE, disk)

    def start(self) -> None:
        """Begin a process."""
        super().start()
        self.lost.clear()
        self.ownership.on_lost = self.lost.append

    def boot_again(self) -> None:
        """Let its next process be one of another boot: the machine lost its power."""
        self.boot = f"boot-{self._starts + 1}"

    def beat(self) -> None:
        """Say that it lives, if it does."""
        if self.desk is not None:
            self.hosts.tell_alive()

    def set_silent(self, is_silent: bool) -> None:
        """Let the others hear of it, or not."""
        self.mortal.is_silent = is_silent

    @property
    def mortal(self) -> MortalJournal:
        """Its journal."""
        assert isinstance(self.journal, MortalJournal)
        return self.journal

    def end(self) -> None:
        """End its process without a word."""
        self.journal.close()
        # What was open in it has other handles in the next one.
        self._opened.clear()
        if self.desk is not None:
            self.desk.end()
            self.desk = None

    def _join(self) -> HostJournal:
        chance = random.Random(f"{self.name} {self._starts} {self.stream.seed}")
        return MortalJournal(super()._join(), self.simulated, chance)


class HostCommits(TestCommits):
    """The commits of a daemon in a cluster: in threads, which wait for publications under way."""

    def __init__(self, host: SimulatedHost) -> None:
        super().__init__()
        self.groups_max = 3
        self._host = host

    async def __call__(self, work: Callable[[], T], files: int = 1) -> T:
        """See `Commits`."""
        await anyio.lowlevel.checkpoint()
        await self._host.mortal.rest()
        return self.here(work)


class HostWriters(Writers):
    """The writers of a session in the process of one host."""

    def __init__(
        self, host: SimulatedHost, truth: JournalFiles, tasks: TaskGroup, *, wall_s: float
    ) -> None:
        super().__init__(
            host.simulated, tasks, shared=False, wall_s=wall_s, commits=HostCommits(host)
        )
        self.host = host
        self._truth = truth
        self._has_ended = False

    def end(self) -> None:
        """Leave nothing behind that touches the disk or the journal of the next process."""
        self._has_ended = True
        super().end()

    def durable(self) -> bytes:
        """The present file as a majority of the servers has it."""
        return self.file()

    def file(self, name: str = paths.CONTEXT) -> bytes:
        """A present file as a majority of the servers has it."""
        return self._truth.now().get(name, b"")

    async def _read(self, work: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        await self.host.mortal.rest()
        if self._has_ended:
            raise PowerCut
        return work()

    def _reached(self) -> tuple[Disk, int]:
        disk = self.host.disk
        tree = disk.open_root(TREE)
        try:
            return disk, disk.open_folder(tree, SESSION, create=True)
        finally:
            disk.close(tree)

    def _opener(self, how: OpenOptions) -> Opened:
        self.host.ownership.forget_unpublished(SESSION)
        self.host.ownership.acquire(SESSION)
        return super()._opener(how)
