"""A daemon process that is in a cluster."""

import json
from pathlib import Path

from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster


def clustered_daemon(root: Path, name: str, cluster: NatsCluster) -> ForegroundDaemon:
    """Make the root of a daemon in the cluster `name`, and the daemon, which is not started."""
    root.mkdir(mode=0o700)
    daemon = ForegroundDaemon(root)
    (root / "config.toml").write_text(
        f"[replication]\ncluster = {json.dumps(name)}\n"
        f"servers = {json.dumps(cluster.servers)}\n"
        f"monitors = {json.dumps(cluster.monitors)}\n"
        f"advertise = {json.dumps(daemon.endpoint)}\n"
    )
    return daemon
