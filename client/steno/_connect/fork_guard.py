"""The guard that disables clients in a forked child.

A send on the inherited socket would "succeed" and be lost, or be mixed into the parent's messages.
"""

import os
import sys
from typing import Final, Protocol
from weakref import WeakSet

from steno_protocol.errors import BadRequest


class Inherited(Protocol):
    """An object that must not be used in a child."""

    def inherit(self) -> None:
        """Refuse every use from now on, and close the child's copies of open handles."""


_clients: Final[WeakSet[Inherited]] = WeakSet()
_handles: Final[set[int]] = set()


def guard(client: Inherited) -> None:
    """Invalidate this client in every child that is forked from now on."""
    _clients.add(client)


def inherited_error() -> BadRequest:
    """The error in the child."""
    return BadRequest(
        "this client was made before a fork and belongs to the parent process: connect again in"
        " the child"
    )


def closed_in_child(handle: int) -> int:
    """Close this handle in every child that is forked before `close`.

    A lock on it belongs to the child, too, and would outlive its owner.
    """
    _handles.add(handle)
    return handle


def close(handle: int) -> None:
    """Close a handle that is closed in children."""
    _handles.discard(handle)
    os.close(handle)


def _let_go() -> None:
    for client in list(_clients):
        client.inherit()
    for handle in list(_handles):
        close(handle)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go)
