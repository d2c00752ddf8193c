"""The last turns of a session's present state, and the undo that can be redone; pure.

The timeline names the source of each generation. Followed back from the present one, it says up to
which line an older generation is still part of the present: a turn that began below that line is
one of the present turns, at the same line.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from steno.values import Turn
from steno_protocol import timeline_entries
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


def present_turns(
    turns: Iterable[Turn], timeline: Iterable[TimelineEntry], head: Position
) -> list[Position]:
    """Return where each turn began whose records are part of the present state, oldest first."""
    ends = dict(_ends(timeline, head))
    return [
        Position(head.generation, turn.at.line)
        for turn in turns
        if turn.at is not None and turn.at.line < ends.get(turn.at.generation, 0)
    ]


def undone(timeline: Iterable[TimelineEntry], head: Position) -> int | None:
    """Return the generation before the last undo; None if none is last, or something was written.

    After a redo it is the generation before the undo that came before that one.
    """
    made = _rewrites(timeline)
    generation = head.generation
    while (entry := made.get(generation)) is not None and _lines(entry) == head.line:
        if entry.kind == timeline_entries.REVERTED:
            return generation - 1 if "position" in entry.details else None
        if entry.kind != timeline_entries.RESTORED:
            return None
        generation = _source(entry)
    return None


def done_with(
    key: str | None, timeline: Iterable[TimelineEntry], kind: str
) -> dict[str, Any] | None:
    """Return the details of the rewrite of a kind that a key has done; None if it has done none."""
    entries = (entry for entry in timeline if key is not None and entry.key == key)
    return next((entry.details for entry in entries if entry.kind == kind), None)


def _ends(timeline: Iterable[TimelineEntry], head: Position) -> Iterator[tuple[int, float]]:
    """Yield each generation that the present one begins with, and its first line that is not."""
    made = _rewrites(timeline)
    generation, end = head.generation, float(head.line)
    while generation >= 0:
        yield generation, end
        entry = made.get(generation)
        if entry is None or entry.kind not in _KEEPING:
            return
        source = _source(entry)
        kept = inf
        if entry.kind == timeline_entries.REVERTED:
            # Without its damaged lines, only the first lines have the same numbers.
            kept = entry.kept if source == generation - 1 else _lines(entry)
        generation, end = source, min(end, kept)


_KEEPING: Sequence[str] = (timeline_entries.REVERTED, timeline_entries.RESTORED)
"""The rewrites after which the lines before the cut have the same numbers."""


def _rewrites(timeline: Iterable[TimelineEntry]) -> dict[int, TimelineEntry]:
    return {
        entry.generation: entry for entry in timeline if entry.kind in timeline_entries.REWRITES
    }


def _source(entry: TimelineEntry) -> int:
    source = entry.details.get("from", entry.generation - 1)
    return source if isinstance(source, int) and source < entry.generation else -1


def _lines(entry: TimelineEntry) -> int:
    lines = entry.details.get("lines")
    return lines if isinstance(lines, int) else -1
