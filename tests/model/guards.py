"""Guards of the daemon and the client, each with what is left when it is taken out."""

from collections.abc import Callable
from typing import Any

from steno_protocol import checkpoint_ids
from steno_protocol.context import ContextState
from stenod.core import dmail, timeline
from stenod.core.lines import Tail
from stenod.recovery import tail_repair
from stenod.writer import writer

NOTICED = 3
"""The exit code of `python -m model.mutants` when the model noticed that a guard is missing."""

_reset = ContextState.reset

MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a mail that outlives its checkpoint": (dmail, "outlives", lambda mail, entry: True),
    "a key that is looked up in vain": (writer.key_lookup, "look_up", lambda log, path, key: None),
    "ids that begin again behind a cut": (
        checkpoint_ids, "checkpoint_floor", lambda entries, present: 0,
    ),
    "a reserved id that a restart gives away": (
        timeline, "unreserved_id", lambda entries, present: 0,
    ),
    "a torn end that is not cut": (
        tail_repair, "examine_tail", lambda region, marked: Tail(len(region)),
    ),
    "a follower that keeps what a rewrite dropped": (
        ContextState, "reset", lambda self, generation, kept, floor: _reset(
            self, generation, self.head.line, floor
        ),
    ),
}  # fmt: skip
