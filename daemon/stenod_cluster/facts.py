"""Facts about the servers of a cluster, and whether they keep what an ack promises."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

REPLICAS_LEAST: Final = 3
"""Replicas that survive the loss of one of them, with a majority that answers."""


class Syncing(StrEnum):
    """When a server syncs what it stores.

    Attributes:
        ALWAYS: before it acknowledges.
        LAZY: later, every two minutes by default; a power cut loses what it acknowledged.
        UNKNOWN: nobody could ask it.
    """

    ALWAYS = "always"
    LAZY = "lazy"
    UNKNOWN = "unknown"


class ServerFacts(msgspec.Struct, frozen=True):
    """What the monitoring of a server answers.

    Attributes:
        monitor: the address that was asked.
        name: its name in the cluster, empty if it did not answer.
        version: its version.
        syncing: when it syncs.
        trouble: why it did not answer, empty if it did.
    """

    monitor: str
    name: str = ""
    version: str = ""
    syncing: Syncing = Syncing.UNKNOWN
    trouble: str = ""


class ReplicaFacts(msgspec.Struct, frozen=True):
    """A server that stores a stream.

    Attributes:
        name: its name in the cluster.
        is_leader: it takes the messages.
        is_current: it has all that the leader has.
        is_offline: the leader does not hear it.
        lag: messages that it lacks.
        syncing: when it syncs.
    """

    name: str
    is_leader: bool = False
    is_current: bool = True
    is_offline: bool = False
    lag: int = 0
    syncing: Syncing = Syncing.UNKNOWN

    @property
    def is_down(self) -> bool:
        """Whether neither the leader nor its monitoring has heard of it lately."""
        return self.syncing is Syncing.UNKNOWN and (self.is_offline or not self.is_current)


class StreamFacts(msgspec.Struct, frozen=True):
    """A stream.

    Attributes:
        name: its name.
        replicas: the servers that store it, the leader first; empty if nobody answered for it.
        wanted: replicas that its configuration asks for.
        folders: folders with messages in it.
        messages: number of its messages.
        size_bytes: bytes of its messages.
        size_bytes_max: bytes that it may have, -1 for as many as the servers have.
        trouble: why nobody answered for it, empty if somebody did.
    """

    name: str
    replicas: tuple[ReplicaFacts, ...] = ()
    wanted: int = 0
    folders: int = 0
    messages: int = 0
    size_bytes: int = 0
    size_bytes_max: int = -1
    trouble: str = ""

    @property
    def leader(self) -> str:
        """The name of the leader, empty if there is none."""
        return next((replica.name for replica in self.replicas if replica.is_leader), "")


class ClusterFacts(msgspec.Struct, frozen=True):
    """The servers as one daemon sees them.

    Attributes:
        connected: the address of the server it is connected to, empty if it is to none.
        trouble: why it is not connected, or what failed last.
        streams: the streams of the cluster.
        servers: the servers whose monitoring was asked.
    """

    connected: str = ""
    trouble: str = ""
    streams: tuple[StreamFacts, ...] = ()
    servers: tuple[ServerFacts, ...] = ()

    @property
    def syncing(self) -> Syncing:
        """When the laziest server syncs that stores a stream; unknown if one is not known."""
        found = {replica.syncing for stream in self.streams for replica in stream.replicas}
        if Syncing.LAZY in found:
            return Syncing.LAZY
        return Syncing.ALWAYS if found == {Syncing.ALWAYS} else Syncing.UNKNOWN


def broken_promises(facts: ClusterFacts) -> list[str]:
    """Returns why an ack of this cluster does not survive the loss of a server; empty if it does.

    Each is a sentence that says what to do.
    """
    return [*_few_replicas(facts.streams), *_lazy_servers(facts)]


def _few_replicas(streams: Iterable[StreamFacts]) -> list[str]:
    return [
        f"stream {stream.name} has {stream.wanted} replicas, and needs {REPLICAS_LEAST} to survive"
        f" the loss of one: `nats stream edit {stream.name} --replicas {REPLICAS_LEAST}`"
        for stream in streams
        if 0 < stream.wanted < REPLICAS_LEAST
    ]


def _lazy_servers(facts: ClusterFacts) -> list[str]:
    replicas = {
        replica.name: replica.syncing for stream in facts.streams for replica in stream.replicas
    }
    lazy = sorted(name for name, syncing in replicas.items() if syncing is Syncing.LAZY)
    unknown = sorted(name for name, syncing in replicas.items() if syncing is Syncing.UNKNOWN)
    # A server that is down answers nobody, and acknowledges nothing: without it the promise holds.
    down = {
        replica.name for stream in facts.streams for replica in stream.replicas if replica.is_down
    }
    unknown = [name for name in unknown if name not in down]
    found: list[str] = []
    if lazy:
        found.append(
            f"{', '.join(lazy)} acknowledge before they sync, so a power cut loses acknowledged"
            " records: set `sync_interval: always` in the jetstream block of their configuration"
        )
    if unknown:
        asked = "; ".join(server.trouble for server in facts.servers if server.trouble)
        found.append(
            f"nothing shows when {', '.join(unknown)} sync: set replication.monitors to the"
            f" addresses of their monitoring, such as http://host:8222"
            f"{f' ({asked})' if asked else ''}"
        )
    return found
