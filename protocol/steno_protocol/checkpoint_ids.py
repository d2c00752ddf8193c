"""Checkpoint ids in the timeline: the next id, and the sessions that a handle is valid in.

In a session of steno's own no id is assigned twice, so each rewrite records the next one. In a
mount and in a session without stamps ids count as in kimi-cli, which assigns the ids that a revert
removed again. There a revert to the first checkpoint of a compacted file leaves no checkpoint line,
so the next id is that of the revert.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from steno_protocol import timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

_KEEPING_IDS: Final = {
    timeline_entries.PROMPTED,
    timeline_entries.RESTORED,
    timeline_entries.MENDED,
}
"""Rewrites after which the ids continue those of their source generation."""


def checkpoint_floor(entries: Iterable[TimelineEntry], present: int) -> int:
    """Return the smallest next checkpoint id of a generation, whatever its lines are.

    Args:
        entries: the session's timeline, oldest first, without voided rewrites.
        present: the generation.
    """
    return NextCheckpointIds(entries).of(present)


class NextCheckpointIds:
    """The next checkpoint ids of a timeline, for any number of generations.

    Where no rewrite recorded the next id, it is that of a revert's target after the revert; it is
    more than 0 if that is the first checkpoint of a compacted file. After any other rewrite that
    keeps no ids, it is 0.

    Args:
        entries: the session's timeline, oldest first, without voided rewrites.
    """

    def __init__(self, entries: Iterable[TimelineEntry]) -> None:
        self._rewrites: dict[int, TimelineEntry] = {}
        self._forks: dict[int, TimelineEntry] = {}
        self._recorded: dict[int, int] = {}
        for entry in entries:
            if "next_id" in entry.details:
                number = whole_number(entry.details["next_id"])
                known = self._recorded.get(entry.generation, 0)
                self._recorded[entry.generation] = max(known, number)
            if entry.kind == timeline_entries.REVERTED or entry.kind in _KEEPING_IDS:
                self._rewrites[entry.generation] = entry
            elif entry.kind == timeline_entries.FORKED:
                self._forks[entry.generation] = entry

    def newest_recorded(self, present: int) -> int:
        """Return the newest generation up to `present` whose next id is above all earlier ids."""
        return max((each for each in self._recorded if each <= present), default=0)

    def assigned_in(self, checkpoint_id: int) -> int:
        """Return the generation that was the present one when an id was assigned.

        It is certain only where no id is assigned twice.
        """
        begun = (each for each, number in self._recorded.items() if number <= checkpoint_id)
        return max(begun, default=0)

    def of(self, generation: int) -> int:
        """Return the smallest next checkpoint id of a generation, whatever its lines are."""
        while True:
            if generation in self._recorded:
                return self._recorded[generation]
            fork = self._forks.get(generation)
            if fork is not None and (number := whole_number(fork.details.get("checkpoint_id"))):
                return number
            entry = self._rewrites.get(generation)
            if entry is None:
                return 0
            if entry.kind == timeline_entries.REVERTED:
                return whole_number(entry.details.get("checkpoint_id"))
            source = entry.details.get("from", generation - 1)
            if not isinstance(source, int) or not 0 <= source < generation:
                return 0
            generation = source


def belongs(entries: Iterable[TimelineEntry], incarnation: str, at: Position) -> bool:
    """Whether a session contains the line that another incarnation had at a position, or its own.

    A fork shares the lines before its instant with its source, and with the sources of that one.

    Args:
        entries: the session's timeline.
        incarnation: the incarnation that a handle names.
        at: the position of the handle's checkpoint there.
    """
    for entry in entries:
        own = entry.details.get("incarnation")
        if isinstance(own, str):
            shared = origins(entry).get(incarnation)
            return own == incarnation or (shared is not None and at < shared)
    return False


def origins(entry: TimelineEntry) -> dict[str, Position]:
    """Return the incarnations that share lines with a fork, each with the end of these lines.

    Args:
        entry: the entry of the session's creation.
    """
    try:
        listed = msgspec.convert(entry.details.get("origins", []), list[tuple[str, str]])
    except msgspec.ValidationError:
        return {}
    return {incarnation: Position.parse(end) for incarnation, end in listed}
