"""Where a cluster's servers are, and how a daemon uses them."""

import ssl
from errno import EACCES, ECONNREFUSED

import msgspec

from steno_protocol.errors import Unauthorized
from steno_protocol.settings import Settings
from steno_system.private_files import read_private


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

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns what encrypts the connection; None without TLS.

        Raises:
            OSError: a certificate or key cannot be used.
        """
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key or None)
        except OSError as error:
            raise OSError(
                error.errno or EACCES,
                "replication.tls_ca, tls_cert or tls_key cannot be used"
                f" ({error.strerror or error}): each is the path of a PEM file that this user may"
                " read",
            ) from None
        return context

    def check_credentials(self) -> None:
        """Raise OSError if the file of the credentials cannot be used."""
        if not self.credentials:
            return
        try:
            text = read_private(self.credentials, may_be_link=True).decode()
        except (OSError, UnicodeDecodeError, Unauthorized) as error:
            raise OSError(
                EACCES,
                f"replication.credentials cannot be read ({error}): it is the path of a .creds"
                " file",
            ) from None
        if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
            raise OSError(
                ECONNREFUSED,
                f"{self.credentials} is no .creds file of NATS, which has a user's JWT and a seed:"
                " correct replication.credentials",
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
