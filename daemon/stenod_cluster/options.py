"""Where a cluster's servers are, and how a daemon uses them."""

import msgspec

from steno_protocol.settings import Settings


class ReplicationOptions(msgspec.Struct, frozen=True):
    """The table `[replication]` of config.toml, as the journal uses it.

    Attributes:
        cluster: the name that all its daemons share.
        servers: addresses of NATS servers.
        monitors: addresses of the servers' monitoring.
        credentials: path of a `.creds` file; empty for none.
        tls_ca: path of the certificates that sign the servers'; empty for those of the system.
        tls_cert: path of this daemon's certificate; empty for none.
        tls_key: path of its key.
        replicas: servers that store each message.
        publish_s: deadline of a publication in seconds.
    """

    cluster: str
    servers: tuple[str, ...]
    monitors: tuple[str, ...] = ()
    credentials: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    replicas: int = 3
    publish_s: float = 15.0

    @property
    def has_tls(self) -> bool:
        """Whether the connection has to be encrypted."""
        return bool(self.tls_ca or self.tls_cert) or any(
            server.startswith("tls://") for server in self.servers
        )


def replication_options(settings: Settings) -> ReplicationOptions:
    """Returns what the settings say about the cluster that they name."""
    return ReplicationOptions(
        cluster=settings.text("replication.cluster"),
        servers=settings.addresses("replication.servers"),
        monitors=settings.addresses("replication.monitors"),
        credentials=settings.path("replication.credentials"),
        tls_ca=settings.path("replication.tls_ca"),
        tls_cert=settings.path("replication.tls_cert"),
        tls_key=settings.path("replication.tls_key"),
        replicas=settings.count("replication.replicas"),
        publish_s=settings.number("replication.publish_s"),
    )
