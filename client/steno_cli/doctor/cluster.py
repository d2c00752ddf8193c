"""The doctor's check of a cluster: its servers, what an ack means, and its space."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from steno import connect_sync
from steno.local import is_free
from steno_cli.configuration import read_file
from steno_cli.doctor import Finding, ok, problem, steno, warning
from steno_present.wording import count, size
from steno_protocol import limits
from steno_protocol.errors import BadRequest, StenoError
from steno_protocol.replies import ClusterReplica, ClusterReport, ClusterStream


def check_cluster(options: Namespace, root: Path) -> Iterator[Finding]:
    """Whether an ack of the daemon survives the loss of a server, and the servers have space."""
    if not root.is_dir() or getattr(options, "is_daemon_silent", False):
        return
    if is_free(root):
        with suppress(BadRequest):
            yield from _named(read_file(root, {}).text("replication.cluster"))
        return
    with suppress(StenoError):  # an older daemon lacks this command; a silent one was reported
        with connect_sync(
            root, spawn=False, timeout=options.timeout or limits.REQUEST_TIMEOUT_S
        ) as client:
            report = client.cluster(limit=None)
        if report.cluster:
            yield ok(f"in the cluster {report.cluster}; {promise(report)}")
            yield from findings_about(report, root)


def _named(cluster: str) -> Iterator[Finding]:
    if cluster:
        yield ok(f"config.toml names the cluster {cluster}; no daemon asks its servers")


def promise(report: ClusterReport) -> str:
    """Return in words what an ack of a cluster means at present."""
    if not report.server:
        return "no server is connected: nothing is acknowledged"
    if report.trouble:
        return f"nothing is acknowledged: {report.trouble}"
    if not all(has_majority(stream) for stream in report.streams):
        return "no majority of the servers answers: nothing is acknowledged"
    if report.broken_promises:
        return "not replicated safely: an acknowledged record may be lost"
    fewest = min((len(stream.replicas) for stream in report.streams), default=0)
    return f"replicated: an acknowledged record is on a majority of {count(fewest, 'server')}"


def findings_about(report: ClusterReport, root: Path | None = None) -> Iterator[Finding]:
    """Yield what is wrong with a cluster, as its daemon reports it.

    Args:
        report: the report.
        root: the root of the daemon, for the commands in remedies; None for the default one.
    """
    status = "steno cluster status" if root is None else steno(root, "cluster", "status")
    if not report.server:
        yield problem(
            f"no server of the cluster is connected{_because(report.trouble)}",
            "start a majority of the servers, or correct replication.servers in config.toml",
        )
    elif report.trouble:
        yield warning(
            f"the servers of the cluster failed{_because(report.trouble)}",
            f"remove the cause, then `{status}` shows whether it comes again",
        )
    for broken in report.broken_promises:
        yield warning(
            f"an acknowledged record may be lost with a server: {broken}",
            "restart the daemon after the correction",
        )
    for stream in report.streams:
        yield from _findings_about_stream(stream)
    for session in report.sessions:
        if session.trouble:
            yield problem(
                f"the session {session.session} is in trouble: {session.trouble}",
                f"after that `{status} {session.session}` no longer names it",
            )


def _because(trouble: str) -> str:
    return f": {trouble}" if trouble else ""


def _findings_about_stream(stream: ClusterStream) -> Iterator[Finding]:
    if stream.trouble:
        yield problem(
            f"no server answered for the stream {stream.name}: {stream.trouble}",
            "start the servers that are down: without a majority nothing is acknowledged",
        )
    elif not has_majority(stream):
        yield problem(
            f"most servers of the stream {stream.name} are down",
            "start them: without a majority nothing is acknowledged",
        )
    for replica in stream.replicas:
        if is_down(replica):
            yield warning(
                f"the server {replica.name} is down, which stores {stream.name}",
                "start it: without a majority of the servers nothing is acknowledged",
            )
    if is_nearly_full(stream):
        yield warning(
            f"the stream {stream.name} has {size(stream.bytes)} of the {size(stream.bytes_max)}"
            " that it may have; its last eighth, at most 1 GiB, takes no records",
            "run `steno gc --keep-generations 1`, or raise max_file_store of the servers and"
            " max_bytes of the stream",
        )


def is_down(replica: ClusterReplica) -> bool:
    """Whether neither the leader nor its monitoring has heard of a server lately.

    >>> is_down(ClusterReplica(name="n1", current=False, syncing="always"))
    False
    """
    return replica.offline or (replica.syncing == "unknown" and not replica.current)


def has_majority(stream: ClusterStream) -> bool:
    """Whether most servers of a stream answer, so that it takes messages."""
    down = sum(map(is_down, stream.replicas))
    return not stream.trouble and 2 * down < max(1, len(stream.replicas))


def is_nearly_full(stream: ClusterStream) -> bool:
    """Whether a stream has used three quarters of the space that it may have.

    Daemons refuse records in its last eighth, or in its last GiB if that is less.

    >>> is_nearly_full(ClusterStream(name="s", bytes=74, bytes_max=100))
    False
    >>> is_nearly_full(ClusterStream(name="s", bytes=75, bytes_max=100))
    True
    >>> is_nearly_full(ClusterStream(name="s", bytes=95, bytes_max=-1))
    False
    """
    return 0 < stream.bytes_max * 3 <= stream.bytes * 4
