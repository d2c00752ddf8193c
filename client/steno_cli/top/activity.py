"""The activity of a daemon between two of its reports; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class SessionRow:
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


@dataclass(frozen=True, slots=True)
class ClientRow:
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


@dataclass(frozen=True, slots=True)
class Syncs:
    """The syncs of an interval.

    Attributes:
        per_s: syncs each second.
        mean_s: their mean duration, None without any.
        most_s: 99 % took at most as long; None without any, and infinite beyond the last bucket.
    """

    per_s: float
    mean_s: float | None
    most_s: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a daemon in an interval.

    Attributes:
        span_s: seconds of the interval; None if the daemon reported only once, and the rates are 0.
        records_s: appended records each second.
        bytes_s: appended bytes each second.
        requests_s: requests of all clients each second.
        syncs: the syncs.
        errors: errors by code in the interval.
        stats: the counters and sizes at its end.
        sessions: the open sessions, the busiest first.
        clients: the clients, the busiest first.
    """

    span_s: float | None
    records_s: float
    bytes_s: float
    requests_s: float
    syncs: Syncs
    errors: Mapping[str, int]
    stats: StatsReport
    sessions: tuple[SessionRow, ...]
    clients: tuple[ClientRow, ...]

    @property
    def writing(self) -> int:
        """The number of sessions that records were appended to."""
        return sum(row.records_s > 0 for row in self.sessions)

    @property
    def writers(self) -> int:
        """The number of writers, one for each open file."""
        return sum(each.writers for each in self.stats.sessions)


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
    if before is not None and before.daemon != after.daemon:
        before = None
    span_s = None if before is None else after.stats.uptime_s - before.stats.uptime_s
    clock = _Clock(span_s or 0.0)
    stats, old = after.stats, (after if before is None else before).stats
    clients = tuple(_client_rows(before, after, clock))
    return Activity(
        span_s=span_s,
        records_s=clock.rate(stats.appended_records - old.appended_records),
        bytes_s=clock.rate(stats.appended_bytes - old.appended_bytes),
        requests_s=sum(row.requests_s for row in clients),
        syncs=_syncs(old.sync_s, stats.sync_s, clock),
        errors=_differences(old.errors, stats.errors),
        stats=stats,
        sessions=tuple(_session_rows(before, after, clock, order)),
        clients=clients,
    )


def document(now: Activity, lines: int | None = None) -> dict[str, Any]:
    """An activity for other programs, with at most so many sessions."""
    syncs = asdict(now.syncs)
    if now.syncs.most_s is not None and isinf(now.syncs.most_s):
        # JSON has no infinity.
        syncs["most_s"] = None
    return {
        "uptime_s": now.stats.uptime_s,
        "span_s": now.span_s,
        "records_s": now.records_s,
        "bytes_s": now.bytes_s,
        "requests_s": now.requests_s,
        "syncs": syncs,
        "errors": dict(now.errors),
        "queued": now.stats.queued,
        "sessions": [asdict(row) for row in now.sessions[:lines]],
        "clients": [asdict(row) for row in now.clients],
    }


@dataclass(frozen=True, slots=True)
class _Clock:
    """The interval between two reports; an empty one has no rates."""

    span_s: float

    def rate(self, more: float) -> float:
        return more / self.span_s if self.span_s > 0 else 0.0


def _session_rows(
    before: Report | None, after: Report, clock: _Clock, order: str
) -> list[SessionRow]:
    known = {} if before is None else {each.session: each for each in before.stats.sessions}
    followers = _followers(after.clients.clients)
    rows = [
        _session_row(known.get(each.session), each, followers.get(each.session, 0), clock)
        for each in after.stats.sessions
    ]
    rows.sort(key=lambda row: row.session)
    return sorted(rows, key=SORTS[order])


def _session_row(
    before: OpenSession | None, after: OpenSession, followers: int, clock: _Clock
) -> SessionRow:
    # The counters of a session that was opened in the interval began at 0, as for a new one.
    is_same = before is not None and before.appended_records <= after.appended_records
    old = before if is_same and before is not None else OpenSession(session=after.session)
    return SessionRow(
        session=after.session,
        records_s=clock.rate(after.appended_records - old.appended_records),
        bytes_s=clock.rate(max(0, after.appended_bytes - old.appended_bytes)),
        queued=after.queued,
        followers=followers,
        idle_s=after.idle_s,
        by=after.by or "",
    )


def _followers(clients: Iterable[ClientEntry]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for client in clients:
        for session in client.subscriptions:
            counts[session] = counts.get(session, 0) + 1
    return counts


def _client_rows(before: Report | None, after: Report, clock: _Clock) -> list[ClientRow]:
    known = {} if before is None else {each.connection: each for each in before.clients.clients}
    rows = [_client_row(known.get(each.connection), each, clock) for each in after.clients.clients]
    return sorted(rows, key=lambda row: (-row.requests_s, row.name, row.connected_s))


def _client_row(before: ClientEntry | None, after: ClientEntry, clock: _Clock) -> ClientRow:
    old = 0 if before is None else before.requests
    return ClientRow(
        name=after.name or "",
        key=after.key or "",
        pid=after.pid,
        requests_s=clock.rate(after.requests - old),
        follows=len(after.subscriptions),
        connected_s=after.connected_s,
        dropped=after.dropped,
    )


def _syncs(before: HistogramReport, after: HistogramReport, clock: _Clock) -> Syncs:
    counts = [new - old for old, new in zip(before.counts, after.counts, strict=True)]
    many = sum(counts)
    if not many:
        return Syncs(0.0, None, None)
    mean_s = (after.total - before.total) / many
    return Syncs(clock.rate(many), mean_s, _bound(after.bounds, counts, 0.99 * many))


def _bound(bounds: Sequence[float], counts: Sequence[int], wanted: float) -> float:
    """The upper bound of the bucket in which the wanted number of values is reached."""
    so_far = 0
    for bound, many in zip(bounds, counts, strict=False):
        so_far += many
        if so_far >= wanted:
            return bound
    return float("inf")


def _differences(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    more = {name: count - before.get(name, 0) for name, count in sorted(after.items())}
    return {name: count for name, count in more.items() if count > 0}
