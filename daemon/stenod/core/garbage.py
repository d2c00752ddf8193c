"""The past generations that `gc` may remove."""

from collections.abc import Iterable, Sequence

import msgspec

from steno_protocol import timeline_entries
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.retention import Rules


class Past(msgspec.Struct, frozen=True):
    """A past generation.

    Attributes:
        generation: its number.
        size: bytes of its file.
        left_at: Unix time in seconds at which it was replaced, by the time of its file.
    """

    generation: int
    size: int
    left_at: float

    @property
    def at(self) -> float:
        """The time from which its age counts."""
        return self.left_at


class Retention(msgspec.Struct, frozen=True):
    """The generations that stay.

    Attributes:
        before: generations replaced at or after this Unix time in seconds stay; None for no limit.
        keep: the number of the newest generations that stay.
        with_lineage: generations with checkpoints from before a compaction may be removed, too,
            except for the pending D-Mail's.
    """

    before: float | None
    keep: int
    with_lineage: bool


def droppable(
    past: Sequence[Past],
    entries: Sequence[TimelineEntry],
    present: int,
    mail: Mail | None,
    retention: Retention,
) -> list[Past]:
    """Return the generations that may be removed, oldest first.

    The newest past generation always stays, because the present number is derived from it.

    Args:
        past: all past generations.
        entries: the session's timeline.
        present: the present generation.
        mail: the pending D-Mail.
        retention: the generations that stay.
    """
    known = sorted(past, key=lambda each: each.generation)
    candidates = known[: max(0, len(known) - max(1, retention.keep))]
    needed: set[int] = set()
    if not retention.with_lineage:
        needed |= set(timeline.lineage(entries, present))
    if mail is not None:
        # The search for its checkpoint reads these, and its line was in the last one when sent.
        needed |= set(timeline.lineage(entries, present, mail.checkpoint_id))
        needed.add(Position.parse(mail.cursor).generation)
    left_at = _left_at(entries)
    return [
        each
        for each in candidates
        if each.generation not in needed
        and (
            retention.before is None
            or left_at.get(each.generation, each.left_at) < retention.before
        )
    ]


def named(
    past: Sequence[Past],
    entries: Sequence[TimelineEntry],
    present: int,
    mail: Mail | None,
    rules: Rules,
    now: float,
) -> list[tuple[Past, str]]:
    """Return the generations that a rule of retention names and that may be removed.

    Args:
        past: all past generations.
        entries: the session's timeline.
        present: the present generation.
        mail: the pending D-Mail.
        rules: the rules for the generations of one session.
        now: Unix time in seconds.

    Returns:
        The generations, oldest first, each with its rule.
    """
    left_at = _left_at(entries)
    newest_first = sorted(past, key=lambda each: each.generation, reverse=True)
    aged = [
        msgspec.structs.replace(each, left_at=left_at.get(each.generation, each.left_at))
        for each in newest_first
    ]
    all_that_may = Retention(before=None, keep=1, with_lineage=False)
    may_go = {each.generation for each in droppable(past, entries, present, mail, all_that_may)}
    return [(each, rule) for each, rule in rules.excess(aged, now) if each.generation in may_go]


def compressible(
    past: Sequence[Past], entries: Sequence[TimelineEntry], before: float
) -> list[Past]:
    """Return the generations that may be compressed, oldest first.

    The newest past generation stays plain, because a crash of the rewrite that made it is settled
    by its file. So does one that another program left, whose age is that of its file.

    Args:
        past: all past generations, oldest first.
        entries: the session's timeline.
        before: those that a rewrite replaced before this Unix time in seconds.
    """
    left_at = _left_at(entries)
    return [each for each in past[:-1] if left_at.get(each.generation, before) < before]


def _left_at(entries: Iterable[TimelineEntry]) -> dict[int, float]:
    """Return the time at which each generation was replaced, from the rewrite to the next one."""
    return {
        entry.generation - 1: entry.at
        for entry in entries
        if entry.kind in timeline_entries.REWRITES
    }
