"""Facts about the servers of a cluster, and whether they keep what an ack promises."""

from enum import StrEnum
from typing import Final

import msgspec

from steno_protocol.replies import ClusterStream

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
        name: its name in the cluster, empty if it did not answer.
        syncing: when it syncs.
        trouble: why it did not answer, empty if it did.
    """

    name: str = ""
    syncing: Syncing = Syncing.UNKNOWN
    trouble: str = ""


class ClusterFacts(msgspec.Struct, frozen=True):
    """The servers as one daemon sees them.

    Attributes:
        connected: the address of the server it is connected to, empty if it is to none.
        trouble: why it is not connected, or what failed last.
        streams: the streams of the cluster.
        wanted: replicas that the configuration of a stream asks for; 0 if nobody said so.
        servers: the servers whose monitoring was asked.
    """

    connected: str = ""
    trouble: str = ""
    streams: tuple[ClusterStream, ...] = ()
    wanted: int = 0
    servers: tuple[ServerFacts, ...] = ()


def broken_promises(facts: ClusterFacts) -> list[str]:
    """Returns why an ack of this cluster does not survive the loss of a server; empty if it does.

    Each is a sentence that says what to do.
    """
    few = [
        f"stream {stream.name} has {facts.wanted} replicas, and needs {REPLICAS_LEAST} to survive"
        f" the loss of one: `nats stream edit {stream.name} --replicas {REPLICAS_LEAST}`"
        for stream in facts.streams
        if 0 < facts.wanted < REPLICAS_LEAST
    ]
    return [*few, *_lazy_servers(facts)]


def _lazy_servers(facts: ClusterFacts) -> list[str]:
    replicas = {each.name: each for stream in facts.streams for each in stream.replicas}
    lazy = sorted(name for name, each in replicas.items() if each.syncing == Syncing.LAZY)
    # A server that is down answers nobody, and acknowledges nothing: without it the promise holds.
    unknown = sorted(
        name
        for name, each in replicas.items()
        if each.syncing == Syncing.UNKNOWN and each.current and not each.offline
    )
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
