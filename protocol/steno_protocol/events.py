"""Events for subscribers, tagged by the field `kind`.

An event has the request id of its `subscribe` and travels in the same frame as a reply.
"""

from typing import Literal

import msgspec


class Event(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=str.lower
):
    """Base of all events."""


class Records(Event, frozen=True, kw_only=True):
    """Durable lines, with a block of whole lines.

    Attributes:
        first: position of the first line.
        next: position after the last one.
    """

    first: str
    next: str


class Live(Event, frozen=True, kw_only=True):
    """The backlog ends at `head`; later records are new."""

    head: str


class Reset(Event, frozen=True, kw_only=True):
    """A rewrite took place, or the reader has to start over for another reason.

    Attributes:
        generation: the new generation.
        kept: the number of its first lines that the previous generation had, too; the others
            follow as records.
        why: the kind of the rewrite in the timeline; `foreign` if another program changed the file,
            `collected` if `gc` removed the reader's generation, `made again` if the session was
            deleted and created again.
        incarnation: the session's incarnation, which changes when it is created again.
        head: the head at the time of the event; records up to it follow in one or more events.
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
        state: its new state.
        id: the mail's id.
        checkpoint_id: the checkpoint that its delivery reverts to.
    """

    state: Literal["sent", "delivered", "expired"]
    id: str
    checkpoint_id: int


class Lagged(Event, frozen=True, kw_only=True):
    """The subscription ended because its reader was too slow: subscribe again after `next`."""

    next: str
    why: str


class Gone(Event, frozen=True, kw_only=True):
    """The subscription ended because the session cannot be followed any longer.

    Attributes:
        why: the reason.
        new_session: the new id of a session that was renamed.
        moved: the session is as it was, and another daemon of the cluster owns it or may own it.
    """

    why: str
    new_session: str | None = None
    moved: bool = False


AnyEvent = Records | Live | Reset | DmailEvent | Lagged | Gone
