"""Events for subscribers, tagged by the field `kind`.

An event has the request id of its `subscribe` and travels in the same frame as a reply. PROTOCOL.md
describes the fields (section 12), and `steno.values` those that callers get.
"""

from typing import Literal

import msgspec


class Event(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """Base of all events."""


class Records(Event, frozen=True, kw_only=True):
    """Durable lines, with a block of whole lines."""

    first: str
    next: str


class Live(Event, frozen=True, kw_only=True):
    """The backlog ends at `head`; later records are new."""

    head: str


class Reset(Event, frozen=True, kw_only=True):
    """A rewrite took place, or the reader has to start over for another reason."""

    generation: int
    kept: int
    why: str
    incarnation: str
    head: str
    checkpoint_floor: int = 0


class DmailEvent(Event, frozen=True, kw_only=True, tag="dmail"):
    """A change of a D-Mail's state; a pending one is sent once more after `live`."""

    state: Literal["sent", "delivered", "expired"]
    id: str
    checkpoint_id: int


class Lagged(Event, frozen=True, kw_only=True):
    """The subscription ended because its reader was too slow: subscribe again after `next`."""

    next: str
    why: str


class Gone(Event, frozen=True, kw_only=True):
    """The subscription ended because the session cannot be followed any longer."""

    why: str
    new_session: str | None = None
    moved: bool = False


AnyEvent = Records | Live | Reset | DmailEvent | Lagged | Gone
