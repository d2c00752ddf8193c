"""Transcripts that are a tree, with compactions as records of it.

A history is the path from the last record to the root. A compaction on the path takes the place of
what is above it, except the records that it keeps.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from steno_agents.limits import COMPACT_RECORD_BYTES
from steno_agents.transcript import End, ForeignTranscript, History
from steno_agents.tree import Marks, Stem, Tree


class TreeTranscript(ForeignTranscript):
    """Histories of a tree; a subclass adds the records in its `scan`."""

    record_bytes: ClassVar[int] = COMPACT_RECORD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._tree = Tree()
        self._leaf: str | None = None
        # The first record that a compaction keeps, by the number of the compaction.
        self._compactions: dict[int, str | None] = {}
        self._stem: Stem | None = None

    def _add(self, identity: str, place: int, parent: str | None, *, speaks: bool) -> int:
        """Add a record, which becomes the leaf; returns its number."""
        self._leaf = identity
        return self._tree.add(identity, place, parent, speaks=speaks)

    def _live_leaf(self) -> int | None:
        return None if self._leaf is None else self._tree.number(self._leaf)

    def live(self) -> Sequence[int]:
        """The places of the live branch; of a long one, only the end is made anew."""
        tree, stem, leaf = self._tree, self._stem, self._live_leaf()
        if leaf is None or not tree.speaks:
            return ()
        tail = tree.tail(leaf, stem)
        if stem is not None and tail is not None and self._compactions.keys().isdisjoint(tail):
            return stem.places + self._places(tail)
        path = tree.path(leaf)
        places = self._places(path)
        compacted = next((each for each in path if each in self._compactions), 0)
        self._stem = tree.stem(path, places, compacted)
        return places

    def histories(self) -> list[History]:
        """What compactions replaced, the other branches, and the live branch as the last."""
        tree, leaf = self._tree, self._live_leaf()
        if leaf is None or not tree.speaks:
            return []
        self.unread, self._past_records = 0, 0
        past: list[History] = []
        covered = Marks(len(tree))
        live = tree.path(leaf)
        self._add_replaced(live, covered, past)
        for end in tree.newest_first():
            if not covered[end]:
                # Once one is too many, later ones are only counted: each takes a walk to its root.
                path = tree.path(end, until=covered if self.unread else None)
                self._add_past(path, "branch", past)
                self._add_replaced(path, covered, past)
        past.sort(key=lambda each: max(each.places))
        return [*past, History(self._places(live), "live")]

    def _add_replaced(self, path: "array[int]", covered: Marks, past: list[History]) -> None:
        """Add what each compaction of a path replaced, and cover the path."""
        for at, number in enumerate(path):
            if covered[number]:
                break
            if number in self._compactions and path[at + 1 :]:
                self._add_past(path[at + 1 :], "compaction", past)
        for number in path:
            covered[number] = 1

    def _add_past(self, path: "array[int]", end: End, past: list[History]) -> None:
        if self.unread:
            self.unread += 1
            return
        places = self._places(path)
        if places and self._has_room(len(places)):
            past.append(History(places, end))

    def _places(self, path: "array[int]") -> "array[int]":
        """The places of a history, the first one first."""
        for at, number in enumerate(path):
            if number in self._compactions:
                rest = path[at + 1 :]
                kept = self._tree.number(self._compactions[number] or "")
                begin = 0 if kept is None or kept not in rest else rest.index(kept) + 1
                chosen = chain((number,), reversed(rest[:begin]), reversed(path[:at]))
                return self._tree.places_of(
                    each for each in chosen if each == number or each not in self._compactions
                )
        return self._tree.places_of(reversed(path))
