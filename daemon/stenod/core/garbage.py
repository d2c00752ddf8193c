"""Which generations may be given up: those that were asked for, and that nothing stands on."""

from collections.abc import Iterable, Sequence

import msgspec

from steno_protocol import timeline_entries
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline


class Past(msgspec.Struct, frozen=True):
    """A generation that a rewrite left behind.

    Attributes:
        generation: its number.
        size: bytes of its file.
        left_at: when a rewrite replaced it, Unix time in seconds, from entries or file times.
    """

    generation: int
    size: int
    left_at: float


class Wish(msgspec.Struct, frozen=True):
    """What may go.

    Attributes:
        before: what was left behind before this Unix time in seconds, None for any time.
        keep: how many of the newest stay.
        with_lineage: also what checkpoints from before a compaction lie in, but for the one that
            the waiting D-Mail goes back to.
    """

    before: float | None
    keep: int
    with_lineage: bool


def droppable(
    past: Sequence[Past],
    entries: Sequence[TimelineEntry],
    present: int,
    mail: Mail | None,
    wish: Wish,
) -> list[Past]:
    """The generations that may go, oldest first.

    The newest always stays: the number of the present generation is one more than its own.

    Args:
        past: all that are there.
        entries: the session's timeline.
        present: the present generation.
        mail: the D-Mail that waits.
        wish: what was asked for.
    """
    known = sorted(past, key=lambda each: each.generation)
    candidates = known[: max(0, len(known) - max(1, wish.keep))]
    needed: set[int] = set()
    if not wish.with_lineage:
        needed |= set(timeline.lineage(entries, present))
    if mail is not None:
        # Also what is only looked through on the way to it, and where it lay when it was sent.
        needed |= set(timeline.lineage(entries, present, mail.checkpoint_id))
        needed.add(Position.parse(mail.cursor).generation)
    left_at = _left_at(entries)
    return [
        each
        for each in candidates
        if each.generation not in needed
        and (wish.before is None or left_at.get(each.generation, each.left_at) < wish.before)
    ]


def _left_at(entries: Iterable[TimelineEntry]) -> dict[int, float]:
    """When each generation was left behind, by the rewrite to the next one."""
    return {
        entry.generation - 1: entry.at
        for entry in entries
        if entry.kind in timeline_entries.REWRITES
    }
