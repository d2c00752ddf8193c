"""The error of a process whose system lets it open or connect no socket.

libzmq reports no failed system call, so a failed attempt to connect is repeated here once.
"""

import errno
import os
import socket
from contextlib import suppress
from typing import Final

import steno_system as system
from steno._connect.connection import Futile
from steno_protocol import limits, paths

_LOCAL: Final = getattr(socket, "AF_UNIX", socket.AF_INET)
"""The family of local sockets, which Windows lacks."""

_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT})
"""A seccomp filter, a Landlock rule or file permissions, and a restriction of address families."""


class SocketsForbidden(Futile):
    """The system forbids this process to reach the daemon."""


def check_allowed(endpoint: str, *, connects: bool) -> None:
    """Raise SocketsForbidden if the system forbids a socket for this address.

    Args:
        endpoint: the daemon's address.
        connects: try to connect, too: the daemon's end of the connection is closed at once.
    """
    path = endpoint.removeprefix("ipc://")
    is_local = path != endpoint
    family = socket.AF_INET6 if paths.is_ipv6(endpoint) else socket.AF_INET
    try:
        attempt = socket.socket(_LOCAL if is_local else family)
    except OSError as error:
        if error.errno not in _REFUSALS:
            return
        raise SocketsForbidden(
            f"this process may not open a socket ({error.strerror}), so it cannot reach the daemon"
            f" at {endpoint}: run it outside of its sandbox, or let the sandbox allow sockets of"
            f" the family {'AF_UNIX' if is_local else family.name}"
        ) from None
    with attempt:
        attempt.settimeout(limits.SOCKET_CHECK_S)
        if connects:
            _check_connect(attempt, endpoint, path if is_local else None)


def _check_connect(attempt: socket.socket, endpoint: str, path: str | None) -> None:
    try:
        attempt.connect(_address(endpoint) if path is None else path)
    except OSError as error:
        if error.errno not in _REFUSALS:
            return
        owner = None if path is None else _owner_of(path)
        remedy = (
            "run it outside of its sandbox, or let the sandbox allow this connection"
            if owner in (None, system.own_user())
            else f"run it as user {owner}, whose socket it is, or choose another root with --root"
            " or STENO_HOME"
        )
        raise SocketsForbidden(
            f"this process may not connect to {endpoint} ({error.strerror}): {remedy}"
        ) from None


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() else 0


def _owner_of(path: str) -> int | None:
    with suppress(OSError):
        return os.stat(path).st_uid  # noqa: PTH116 (as text)
    return None
