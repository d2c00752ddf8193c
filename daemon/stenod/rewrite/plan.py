"""What a rewrite is going to do, once it has been decided."""

from collections.abc import Sequence
from typing import Any

import msgspec

from steno_protocol.context import ContextCounters
from steno_protocol.positions import Position
from stenod.store.log import Piece


class Plan(msgspec.Struct, frozen=True):
    """A rewrite that has been decided.

    Attributes:
        kind: what the timeline calls it.
        pieces: what the new file is made of, in order.
        kept: how many first lines of the present generation live on at the same place.
        head: the position after the rewrite.
        counters: the numbers there.
        checkpoint_floor: the id of the next checkpoint if the new file has none.
        details: the details of its timeline entry.
    """

    kind: str
    pieces: Sequence[Piece]
    kept: int
    head: Position
    counters: ContextCounters
    checkpoint_floor: int = 0
    details: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
