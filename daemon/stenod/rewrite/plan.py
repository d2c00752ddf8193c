"""The plan of a rewrite."""

from collections.abc import Sequence
from typing import Any

import msgspec

from steno_protocol.context import ContextCounters
from steno_protocol.positions import Position
from stenod.store.log import Piece


class Plan(msgspec.Struct, frozen=True):
    """The plan of a rewrite.

    Attributes:
        kind: its kind in the timeline.
        pieces: the pieces of the new file, in order.
        kept: the number of first lines of the present generation that the new one begins with.
        head: the head after the rewrite.
        counters: the numbers there.
        checkpoint_floor: the smallest id of the next checkpoint, whatever the lines are.
        details: the details of its timeline entry.
    """

    kind: str
    pieces: Sequence[Piece]
    kept: int
    head: Position
    counters: ContextCounters
    checkpoint_floor: int = 0
    details: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
