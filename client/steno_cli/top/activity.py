"""The activity of a daemon between two of its reports; pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from msgspec import Struct

from steno_protocol.replies import (
    ClientEntry,
    ClientsReport,
    HistogramReport,
    OpenSession,
    StatsReport,
)


@dataclass(frozen=True, slots=True)
class Report:
    """The answers of a daemon at one moment.

    Attributes:
        daemon: the daemon's pid and start; another daemon counts from 0.
        stats: its counters, with those of the open sessions.
        clients: its clients.
    """

    daemon: tuple[int, float]
    stats: StatsReport
    clients: ClientsReport


class SessionRow(Struct, frozen=True):
    """One open session.

    Attributes:
        session: its id.
        records_s: records that were appended each second.
        bytes_s: their bytes.
        queued: its queued commands.
        followers: the clients that follow it.
        idle_s: seconds since its last command.
        by: the author of its last append; empty if unknown.
    """

    session: str
    records_s: float
    bytes_s: float
    queued: int
    followers: int
    idle_s: float
    by: str


class ClientRow(Struct, frozen=True):
    """One connected client.

    Attributes:
        name: the name that it claims; empty before its hello.
        key: the name of its key; empty on the daemon's machine.
        pid: its process; None if unknown.
        requests_s: its requests each second.
        follows: the number of sessions that it follows.
        connected_s: seconds since it connected.
        dropped: messages that it did not receive.
    """

    name: str
    key: str
    pid: int | None
    requests_s: float
    follows: int
    connected_s: float
    dropped: int


class Syncs(Struct, frozen=True):
    """The syncs of an interval.

    Attributes:
        per_s: syncs each second.
        mean_s: their mean duration, None without any.
        most_s: 99 % took at most as long; None without any, and beyond the last bucket.
    """

    per_s: float
    mean_s: float | None = None
    most_s: float | None = None


class Activity(Struct, frozen=True):
    """The activity of a daemon in an interval; the document of `--json`.

    Attributes:
        uptime_s: seconds since the daemon started.
        span_s: seconds of the interval; None if the daemon reported only once, and the rates are 0.
        records_s: appended records each second.
        bytes_s: appended bytes each second.
        requests_s: requests of all clients each second.
        syncs: the syncs.
        errors: errors by code in the interval.
        queued: the queued commands at its end.
        sessions: the open sessions, the busiest first.
        clients: the clients, the busiest first.
    """

    uptime_s: float
    span_s: float | None
    records_s: float
    bytes_s: float
    requests_s: float
    syncs: Syncs
    errors: dict[str, int]
    queued: int
    sessions: list[SessionRow]
    clients: list[ClientRow]


SORTS: Final[Mapping[str, Callable[[SessionRow], Any]]] = {
    "rate": lambda row: (-row.records_s, -row.queued, row.idle_s),
    "bytes": lambda row: (-row.bytes_s, -row.queued, row.idle_s),
    "queue": lambda row: (-row.queued, -row.records_s, row.idle_s),
    "followers": lambda row: (-row.followers, -row.records_s, row.idle_s),
    "changed": lambda row: row.idle_s,
    "id": lambda _: 0,
}
"""The orders of the sessions; ids decide between equal ones."""


def activity(before: Report | None, after: Report, order: str = "rate") -> Activity:
    """The activity between two reports.

    Args:
        before: the earlier report; None or one of another daemon gives no rates.
        after: the later report.
        order: the order of the sessions, a key of `SORTS`.
    """
    if before is None or before.daemon != after.daemon:
        before = after
    stats, old = after.stats, before.stats
    span_s = stats.uptime_s - old.uptime_s
    per_s = 1 / span_s if span_s > 0 else 0.0
    sessions = _session_rows(before, after, per_s)
    clients = _client_rows(before, after, per_s)
    return Activity(
        uptime_s=stats.uptime_s,
        span_s=None if before is after else span_s,
        records_s=per_s * (stats.appended_records - old.appended_records),
        bytes_s=per_s * (stats.appended_bytes - old.appended_bytes),
        requests_s=sum(row.requests_s for row in clients),
        syncs=_syncs(old.sync_s, stats.sync_s, per_s),
        # The difference of two counters has what became more.
        errors=dict(sorted((Counter(stats.errors) - Counter(old.errors)).items())),
        queued=stats.queued,
        sessions=sorted(sessions, key=lambda row: (SORTS[order](row), row.session)),
        clients=sorted(clients, key=lambda row: (-row.requests_s, row.name, row.connected_s)),
    )


def _session_rows(before: Report, after: Report, per_s: float) -> list[SessionRow]:
    known = {each.session: each for each in before.stats.sessions}
    followers = Counter(
        session for client in after.clients.clients for session in client.subscriptions
    )
    return [
        _session_row(known.get(each.session), each, followers[each.session], per_s)
        for each in after.stats.sessions
    ]


def _session_row(
    before: OpenSession | None, after: OpenSession, followers: int, per_s: float
) -> SessionRow:
    # The counters of a session that was opened in the interval began at 0, as for a new one.
    if before is None or before.appended_records > after.appended_records:
        before = OpenSession(session=after.session)
    return SessionRow(
        session=after.session,
        records_s=per_s * (after.appended_records - before.appended_records),
        bytes_s=per_s * max(0, after.appended_bytes - before.appended_bytes),
        queued=after.queued,
        followers=followers,
        idle_s=after.idle_s,
        by=after.by or "",
    )


def _client_rows(before: Report, after: Report, per_s: float) -> list[ClientRow]:
    asked = {each.connection: each.requests for each in before.clients.clients}
    return [
        _client_row(each, per_s * (each.requests - asked.get(each.connection, 0)))
        for each in after.clients.clients
    ]


def _client_row(client: ClientEntry, requests_s: float) -> ClientRow:
    return ClientRow(
        name=client.name or "",
        key=client.key or "",
        pid=client.pid,
        requests_s=requests_s,
        follows=len(client.subscriptions),
        connected_s=client.connected_s,
        dropped=client.dropped,
    )


def _syncs(before: HistogramReport, after: HistogramReport, per_s: float) -> Syncs:
    counts = [new - old for old, new in zip(before.counts, after.counts, strict=True)]
    many = sum(counts)
    if not many:
        return Syncs(0.0)
    bounded = zip(after.bounds, accumulate(counts), strict=False)
    most_s = next((bound for bound, so_far in bounded if so_far >= 0.99 * many), None)
    return Syncs(per_s * many, (after.total - before.total) / many, most_s)
