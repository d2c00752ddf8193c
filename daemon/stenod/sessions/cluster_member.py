"""The cluster as sessions see it: who may change a session, and how it goes to another daemon."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from steno_protocol.errors import BadRequest
from steno_protocol.replies import ClusterReport
from stenod.store.disk import Disk


class Elsewhere(msgspec.Struct, frozen=True):
    """A session whose files on this disk, if there are any, are perhaps not its last state.

    Attributes:
        session: its id.
        endpoint: where clients reach its owner; None if the session was removed.
        changed_at: Unix time in seconds of its last change.
        is_own: this daemon owns it, and has not opened it since it came from another one.
    """

    session: str
    endpoint: str | None
    changed_at: float
    is_own: bool = False


class ClusterMember(Protocol):
    """A daemon that shares its root's sessions with other daemons; all methods block."""

    def own(self, session: str, *, for_reading: bool = False) -> None:
        """Own a closed session, and make its files equal to the journal.

        Args:
            session: the session.
            for_reading: fail at once if the session has files here and nobody can be asked.

        Raises:
            Held: a living daemon owns it.
            StenoError, OSError: it cannot be owned now.
        """
        ...

    def join(self, sessions: Sequence[str]) -> list[str]:
        """Own sessions of this root that the cluster never had; it has all of them on return.

        Returns:
            The others, about which `own` decides.

        Raises:
            OSError: the disk failed; some of them are owned.
        """
        ...

    def follow(self, session: str) -> None:
        """Make the files of a session that another daemon owns equal to the journal, as it is now.

        Raises:
            StenoError, OSError: the journal or the disk failed.
        """
        ...

    @property
    def is_sure(self) -> bool:
        """True while no other daemon can own what this one owns, as far as clocks can tell."""
        ...

    def is_stale(self, session: str) -> bool:
        """Return whether another daemon may have changed an owned session unnoticed.

        Raises:
            Held: another daemon owns it.
        """
        ...

    def is_list_stale(self) -> bool:
        """Return whether the list of the cluster's sessions may lack what other daemons did."""
        ...

    def others(self, prefix: str, after: str, limit: int) -> list[Elsewhere]:
        """List the sessions that other daemons own or removed, in order of their ids.

        Args:
            prefix: only ids that begin with this.
            after: only ids after this one.
            limit: the first so many that are not removed.

        Raises:
            OSError: the journal failed.
        """
        ...

    def shorten(self, session: str) -> None:
        """Publish a copy of the whole session, and remove what the journal has before it.

        Raises:
            Held: a living daemon owns it.
            OSError: the journal or the disk failed; nothing is lost.
        """
        ...

    def give(self, session: str, host: str) -> None:
        """Give a closed session to another daemon.

        Raises:
            NotFound: no living daemon has this identity or endpoint.
            OSError: the journal failed.
        """
        ...

    def moved(self, session: str, key: str) -> str | None:
        """Return where the command with a key brought a session, on whichever daemon.

        Args:
            session: the id before a rename or deletion, or behind a rename or restoration.
            key: of the command.

        Returns:
            The id, or the path in the session tree of a folder in the trash; None if no such
            command took place.

        Raises:
            OSError: the journal or the disk failed.
        """
        ...

    def fetch_deleted(self, session: str) -> None:
        """Bring what any daemon deleted under the id of a session into the trash of this disk.

        Raises:
            StenoError, OSError: the journal or the disk failed.
        """
        ...

    def report(self, prefix: str, after: str | None, limit: int) -> ClusterReport:
        """Report the cluster, with up to so many sessions."""
        ...


class ReplicatedDisk(ClusterMember, Protocol):
    """What an engine of replication gives to the daemon that loads it by name."""

    @property
    def disk(self) -> Disk:
        """The disk whose writes the cluster has, too, before they are acknowledged."""
        ...

    def check_promises(self, *, is_lazy_allowed: bool) -> None:
        """Check that the servers store what they acknowledge as the configuration promises.

        Raises:
            StenoError: they do not, or cannot be asked.
        """
        ...

    async def serve(self, lose: Callable[[str], Awaitable[None]]) -> None:
        """Take part in the cluster until cancelled; `lose` is told each session that is lost."""
        ...

    def close(self) -> None:
        """Leave the cluster; blocks."""
        ...


def not_replicated(why: str, session: str) -> BadRequest:
    """Return the error for a command with durability `replicated` that no other machine gets."""
    return BadRequest(
        f"{session} cannot be `replicated`, because {why}: ask for the durability `synced`",
        session=session,
    )


def no_cluster() -> BadRequest:
    """Return the error for a command that needs a cluster."""
    return BadRequest(
        "this daemon is in no cluster: add the table [replication] to its config.toml, and restart"
        " it (`steno cluster config` prints one)"
    )
