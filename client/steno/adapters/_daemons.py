"""One blocking client per process for each daemon that the adapters need.

The daemon of a tree's own is ended by the last process that used it: each holds a shared lock on
`users.lock` in its root, and a process that gets it exclusively at its exit is the last one. The
kernel gives up the lock of a process that was killed.
"""

import atexit
import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steno._sync.client import BlockingClient, connect_sync
from steno.adapters._address import Address, prepare_root
from steno_protocol.errors import StenoError

_USERS: Final = "users.lock"

_EXIT_TIMEOUT_S: Final = 2.0
"""How long the end of a program may be held up by a daemon that does not answer."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """A client and, for a tree's own daemon, the lock that says that it is used."""

    client: BlockingClient
    users: int | None


class _Clients:
    """The clients of this process by their root, made by one thread at a time."""

    def __init__(self) -> None:
        self.by_root: dict[str, _Shared] = {}
        self.guard = threading.Lock()

    def renew_guard(self) -> None:
        """In a child: the thread that held it at the fork does not exist there."""
        self.guard = threading.Lock()


_clients: Final = _Clients()
os.register_at_fork(after_in_child=_clients.renew_guard)


def client_of(address: Address) -> BlockingClient:
    """The client of the daemon that owns `address`; the daemon is started when it is not there."""
    root = str(address.root)
    with _clients.guard:
        shared = _clients.by_root.get(root)
        if shared is None or shared.client.is_inherited:
            prepare_root(address)
            users = _use(root) if address.tree is not None else None
            shared = _clients.by_root[root] = _Shared(connect_sync(root), users)
    return shared.client


def _use(root: str) -> int:
    """Say that this process uses the root; waits while the last one before it is leaving."""
    users = os.open(Path(root, _USERS), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)
    return users


@atexit.register
def _leave() -> None:
    for root, shared in _clients.by_root.items():
        if shared.client.is_inherited:
            continue
        shared.client.close()
        if shared.users is not None and _is_last(shared.users):
            with (
                suppress(StenoError),
                connect_sync(root, spawn=False, timeout=_EXIT_TIMEOUT_S) as client,
            ):
                client.drain()


def _is_last(users: int) -> bool:
    # A shared lock is lost by trying, so of two that leave at once one is the last.
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
