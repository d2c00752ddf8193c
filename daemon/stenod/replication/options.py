"""Where a cluster's servers are, and how a daemon uses them."""

from typing import Final

import msgspec

PUBLISH_S: Final = 5.0
"""Default deadline of a publication: a new leader is there within two seconds."""


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
        streams: streams among which the folders are divided.
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
    streams: int = 1
    publish_s: float = PUBLISH_S

    @property
    def has_tls(self) -> bool:
        """Whether the connection has to be encrypted."""
        return bool(self.tls_ca or self.tls_cert) or any(
            server.startswith("tls://") for server in self.servers
        )
