"""Events for subscribers: one frozen struct per kind, tagged by the field `kind`.

An event bears the request id of its `subscribe`, in the same frame as a reply.
"""

from typing import Literal

import msgspec


class Event(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """Any event."""


class Records(Event, frozen=True, kw_only=True):
    """Durable lines; one frame follows, a block of whole lines.

    Attributes:
        first: position of the first line.
        next: position after the last one.
    """

    first: str
    next: str


class Live(Event, frozen=True, kw_only=True):
    """The backlog ends at `head`; what follows is new."""

    head: str


class Reset(Event, frozen=True, kw_only=True):
    """A rewrite took place, or the reader has to start over for another reason.

    Attributes:
        generation: the new generation.
        kept: its first lines that are those of the generation before; the rest follows as records.
        why: the kind of the rewrite as the timeline calls it; `foreign` when another program
            changed the file, `collected` when the reader's generation was given up, `made again`
            when the session is another one.
        incarnation: changed when the session was deleted and made again.
        head: the head when the event was sent; the records up to there may follow in several
            events.
        checkpoint_floor: ids below it were assigned before this generation's lines.
    """

    generation: int
    kept: int
    why: str
    incarnation: str
    head: str
    checkpoint_floor: int = 0


class DmailEvent(Event, frozen=True, kw_only=True, tag="dmail"):
    """A change of a D-Mail's state; a pending one is sent once more after `live`.

    Attributes:
        state: what became of it.
        id: the mail's id.
        checkpoint_id: where it goes back to.
    """

    state: Literal["sent", "delivered", "expired"]
    id: str
    checkpoint_id: int


class Lagged(Event, frozen=True, kw_only=True):
    """The subscription is over because its reader was too slow: subscribe again after `next`."""

    next: str
    why: str


class Gone(Event, frozen=True, kw_only=True):
    """The subscription is over because the session cannot be followed any longer."""

    why: str


AnyEvent = Records | Live | Reset | DmailEvent | Lagged | Gone
