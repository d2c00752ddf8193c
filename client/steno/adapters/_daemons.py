"""One blocking client per process for each daemon of the adapters.

The last process that used the daemon of a tree ends it: each process holds a shared lock on
`users.lock` in its root, and a process that gets the exclusive lock at its exit is the last one.
The kernel releases the lock of a killed process.
"""

import atexit
import fcntl
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steno import BlockingClient, connect_sync
from steno.adapters._address import Address, prepare_root
from steno.local import open_private
from steno_protocol.errors import StenoError

_USERS: Final = "users.lock"

_EXIT_TIMEOUT_S: Final = 2.0
"""How long a silent daemon may delay the end of a program."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """A client and, for the daemon of a tree, the lock of its users."""

    client: BlockingClient
    users: int | None


class _Clients:
    """The clients of this process by their root; one thread at a time makes them."""

    def __init__(self) -> None:
        self.by_root: dict[str, _Shared] = {}
        self.guard = threading.Lock()

    def renew_guard(self) -> None:
        """Make a new guard in a child, where the thread that held it at the fork does not exist."""
        self.guard = threading.Lock()


_clients: Final = _Clients()
os.register_at_fork(after_in_child=_clients.renew_guard)


def client_of(address: Address) -> BlockingClient:
    """Return the client of the daemon that owns `address`; start the daemon if it is missing."""
    root = str(address.root)
    with _clients.guard:
        shared = _clients.by_root.get(root)
        if shared is None or shared.client.is_inherited:
            prepare_root(address)
            users = _use(root) if address.tree is not None else None
            shared = _clients.by_root[root] = _Shared(connect_sync(root), users)
    return shared.client


def _use(root: str) -> int:
    """Lock the root as a user; wait while the last user before is leaving."""
    users = open_private(Path(root, _USERS), os.O_RDWR | os.O_CREAT)
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
    # The attempt gives up the shared lock, so of two processes that leave at once one is the last.
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
