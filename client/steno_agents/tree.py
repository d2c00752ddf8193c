"""The branches of a transcript whose records name their parents.

A long transcript has hundreds of thousands of records, and a watch keeps the trees of several. So
records have numbers, and arrays have what is known of them: about 80 bytes a record.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from steno_agents.limits import LIVE_TAIL_RECORDS

_NONE: Final = -1
_MISSING: Final = -2
"""The parent of a record that names one that is not there, or less: see `Tree._adopt`."""

Marks = bytearray
"""A set of records: a byte for each number, 1 for those in it."""


class _Index:
    """Numbers by what they belong to, in 12 bytes and as much room again.

    A dictionary takes ten times as much. Only hashes are kept: Python's are of 64 bits and differ
    in each process, so that two of a million names have the same one in one of 30 million files.
    """

    def __init__(self) -> None:
        self._count = 0
        self._make_room(64)

    def _make_room(self, slots: int) -> None:
        self._hashes = array("q", bytes(8 * slots))
        self._numbers = array("i", bytes(4 * slots))
        self._mask = slots - 1

    def _slot(self, key: int) -> int:
        hashes, mask = self._hashes, self._mask
        slot = key & mask
        while hashes[slot] not in (key, 0):
            slot = (slot + 1) & mask
        return slot

    def get(self, kind: str, name: str) -> int:
        """Return a number, -1 if there is none."""
        slot = self._slot(hash((kind, name)) or 1)
        return self._numbers[slot] if self._hashes[slot] else _NONE

    def put(self, kind: str, name: str, number: int) -> int:
        """Set a number; returns the one before, -1 if there was none."""
        key = hash((kind, name)) or 1
        slot = self._slot(key)
        before = self._numbers[slot] if self._hashes[slot] else _NONE
        self._hashes[slot], self._numbers[slot] = key, number
        if before == _NONE:
            self._count += 1
            if 3 * self._count > 2 * len(self._hashes):
                self._grow()
        return before

    def _grow(self) -> None:
        hashes, numbers = self._hashes, self._numbers
        self._make_room(2 * len(hashes))
        for key, number in zip(hashes, numbers, strict=True):
            if key:
                slot = self._slot(key)
                self._hashes[slot], self._numbers[slot] = key, number


class Stem(NamedTuple):
    """The beginning of a history, which no record of its end has changed.

    Attributes:
        number: the last record of it.
        places: the places of the history up to there.
    """

    number: int
    places: "array[int]"


class Tree:
    """Records by their numbers, which rise with their places.

    The chain of parents alone loses parallel calls: each is a record of its own below the same
    parent, with the same group, and so are their results.

    Attributes:
        speaks: a record of it says something.
    """

    def __init__(self) -> None:
        self.speaks: bool = False
        self._index = _Index()
        self._places = array("q")
        self._parents = array("i")
        self._speaks = bytearray()
        # The parts of an answer: the first one of each record's, and the one behind it.
        self._first_parts = array("i")
        self._next_parts = array("i")
        # The first call of each record; the last result of each call, or none.
        self._first_calls = array("i")
        self._results = array("i")
        # The first answer of each record; the call of each answer.
        self._first_answers = array("i")
        self._answered = array("i")
        self._has_orphans = False
        # The first record that another one changed since there is a stem.
        self._changed = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, identity: str) -> bool:
        return self.number(identity) is not None

    def number(self, identity: str) -> int | None:
        """Return the number of a record by its id; None if it is not there."""
        found = self._index.get("record", identity)
        return None if found == _NONE else found

    def place(self, number: int) -> int:
        """Return the place of a record in the file."""
        return self._places[number]

    def speaks_at(self, number: int) -> bool:
        """Whether a person or the model says something in a record."""
        return bool(self._speaks[number])

    def add(
        self,
        identity: str,
        place: int,
        parent: str | None,
        *,
        group: str | None = None,
        calls: Sequence[str] = (),
        answers: Sequence[str] = (),
        speaks: bool = False,
    ) -> int:
        """Add a record; a second one with the same id is a copy, and is left out.

        Args:
            identity: its id.
            place: its place in the file, behind that of each other record.
            parent: the id of the record that it follows; None for the first of a conversation.
            group: the id of the answer that it is a part of; None if it is none.
            calls: the ids of the calls in it.
            answers: the ids of the calls whose results it has.
            speaks: a person or the model says something in it.

        Returns:
            Its number, or that of the first one with its id.
        """
        known, number = self.number(identity), len(self._places)
        if known is not None:
            return known
        self._index.put("record", identity, number)
        self._places.append(place)
        self._parents.append(self._parent_of(number, parent))
        self._speaks.append(speaks)
        self.speaks = self.speaks or speaks
        if self._has_orphans:
            self._adopt(number, identity)
        self._add_part(number, group)
        self._first_calls.append(len(self._results))
        for call in calls:
            self._index.put("call", call, len(self._results))
            self._results.append(_NONE)
        self._first_answers.append(len(self._answered))
        for call in answers:
            self._add_answer(number, self._index.get("call", call))
        return number

    def _parent_of(self, number: int, parent: str | None) -> int:
        if parent is None:
            return _NONE
        found = self._index.get("record", parent)
        if found != _NONE:
            return found
        # It may come later in the file; else its line is damaged or was removed.
        self._has_orphans = True
        return _MISSING - 1 - self._index.put("child", parent, number)

    def _adopt(self, number: int, identity: str) -> None:
        """Become the parent of earlier records; each of them leads to the one before."""
        child = self._index.get("child", identity)
        while child != _NONE:
            before = _MISSING - 1 - self._parents[child]
            self._parents[child] = number
            self._note_change(child)
            child = before

    def _add_part(self, number: int, group: str | None) -> None:
        before = _NONE if group is None else self._index.put("group", group, number)
        self._next_parts.append(_NONE)
        if before == _NONE:
            self._first_parts.append(number)
            return
        self._next_parts[before] = number
        self._first_parts.append(self._first_parts[before])
        self._note_change(self._first_parts[before])

    def _add_answer(self, number: int, call: int) -> None:
        if call == _NONE:
            return
        self._answered.append(call)
        self._results[call] = number
        self._note_change(self._caller(call))

    def _caller(self, call: int) -> int:
        return bisect_right(self._first_calls, call) - 1

    def _note_change(self, number: int) -> None:
        self._changed = min(self._changed, number)

    def newest_first(self) -> Iterator[int]:
        """The records that say something, the last one first."""
        at = self._speaks.rfind(1)
        while at >= 0:
            yield at
            at = self._speaks.rfind(1, 0, at)

    def parent(self, number: int) -> int:
        """The record that a record follows: its parent, or the one before if that is missing.

        Returns:
            Its number, -1 for the first of a conversation.
        """
        parent = self._parents[number]
        return number - 1 if parent <= _MISSING else parent

    def path(self, leaf: int, until: Marks | None = None) -> "array[int]":
        """Return the records from a leaf up to the first of its conversation; a ring ends.

        Args:
            leaf: the last record.
            until: records that end the path, without being part of it.
        """
        found, seen = array("i"), Marks(len(self)) if until is None else Marks(until)
        seen.extend(bytes(len(self) - len(seen)))
        at = leaf
        while at >= 0 and not seen[at]:
            seen[at] = 1
            found.append(at)
            at = self.parent(at)
        return found

    def is_above(self, number: int, leaf: int) -> bool:
        """Whether a record is on the path from a leaf, which is walked up to it only."""
        at = leaf
        for _ in range(len(self)):
            if at in (number, _NONE):
                break
            at = self.parent(at)
        return at == number

    def tail(self, leaf: int, stem: Stem | None) -> "array[int] | None":
        """Return the path from a leaf down to a stem; None if it is long, or leads elsewhere."""
        if stem is None or self._changed <= stem.number:
            return None
        found, at = array("i"), leaf
        while at > stem.number and len(found) < 2 * LIVE_TAIL_RECORDS:
            found.append(at)
            at = self.parent(at)
        return found if at == stem.number else None

    def with_siblings(self, path: Iterable[int]) -> Marks:
        """Return a path with the other parts of its answers, and the results of their calls."""
        found, answered = Marks(len(self)), Marks(len(self._results))
        for number in path:
            found[number] = 1
            for call in self._answers(number):
                answered[call] = 1
        for number in marked(found.copy()):
            for part in self._parts(number):
                found[part] = 1
                for call in self._calls(part):
                    # A call that two terminals answered has the result of the path.
                    if not answered[call] and self._results[call] != _NONE:
                        found[self._results[call]] = 1
        return found

    def _parts(self, number: int) -> Iterator[int]:
        part = self._first_parts[number]
        while part != _NONE:
            yield part
            part = self._next_parts[part]

    def _calls(self, number: int) -> range:
        return _span(self._first_calls, number, len(self._results))

    def _answers(self, number: int) -> "array[int]":
        span = _span(self._first_answers, number, len(self._answered))
        return self._answered[span.start : span.stop]

    def places_of(self, numbers: Iterable[int]) -> "array[int]":
        """Return the places of records in the order of the numbers."""
        return array("q", map(self._places.__getitem__, numbers))

    def places(self, chosen: Marks, others: Iterable[int] = ()) -> "array[int]":
        """Return the places of records in the order of the file, an answer's parts at its first.

        Args:
            chosen: the records.
            others: places of other records to put among them.
        """
        found, waiting = array("q"), sorted(others, reverse=True)
        for number in marked(chosen):
            if self._is_later_part(number, chosen):
                continue
            while waiting and waiting[-1] < self._places[number]:
                found.append(waiting.pop())
            found.append(self._places[number])
            part = self._next_parts[number]
            while part != _NONE:
                if chosen[part]:
                    found.append(self._places[part])
                part = self._next_parts[part]
        found.extend(reversed(waiting))
        return found

    def _is_later_part(self, number: int, chosen: Marks) -> bool:
        part = self._first_parts[number]
        while part != number and not chosen[part]:
            part = self._next_parts[part]
        return part != number

    def stem(self, path: "array[int]", places: "array[int]", first: int = 0) -> Stem | None:
        """Return the beginning of a history that is long; None of a shorter one.

        Args:
            path: its path, the last record first.
            places: its places; those behind the stem come last.
            first: the first record that may end the stem.
        """
        low = number = len(self)
        # The highest of so many records at the end of the path.
        highest = array("i", accumulate(reversed(path), max, initial=_NONE))
        # Of a ring, the path is another one for each record that leads to it.
        is_ring = self.parent(path[-1]) != _NONE
        for above, at in enumerate(path, 1):
            if at < first or is_ring:
                break
            while number > at + 1:
                number -= 1
                callers = map(self._caller, self._answers(number))
                low = min(low, self._first_parts[number], *callers)
            is_old = at < len(self) - LIVE_TAIL_RECORDS
            if is_old and low > at and highest[len(path) - above] < at:
                self._changed = len(self)
                end = len(places)
                while end and places[end - 1] > self._places[at]:
                    end -= 1
                return Stem(at, places[:end])
        return None


def marked(marks: Marks) -> Iterator[int]:
    """The records of a set."""
    at = marks.find(1)
    while at >= 0:
        yield at
        at = marks.find(1, at + 1)


def _span(firsts: "array[int]", number: int, end: int) -> range:
    """The range that begins for a number, and ends where that of the next one begins."""
    is_last = number + 1 == len(firsts)
    return range(firsts[number], end if is_last else firsts[number + 1])
