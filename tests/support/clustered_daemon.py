"""A daemon process that is in a cluster."""

import json
from collections.abc import Sequence
from pathlib import Path

from steno_protocol import paths
from stenod_cluster.trust import Request
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster


def clustered_daemon(
    root: Path,
    name: str,
    cluster: NatsCluster,
    dead_s: float | None = None,
    servers: Sequence[str] = (),
) -> ForegroundDaemon:
    """Make the root of a daemon in the cluster `name`, and the daemon, which is not started.

    Args:
        root: the folder.
        name: of the cluster.
        cluster: its servers.
        servers: other addresses of its servers, such as those of proxies.
        dead_s: seconds without a word after which others succeed it, None for the usual ones.
    """
    root.mkdir(mode=0o700)
    daemon = ForegroundDaemon(root)
    (root / "config.toml").write_text(
        f"[replication]\ncluster = {json.dumps(name)}\n"
        f"servers = {json.dumps(list(servers) or cluster.servers)}\n"
        f"monitors = {json.dumps(cluster.monitors)}\n"
        f"advertise = {json.dumps(daemon.endpoint)}\n"
        + (f"dead_s = {dead_s}\n" if dead_s is not None else "")
    )
    (root / paths.CLUSTER_REQUEST).write_text(Request.CREATE)
    (root / paths.CLUSTER_REQUEST).chmod(0o600)
    return daemon
