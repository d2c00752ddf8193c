"""The host that a word on the command line means."""

from collections.abc import Sequence

from steno_protocol.errors import NotFound, Unreachable
from steno_protocol.replies import ClusterHost, ClusterReport


def host_meant(report: ClusterReport, word: str) -> ClusterHost:
    """Return the living host of a cluster that a word means.

    Args:
        report: the report of a daemon of the cluster.
        word: the endpoint or the identity of a host, or a unique beginning of one.

    Raises:
        NotFound: no host is meant, or several are.
        Unreachable: the host is not alive.
    """
    exact = [each for each in report.hosts if word in {each.endpoint, each.host}]
    found = exact or [
        each
        for each in report.hosts
        if each.endpoint.startswith(word) or each.host.startswith(word)
    ]
    if not found:
        raise NotFound(
            f"no host of the cluster {report.cluster} is {word!r}: {_listed(report.hosts)}"
        )
    if len(found) > 1:
        raise NotFound(f"several hosts begin with {word!r}: {_listed(found)}")
    host = found[0]
    if not host.alive:
        raise Unreachable(
            f"the host {host.endpoint} was last heard {host.heard_s:.0f} s ago, so that it can take"
            " no session: start its daemon, or name another host"
        )
    return host


def _listed(hosts: Sequence[ClusterHost]) -> str:
    return "choose from " + ", ".join(f"{each.endpoint} ({each.host})" for each in hosts)
