"""Which kind of connection leads to an endpoint."""

from typing import TYPE_CHECKING, Final

from steno._connect.connection import Connection
from steno._connect.local_connection import LocalConnection

if TYPE_CHECKING:
    from steno_protocol.credentials import ClientKey

_LOCAL: Final = "ipc://"


def connection_to(endpoint: str, key: "ClientKey | None" = None) -> Connection:
    """Begin a connection; `wait_until_ready` reports whether it was made.

    Raises:
        Unreachable: the endpoint is no address that ZeroMQ knows.
        OutOfHandles: the process may open no more files or sockets.
    """
    if endpoint.startswith(_LOCAL):
        return LocalConnection(endpoint, endpoint.removeprefix(_LOCAL))
    # Imported only now: libzmq takes as long as a short command, and most clients are local.
    from steno._connect.remote_connection import RemoteConnection  # noqa: PLC0415

    return RemoteConnection(endpoint, key)
