"""After a fork a client is good in the parent only; in the child every use of it says so.

A send on the inherited socket would "succeed" and be lost, or be mixed into the parent's messages.
"""

import os
from typing import Final, Protocol
from weakref import WeakSet

from steno_protocol.errors import BadRequest


class Inherited(Protocol):
    """Something that must not be used in a child."""

    is_inherited: bool


_clients: Final[WeakSet[Inherited]] = WeakSet()


def guard(client: Inherited) -> None:
    """Mark this client in every child that is forked from now on."""
    _clients.add(client)


def inherited_error() -> BadRequest:
    """What the child is told."""
    return BadRequest(
        "this client was made before a fork and belongs to the parent process: connect again in"
        " the child"
    )


def _mark_all() -> None:
    for client in list(_clients):
        client.is_inherited = True


os.register_at_fork(after_in_child=_mark_all)
