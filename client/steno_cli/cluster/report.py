"""The report of `steno cluster status` as lines of text."""

from collections.abc import Iterator, Sequence
from typing import Final

from steno_cli.doctor.cluster import findings_about, promise
from steno_cli.render.output import Output
from steno_cli.render.tables import Column, beside, lines_of
from steno_present.safe_text import printable
from steno_present.wording import age, count, duration, moment, number, size
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
    """Yield the lines of a report."""
    for name, text in _facts(report):
        yield from beside(name.ljust(_MARGIN), text, _MARGIN, output.width)
    yield from _findings(output, report)
    hosts = [_host_row(each, report.host) for each in report.hosts]
    yield from _titled(output, "hosts", _HOSTS, hosts)
    replicas = [_replica_row(stream, each) for stream in report.streams for each in stream.replicas]
    yield from _titled(output, "servers", _REPLICAS, replicas)
    sessions = [_session_row(each, now) for each in report.sessions]
    yield from _titled(output, "sessions", _SESSIONS, sessions)
    if report.more:
        yield output.style("more sessions follow: -n or a prefix shows them", "dim")


def _findings(output: Output, report: ClusterReport) -> Iterator[str]:
    signs = {"warning": output.style("●", "yellow"), "problem": output.style("✗", "red")}
    for finding in findings_about(report):
        yield from beside(f"{signs[finding.state]} ", finding.text, 2, output.width)
        yield from beside("  → ", finding.remedy, 4, output.width)


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
    # What another program published has neither an owner nor a time.
    return (
        age(session.changed_at, now) if session.host else "-",
        session.host[:HOST_CHARS] or "-",
        number(session.messages),
        printable(session.session, one_line=True),
    )
