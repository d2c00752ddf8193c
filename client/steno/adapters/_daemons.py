"""One blocking client a process for each daemon that adapters need, without anybody opening it."""

import atexit
import os
import threading
from contextlib import suppress
from typing import Final

from steno.adapters._address import Address, prepare_root
from steno.blocking import BlockingClient, connect_sync
from steno_protocol.errors import StenoError

_EXIT_TIMEOUT_S: Final = 2.0
"""How long the end of a program may be held up by a daemon that does not answer."""

_lock = threading.Lock()
_clients: Final[dict[str, BlockingClient]] = {}
_own_roots: Final[set[str]] = set()


def client_of(address: Address) -> BlockingClient:
    """The client of the daemon that owns `address`; the daemon is started when it is not there."""
    root = str(address.root)
    with _lock:
        client = _clients.get(root)
        if client is None or client.is_inherited:
            prepare_root(address)
            client = _clients[root] = connect_sync(root)
            if address.tree is not None:
                _own_roots.add(root)
    return client


@atexit.register
def _leave() -> None:
    """Hang up; the last one to leave a tree's own daemon ends it."""
    for root, client in _clients.items():
        if client.is_inherited:
            continue
        client.close()
        if root in _own_roots:
            with suppress(StenoError):
                _end_if_unused(root)


def _end_if_unused(root: str) -> None:
    with connect_sync(root, spawn=False, timeout=_EXIT_TIMEOUT_S) as client:
        if not any(_is_another(entry.pid) for entry in client.clients()):
            client.drain()


def _is_another(pid: int | None) -> bool:
    # ZeroMQ does not tell the daemon who has gone, so dead ones are still in its list.
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
