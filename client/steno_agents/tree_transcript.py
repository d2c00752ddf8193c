"""Transcripts that are a tree, with compactions as records of it.

A history is the path from the last record to the root. A compaction on the path takes the place of
what is above it, except the records that it keeps.
"""

from steno_agents.transcript import End, ForeignTranscript, History
from steno_agents.tree import Node, Tree


class TreeTranscript(ForeignTranscript):
    """Histories of a tree; a subclass adds the records in its `scan`."""

    def __init__(self) -> None:
        super().__init__()
        self._tree = Tree()
        self._leaf: str | None = None
        # The first record that a compaction keeps, by the id of the compaction.
        self._compactions: dict[str, str | None] = {}

    def _add(self, identity: str, place: int, parent: str | None, *, speaks: bool) -> None:
        """Add a record, which becomes the leaf."""
        self._tree.add(identity, Node(place, 0, parent, speaks=speaks))
        self._leaf = identity

    def histories(self) -> list[History]:
        """What compactions replaced, the other branches, and the live branch as the last."""
        if self._leaf is None or not self._tree.speaks:
            return []
        self.unread, self._past_records = 0, 0
        past: list[History] = []
        covered: set[str] = set()
        live = self._tree.path(self._leaf)
        self._add_replaced(live, covered, past)
        for end in self._tree.newest_first():
            if end not in covered:
                # Once one is too many, later ones are only counted: each takes a walk to its root.
                path = self._tree.path(end, until=covered if self.unread else ())
                self._add_past(path, "branch", past)
                self._add_replaced(path, covered, past)
        past.sort(key=lambda each: max(each.places))
        return [*past, History(self._places(live), "live")]

    def _add_replaced(self, path: list[str], covered: set[str], past: list[History]) -> None:
        """Add what each compaction of a path replaced, and cover the path."""
        for at, identity in enumerate(path):
            if identity in covered:
                break
            if identity in self._compactions and path[at + 1 :]:
                self._add_past(path[at + 1 :], "compaction", past)
        covered.update(path)

    def _add_past(self, path: list[str], end: End, past: list[History]) -> None:
        if self.unread:
            self.unread += 1
            return
        places = self._places(path)
        if places and self._has_room(len(places)):
            past.append(History(places, end))

    def _places(self, path: list[str]) -> list[int]:
        """The places of a history, the first one first."""
        above: list[str] = []
        for identity in path:
            if identity in self._compactions:
                kept = self._compactions[identity]
                rest = path[path.index(identity) + 1 :]
                begin = rest.index(kept) + 1 if kept in rest else 0
                chosen = [identity, *reversed(rest[:begin]), *reversed(above)]
                return [
                    self._tree.node(each).place
                    for each in chosen
                    if each == identity or each not in self._compactions
                ]
            above.append(identity)
        return [self._tree.node(each).place for each in reversed(above)]
