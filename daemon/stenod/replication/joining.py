"""How a daemon joins the cluster that its configuration names."""

import socket
from collections.abc import Callable

from steno_protocol.errors import BadRequest
from stenod.replication.membership import Membership
from stenod.replication.nats_journal import NatsJournal
from stenod.replication.options import ReplicationOptions
from stenod.runtime.config import Config
from stenod.store.disk import Disk


def join(
    config: Config, options: ReplicationOptions, disk: Disk, log: Callable[..., None]
) -> Membership:
    """Join a cluster; its servers need not be there yet.

    Args:
        config: the daemon's configuration.
        options: the cluster.
        disk: this machine's disk.
        log: logs an event with fields.

    Raises:
        BadRequest: the credentials or certificates cannot be used.
    """
    endpoint = config.settings.text("replication.advertise") or config.endpoint
    try:
        engine = NatsJournal(options, f"stenod on {socket.gethostname()}")
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
