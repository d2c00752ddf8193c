"""The branches of a transcript whose records name their parents."""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple


class Node(NamedTuple):
    """A record of the tree.

    Attributes:
        place: its place in the file.
        number: its number among the nodes.
        parent: the id of the record that it follows; None for the first of a conversation.
        group: the id of the answer that it is a part of; None if it is none.
        calls: the ids of the calls in it.
        answers: the ids of the calls whose results it has.
        speaks: a person or the model says something in it.
    """

    place: int
    number: int
    parent: str | None
    group: str | None = None
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    speaks: bool = False


class Tree:
    """Records by their ids.

    The chain of parents alone loses parallel calls: each is a record of its own below the same
    parent, with the same `group`, and so are their results.

    Attributes:
        speaks: a record of it says something.
    """

    def __init__(self) -> None:
        self.speaks: bool = False
        self._nodes: dict[str, Node] = {}
        self._order: list[str] = []
        self._groups: dict[str, list[str]] = {}
        self._results: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, identity: object) -> bool:
        return identity in self._nodes

    @property
    def last(self) -> str | None:
        """The id of the record that was added last."""
        return self._order[-1] if self._order else None

    def node(self, identity: str) -> Node:
        """Return a record by its id."""
        return self._nodes[identity]

    def add(self, identity: str, node: Node) -> None:
        """Add a record; a second one with the same id is a copy, and is left out."""
        if identity in self._nodes:
            return
        self._nodes[identity] = node._replace(number=len(self._order))
        self._order.append(identity)
        self.speaks = self.speaks or node.speaks
        if node.group is not None:
            self._groups.setdefault(node.group, []).append(identity)
        for call in node.answers:
            self._results.setdefault(call, []).append(identity)

    def newest_first(self) -> Iterator[str]:
        """The ids of the records that say something, the last one first."""
        return (each for each in reversed(self._order) if self._nodes[each].speaks)

    def parent(self, identity: str) -> str | None:
        """The record that a record follows: its parent, or the one before if that is missing.

        A parent is missing where its line is damaged or was removed.
        """
        node = self._nodes[identity]
        if node.parent is None or node.parent in self._nodes:
            return node.parent
        return self._order[node.number - 1] if node.number else None

    def path(self, leaf: str, until: Container[str] = ()) -> list[str]:
        """Return the records from a leaf up to the first of its conversation; a ring ends.

        Args:
            leaf: the last record.
            until: records that end the path, without being part of it.
        """
        found: dict[str, None] = {}
        at: str | None = leaf
        while at is not None and at not in found and at not in until:
            found[at] = None
            at = self.parent(at)
        return list(found)

    def with_siblings(self, path: Iterable[str]) -> set[str]:
        """Return a path with the other parts of its answers, and the results of their calls."""
        found = set(path)
        answered = {call for each in found for call in self._nodes[each].answers}
        for identity in list(found):
            group = self._nodes[identity].group
            parts = [identity] if group is None else self._groups[group]
            found.update(parts)
            for call in [call for part in parts for call in self._nodes[part].calls]:
                # A call that two terminals answered has the result of the path.
                if call not in answered and call in self._results:
                    found.add(self._results[call][-1])
        return found

    def places(self, chosen: Iterable[str], others: Iterable[int] = ()) -> list[int]:
        """Return the places of records in the order of the file, an answer's parts at its first.

        Args:
            chosen: the records.
            others: places of other records to put among them.
        """
        nodes = sorted((self._nodes[each] for each in chosen), key=lambda node: node.place)
        first: dict[str, int] = {}
        keyed = [(place, place) for place in others]
        for node in nodes:
            begin = node.place if node.group is None else first.setdefault(node.group, node.place)
            keyed.append((begin, node.place))
        return [place for _, place in sorted(keyed)]
