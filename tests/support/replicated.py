"""Hosts of a cluster without processes: each has a folder, a disk and a journal in memory."""

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from steno_protocol.errors import StenoError
from stenod.recovery import file_opening
from stenod.recovery.opened import Opened, Opening
from stenod.store.disk import Disk
from stenod.store.posix import PosixDisk
from stenod_cluster.disk import ReplicatedDisk
from stenod_cluster.hosts import Hosts
from stenod_cluster.journal import Announcements, Journal, Owner
from stenod_cluster.ownership import Ownership
from support.memory_journal import MemoryStream


def line(text: str) -> bytes:
    """A line of a session file."""
    return b'{"role":"user","content":"%s"}\n' % text.encode()


class HostJournal(Journal, Announcements, Protocol):
    """The journal of one process of a host."""

    def close(self) -> None:
        """End with the process."""
        ...


class Host:
    """One daemon's replication.

    Attributes:
        tree: the path of its session tree.
        now: the time on its clock.
        boot: its machine's boot.
    """

    def __init__(
        self, stream: MemoryStream, name: str, tree: str, disk: Disk | None = None
    ) -> None:
        self.tree = tree
        self.name = name
        self.stream = stream
        self.local: Disk = PosixDisk() if disk is None else disk
        self.now = 0.0
        self.boot = "boot-1"
        self.log: list[str] = []
        self._starts = 0
        self._opened: list[Opened] = []
        self.local.close(self.local.open_root(tree, create=True))
        self.start()

    def start(self) -> None:
        """Begin a process: nothing of the one before is known but what is on the disk."""
        self.close()
        self._starts += 1
        owner = Owner(self.name, str(self._starts), f"ipc:///{self.name}")
        self.journal = self._join()
        self.hosts = Hosts(
            self.journal,
            owner,
            2.5,
            lambda: self.now,
            # The ownership comes later.
            lambda folder, owner: self._hear_taken(folder, owner),  # noqa: PLW0108
            lambda _: None,
            lambda folder, giver: self._hear_given(folder, giver),  # noqa: PLW0108
        )
        # All words are heard at once, or never.
        self.hosts.answer_s = 0.0
        self.ownership = Ownership(
            self.local, self.tree, self.journal, self.hosts,
            lambda event, **_: self.log.append(event), self.boot,
        )  # fmt: skip
        self.disk = ReplicatedDisk(self.local, self.tree, self.ownership)

    def _hear_taken(self, session: str, owner: Owner) -> None:
        self.ownership.lose(session, owner)
        with suppress(OSError):
            self.ownership.look_for_losses()

    def _hear_given(self, session: str, giver: Owner) -> None:
        with suppress(OSError, StenoError):
            self.ownership.take(session, giver)

    def _join(self) -> HostJournal:
        return self.stream.join(self.name)

    def open(self, session: str, *, create: bool = True) -> Opened:
        """Open a session as its writer does."""
        self.ownership.acquire(session)
        disk = self.disk
        handle = disk.open_root(self.tree)
        for segment in session.split("/"):
            parent, handle = handle, disk.open_folder(handle, segment, create=create)
            disk.close(parent)
        opening = Opening(
            session=session, path=f"{self.tree}/{session}", now=1000.0, incarnation="i" * 16,
            create=create,
        )  # fmt: skip
        opened = file_opening.open_session(disk, handle, opening)
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        """Close all sessions without a word to anybody, as the end of the process does."""
        while self._opened:
            self._opened.pop().log.close()

    def content(self, session: str) -> dict[str, bytes]:
        """The session's replicated files on this host, as any process sees them."""
        folder = Path(self.tree, session)
        return {
            each.name: each.read_bytes()
            for each in sorted(folder.iterdir())
            if each.is_file() and ".mark" not in each.name
        }
