"""Forks of the session of the world `hosts`: made, written, shortened and removed by its hosts."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from sim.hosts import TREE, SimulatedHost
from sim.journal_files import JournalFiles
from steno_protocol import paths
from stenod.recovery.opened import Opened
from stenod.runtime.config import Config
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from support.cluster_commands import ClusterCommands
from support.lines import SESSION
from support.memory_journal import MemoryStream
from support.replicated import line
from support.stored_session import NOW_S


class SimulatedFolders(SessionFolders):
    """The session folders of a simulated disk, whose tree is no root's."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Config(Path(TREE), Path(TREE, "socket")), disk)

    def place(self, session: str) -> Place:
        """See `SessionFolders`."""
        return Place(session, Path(TREE), tuple(session.split("/")), shared=False)


@dataclass(slots=True)
class SimulatedFork:
    """A fork that a host was asked for.

    Attributes:
        name: its id.
        begins: the lines with which its context begins.
        truth: its files as its messages say.
        is_made: a host answered that it is there.
        is_ending: a host was asked to remove it.
        lines: the lines that a host acknowledged since.
    """

    name: str
    begins: bytes
    truth: JournalFiles
    is_made: bool = False
    is_ending: bool = False
    lines: list[bytes] = field(default_factory=list[bytes])


class HostsForks:
    """The forks of one seed.

    Args:
        stream: the servers.
        seed: decides everything.
    """

    def __init__(self, stream: MemoryStream, seed: int) -> None:
        self.all: list[SimulatedFork] = []
        self._stream = stream
        self._chance = random.Random(f"forks {seed}")
        self._lines = 0

    @property
    def is_due(self) -> bool:
        """Whether a host is asked for something now."""
        return self._chance.random() < 0.4

    @property
    def kept(self) -> list[SimulatedFork]:
        """Those that no host was asked to remove."""
        return [each for each in self.all if not each.is_ending]

    def note(self) -> None:
        """Note what the messages say, before any of them is removed."""
        for each in self.all:
            each.truth.now()

    def ask(self, host: SimulatedHost, opened: Opened) -> None:
        """Ask a host for something.

        Args:
            host: that host.
            opened: the files of the session, which its writer has open.

        Raises:
            OSError, StenoError, Death: it did not do it, or nobody knows.
        """
        drawn, known = self._chance.random(), self.kept
        if drawn < 0.4 or not known:
            self._fork(host, opened)
        elif drawn < 0.75:
            self._write(host, self._chance.choice(known))
        elif drawn < 0.87:
            host.ownership.shorten(self._chance.choice(known).name)
        else:
            self._remove(host, self._chance.choice(known))

    def _fork(self, host: SimulatedHost, session: Opened) -> None:
        source = self._chance.choice([SESSION, SESSION, *(each.name for each in self.kept)])
        opened = session if source == SESSION else host.open(source, create=False)
        generation = self._chance.randint(0, opened.log.generation)
        view = opened.log.view(generation)
        lines = view.read(view.size, 0).splitlines(keepends=True)
        view.release()
        kept = self._chance.choice([len(lines), self._chance.randint(0, len(lines))])
        name = f"fork-{len(self.all)}"
        made = SimulatedFork(name, b"".join(lines[:kept]), JournalFiles(self._stream, name))
        self.all.append(made)
        self._commands(host).fork(
            source, name, f"{generation}:{kept}", f"k-{name}", NOW_S, opened=opened
        )
        made.is_made = True

    def _write(self, host: SimulatedHost, fork: SimulatedFork) -> None:
        log = host.open(fork.name, create=False).log
        # An earlier one may be there without an answer.
        self._lines += 1
        text = line(f"line {self._lines} of {fork.name}")
        log.append(text)
        log.sync()
        fork.lines.append(text)

    def _remove(self, host: SimulatedHost, fork: SimulatedFork) -> None:
        fork.is_ending = True
        key = f"d-{fork.name}"
        self._commands(host).delete(fork.name, key, NOW_S)
        self._commands(host).expire(f"{paths.TRASH}/{int(NOW_S)}.{key}.{fork.name}")

    def _commands(self, host: SimulatedHost) -> ClusterCommands:
        return ClusterCommands(host, SimulatedFolders(host.disk))
