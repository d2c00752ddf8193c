"""How a daemon joins the cluster that its configuration names."""

import socket
from collections.abc import Callable

from steno_protocol.errors import BadRequest
from stenod.runtime.config import Config
from stenod.store.disk import Disk
from stenod_cluster.membership import Membership
from stenod_cluster.nats_journal import NatsJournal
from stenod_cluster.options import replication_options
from stenod_cluster.trust import Trust


def join(config: Config, disk: Disk, log: Callable[..., None]) -> Membership:
    """Join a cluster; its servers need not be there yet.

    Args:
        config: the daemon's configuration, which names a cluster.
        disk: this machine's disk.
        log: logs an event with fields.

    Raises:
        BadRequest: the credentials or certificates cannot be used.
    """
    options = replication_options(config.settings)
    endpoint = config.settings.text("replication.advertise") or config.endpoint
    try:
        trust = Trust(config.root)
        engine = NatsJournal(options, f"stenod on {socket.gethostname()}", trust)
    except OSError as error:
        raise BadRequest(
            f"the cluster {options.cluster} cannot be used: {error}: correct [replication]"
        ) from None
    return Membership(
        options.cluster,
        engine,
        config.root,
        disk,
        endpoint,
        config.settings.number("replication.dead_s"),
        log,
    )
