"""Replies about the daemon itself: hello, status, stats, configuration and clients."""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import assert_never

import msgspec

import steno_system as system
from steno_protocol import PROTOCOL_VERSION, __version__
from steno_protocol.commands import Clients, Configuration, Hello, Stats, Status
from steno_protocol.errors import Incompatible
from steno_protocol.limits import limits_in_hello
from steno_protocol.replies import (
    ClientsReport,
    ConfigurationReport,
    OptionEntry,
    Reply,
    StatsReport,
    StatusReport,
    Welcome,
)
from steno_protocol.settings import OPTIONS
from stenod.api.peers import Peer
from stenod.runtime.config import Config
from stenod.runtime.fd_limit import open_handles
from stenod.sessions.registry import Registry
from stenod.writer.services import Services

Question = Status | Stats | Configuration | Clients
"""Queries about the daemon itself."""


class Reporter:
    """Answers queries about the daemon itself.

    Args:
        config: the daemon's configuration.
        registry: the open sessions and their writers.
        services: clocks and statistics.

    Attributes:
        is_draining: the daemon refuses further commands.
        remote_endpoint: its address for other machines, None without one.
        folders: the paths of the root and of the mounts.
    """

    def __init__(self, config: Config, registry: Registry, services: Services) -> None:
        self.is_draining = False
        self.remote_endpoint: str | None = None
        self.folders = (str(config.root), *map(str, config.mounts.values()))
        self._config = config
        self._registry = registry
        self._services = services
        self._started_s = services.monotonic()
        self._started_at = services.wall()

    def greet(self, peer: Peer, command: Hello) -> Welcome:
        """Answer `hello`, and store the client's name.

        Raises:
            Incompatible: the client has another protocol version.
        """
        if command.protocol != PROTOCOL_VERSION:
            remedy = (
                "the client is too old: update steno in the client's environment"
                if command.protocol < PROTOCOL_VERSION
                else "this daemon is too old: update it and run `steno restart`"
            )
            raise Incompatible(
                f"the client speaks protocol {command.protocol}, this daemon ({__version__})"
                f" speaks {PROTOCOL_VERSION}: {remedy}",
                protocol=PROTOCOL_VERSION,
            )
        peer.name, peer.pid = command.name, command.pid
        return Welcome(
            version=__version__,
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            root=str(self._config.root),
            started_at=self._started_at,
            clock_ms=int(self._services.monotonic() * 1000),
            limits=limits_in_hello(),
        )

    def report(self, question: Question, peers: Collection[Peer], ignored: int) -> Reply:
        """Answer a query about the daemon.

        Args:
            question: the query.
            peers: the connected clients.
            ignored: the number of messages that no reply was possible to.
        """
        match question:
            case Status():
                return self._status(peers, ignored)
            case Stats():
                report = self.stats(peers, ignored)
                if not question.sessions:
                    return report
                return msgspec.structs.replace(report, sessions=self._registry.activity())
            case Configuration():
                return self._configuration()
            case Clients():
                return self._clients(question, peers)
            case _:
                assert_never(question)

    def _status(self, peers: Collection[Peer], ignored: int) -> StatusReport:
        statistics = self._services.statistics
        return StatusReport(
            version=__version__,
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            root=str(self._config.root),
            endpoint=self._config.endpoint,
            remote_endpoint=self.remote_endpoint,
            uptime_s=self._uptime_s,
            mounts={name: str(folder) for name, folder in self._config.mounts.items()},
            sessions_open=len(self._registry),
            clients=len(peers),
            queued=self._registry.queued,
            appended_records=statistics.appended_records,
            syncs=statistics.syncs,
            sync_s=statistics.sync_s,
            slowest_sync_s=statistics.slowest_sync_s,
            slow_sync_at=statistics.slow_sync_at,
            ignored=ignored,
            dropped=statistics.dropped,
            draining=self.is_draining,
        )

    def stats(self, peers: Collection[Peer], ignored: int) -> StatsReport:
        """Return the daemon's counters and present load."""
        statistics = self._services.statistics
        return StatsReport(
            uptime_s=self._uptime_s,
            appended_records=statistics.appended_records,
            appended_bytes=statistics.appended_bytes,
            groups=statistics.groups.report(),
            sync_s=statistics.sync_times.report(),
            slow_syncs=statistics.slow_syncs,
            rewrites=dict(statistics.rewrites),
            errors=dict(statistics.errors),
            failed_at=dict(statistics.failed_at),
            dropped=statistics.dropped,
            lagged=statistics.lagged,
            turned_away=statistics.turned_away,
            ignored=ignored,
            queued=self._registry.queued,
            queued_most=self._registry.queued_most,
            queued_bytes=self._services.budget.taken_bytes,
            sessions_open=len(self._registry),
            clients=len(peers),
            subscribers=sum(len(peer.subscriptions) for peer in peers),
            open_files=_known(open_handles),
            resident_bytes=_known(system.resident_bytes),
        )

    def _configuration(self) -> ConfigurationReport:
        settings = self._config.settings
        entries = [
            OptionEntry(
                name=option.name,
                value=settings.shown(option.name),
                source=settings.source(option.name),
                live=option.is_live,
            )
            for option in OPTIONS
        ]
        entries += [
            OptionEntry(name=name, value=str(folder), source=settings.source(name))
            for name, folder in ((f"mounts.{key}", at) for key, at in self._config.mounts.items())
        ]
        return ConfigurationReport(options=entries)

    def _clients(self, command: Clients, peers: Collection[Peer]) -> ClientsReport:
        now_s = self._services.monotonic()
        entries = [peer.entry(now_s) for peer in peers]
        if command.session is None:
            return ClientsReport(clients=entries, queued=self._registry.queued)
        followers = [entry for entry in entries if command.session in entry.subscriptions]
        writers = self._registry.writers(command.session)
        syncs = [writer.last_sync_at for writer in writers if writer.last_sync_at is not None]
        errors = [writer.last_error for writer in writers if writer.last_error is not None]
        return ClientsReport(
            clients=followers,
            queued=sum(len(writer.mailbox) for writer in writers),
            last_sync_at=max(syncs, default=None),
            last_error=errors[0] if errors else None,
        )

    @property
    def _uptime_s(self) -> float:
        return round(self._services.monotonic() - self._started_s, 3)


def _known(measure: Callable[[], int]) -> int:
    """Return a number of the system; 0 where it does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return measure()
    return 0
