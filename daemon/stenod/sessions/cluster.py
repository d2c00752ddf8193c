"""The cluster as sessions see it: who may change a session, and how it goes to another daemon."""

from typing import Protocol

from steno_protocol.errors import BadRequest
from steno_protocol.replies import ClusterReport


class ClusterMember(Protocol):
    """A daemon that shares its root's sessions with other daemons; all methods block."""

    def own(self, session: str) -> None:
        """Own a closed session, and make its files equal to the journal.

        Raises:
            Held: a living daemon owns it.
            StenoError, OSError: it cannot be owned now.
        """
        ...

    def give(self, session: str, host: str) -> None:
        """Give a closed session to another daemon.

        Raises:
            NotFound: no living daemon has this identity or endpoint.
            OSError: the journal failed.
        """
        ...

    def report(self, prefix: str, after: str | None, limit: int) -> ClusterReport:
        """Report the cluster, with up to so many sessions."""
        ...


def not_replicated(why: str, session: str) -> BadRequest:
    """Return the error for a command with durability `replicated` that no other machine gets."""
    return BadRequest(
        f"{session} cannot be `replicated`, because {why}: ask for the durability `synced`, or set"
        " up a cluster (`steno cluster config` prints how)",
        session=session,
    )


def no_cluster() -> BadRequest:
    """Return the error for a command that needs a cluster."""
    return BadRequest(
        "this daemon is in no cluster: add the table [replication] to its config.toml, and restart"
        " it (`steno cluster config` prints one)"
    )
