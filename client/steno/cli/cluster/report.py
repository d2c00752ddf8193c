"""The report of `steno cluster status` as lines of text; pure but for the output's width."""

from collections.abc import Iterator, Sequence
from typing import Final

from steno.cli.render.output import Output, printable
from steno.cli.render.tables import Column, beside, lines_of
from steno.cli.render.wording import age, count, duration, moment, number, size
from steno_protocol.replies import (
    ClusterHost,
    ClusterReplica,
    ClusterReport,
    ClusterSession,
    ClusterStream,
)

HOST_CHARS: Final = 8
"""Characters of a host's identity in a table: `cluster move` takes a unique beginning."""

_MARGIN: Final = 11
"""Columns of the names before the facts."""

_HOSTS: Final = (
    Column("HOST", ("cyan",)),
    Column("STATE"),
    Column("HEARD", ("dim",), is_right=True),
    Column("ENDPOINT"),
)
_REPLICAS: Final = (
    Column("SERVER", ("cyan",)),
    Column("STREAM"),
    Column("ROLE"),
    Column("STATE"),
    Column("LAG", is_right=True),
    Column("SYNCS"),
)
_SESSIONS: Final = (
    Column("CHANGED", ("dim",)),
    Column("OWNER", ("cyan",)),
    Column("MESSAGES", is_right=True),
    Column("SESSION"),
)


def report_lines(output: Output, report: ClusterReport, now: float) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        output: of the command; a table is fitted to its width.
        report: the report of a daemon that is in a cluster.
        now: the present Unix time in seconds.
    """
    for name, text in _facts(report):
        yield from beside(name.ljust(_MARGIN), text, _MARGIN, output.width)
    yield from _warnings(output, report)
    hosts = [_host_row(each, report.host) for each in report.hosts]
    yield from _titled(output, "hosts", _HOSTS, hosts)
    replicas = [_replica_row(stream, each) for stream in report.streams for each in stream.replicas]
    yield from _titled(output, "servers", _REPLICAS, replicas)
    sessions = [_session_row(each, now) for each in report.sessions]
    yield from _titled(output, "sessions", _SESSIONS, sessions)
    if report.more:
        yield output.style("more sessions follow: -n or a prefix shows them", "dim")


def warnings_of(report: ClusterReport) -> list[str]:
    """Return what is wrong with a cluster, each with what to do; empty if nothing is."""
    found: list[str] = []
    if not report.server:
        why = f" ({report.trouble})" if report.trouble else ""
        found.append(
            f"no server of the cluster is connected{why}: nothing is acknowledged until one is;"
            " start a majority of the servers, or correct replication.servers"
        )
    elif report.trouble:
        found.append(f"the servers refused something: {report.trouble}")
    found += report.broken_promises
    for stream in report.streams:
        found += _stream_warnings(stream)
    return found


def is_nearly_full(stream: ClusterStream) -> bool:
    """Whether the journal has used nine tenths of the space that its servers allow it.

    >>> is_nearly_full(ClusterStream(name="s", bytes=95, bytes_max=100))
    True
    >>> is_nearly_full(ClusterStream(name="s", bytes=95, bytes_max=-1))
    False
    """
    return 0 < stream.bytes_max * 9 <= stream.bytes * 10


def _stream_warnings(stream: ClusterStream) -> Iterator[str]:
    if stream.trouble:
        yield (
            f"no server answered for the stream {stream.name} ({stream.trouble}): without a"
            " majority nothing is acknowledged; start the servers that are down"
        )
    if is_nearly_full(stream):
        yield (
            f"the stream {stream.name} has {size(stream.bytes)} of the {size(stream.bytes_max)}"
            " that it may have, and nothing is acknowledged once it is full: run `steno gc`, or"
            " raise max_bytes of the stream and max_file_store of the servers"
        )
    for replica in stream.replicas:
        if replica.offline:
            yield (
                f"the server {replica.name} is down: start it, because without a majority nothing"
                " is acknowledged"
            )


def _warnings(output: Output, report: ClusterReport) -> Iterator[str]:
    sign = output.style("●", "yellow")
    for text in warnings_of(report):
        yield from beside(f"{sign} ", text, 2, output.width)


def _facts(report: ClusterReport) -> Iterator[tuple[str, str]]:
    yield "cluster", f"{report.cluster}, seen from {report.endpoint}"
    yield "promise", promise(report)
    if report.server:
        yield "server", report.server
    for stream in report.streams:
        yield "journal", _journal(stream)
    yield "owned", f"{count(report.owned, 'session')} by this host"
    yield "takeovers", _takeovers(report)
    yield (
        "refused",
        (f"{count(report.fenced, 'commit')} of a stale owner, {number(report.in_doubt)} in doubt"),
    )


def promise(report: ClusterReport) -> str:
    """Return in words what an ack of this cluster means at present."""
    if not report.server:
        return "no server is connected: nothing is acknowledged"
    if report.broken_promises:
        return "broken: an acknowledged record may be lost with a server"
    replicas = min((len(stream.replicas) for stream in report.streams), default=0)
    return f"replicated: an ack is synced on a majority of {count(replicas, 'server')}"


def _journal(stream: ClusterStream) -> str:
    most = "" if stream.bytes_max < 0 else f" of {size(stream.bytes_max)}"
    return (
        f"{stream.name}: {count(stream.sessions, 'session')}, {count(stream.messages, 'message')},"
        f" {size(stream.bytes)}{most}"
    )


def _takeovers(report: ClusterReport) -> str:
    if report.last_takeover is None:
        return number(report.takeovers)
    parts = [f"{number(report.takeovers)}, the last of {report.last_takeover}"]
    if report.last_takeover_at is not None:
        parts.append(f"at {moment(report.last_takeover_at)}")
    if report.last_takeover_s is not None:
        parts.append(f"in {duration(report.last_takeover_s)}")
    return " ".join(parts)


def _titled(
    output: Output, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
    if rows:
        yield ""
        yield output.style(title, "bold")
        yield from lines_of(output, columns, rows)


def _host_row(host: ClusterHost, here: str) -> tuple[str, ...]:
    is_here = host.host == here
    state = "this host" if is_here else "alive" if host.alive else "silent"
    heard = "-" if is_here else duration(host.heard_s)
    return host.host[:HOST_CHARS], state, heard, printable(host.endpoint, one_line=True)


def _replica_row(stream: ClusterStream, replica: ClusterReplica) -> tuple[str, ...]:
    state = "offline" if replica.offline else "current" if replica.current else "behind"
    role = "leader" if replica.leader else "follower"
    return replica.name, stream.name, role, state, number(replica.lag), replica.syncing


def _session_row(session: ClusterSession, now: float) -> tuple[str, ...]:
    return (
        age(session.changed_at, now),
        session.host[:HOST_CHARS],
        number(session.messages),
        printable(session.session, one_line=True),
    )
