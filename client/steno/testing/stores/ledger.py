"""What was sent and acknowledged, against what a store returned."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from steno.testing.stores import limits
from steno.testing.stores.driver import Entry
from steno.testing.stores.verdicts import Broken

_TEXT = 'plain "quoted" \\ two\nlines \u6c49\u5b57 \u00e9 \U0001f600 \u2028 '


@dataclass(frozen=True, slots=True)
class Item:
    """One append: its entries (one, or those of a batch) under one key."""

    id: str
    key: str
    entries: tuple[Entry, ...]

    def call(self) -> dict[str, Any]:
        """The request that appends it."""
        if self.id == self.entries[0]["id"]:
            return {"do": "append", "entry": self.entries[0], "key": self.key}
        return {"do": "append_batch", "entries": list(self.entries), "key": self.key}


@dataclass(slots=True)
class Ledger:
    """The appends of one session, in the order in which they were made.

    Attributes:
        items: all appends that were sent, by id.
        acked: those that the store acknowledged.
        removed: entries that an acknowledged clear or revert removed.
        optional: entries that a clear or revert at the same time may have removed.
        refused: entries whose condition was not met.
        session: the beginning of every key, because a key belongs to one session.
    """

    items: dict[str, Item] = field(default_factory=dict[str, Item])
    acked: set[str] = field(default_factory=set[str])
    removed: set[str] = field(default_factory=set[str])
    optional: set[str] = field(default_factory=set[str])
    refused: set[str] = field(default_factory=set[str])
    session: str = ""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def entry(self, writer: str, size: int = 100) -> Item:
        """A new entry of a writer, with about `size` bytes of text."""
        entry = self._new_entry(writer, size)
        return self._add(entry["id"], (entry,))

    def batch(self, writer: str, count: int, size: int = 100) -> Item:
        """A new batch of a writer."""
        entries = tuple(self._new_entry(writer, size) for _ in range(count))
        return self._add(f"{entries[0]['id']}..{entries[-1]['number']}", entries)

    def ack(self, *ids: str) -> None:
        """Take in acknowledged appends."""
        self.acked.update(ids)

    def check(self, loaded: Sequence[Entry]) -> None:
        """Compare a session with its appends.

        Raises:
            Broken: entries are damaged, doubled, lost, half a batch, back again or out of order.
        """
        sent = {entry["id"]: entry for item in self.items.values() for entry in item.entries}
        _report(
            "damaged entries", [_show(each) for each in loaded if not _is_one(each, sent)], loaded
        )
        ids: list[str] = [entry["id"] for entry in loaded]
        _report("entries stored twice", _repeated(ids), ids)
        self.check_whole(loaded)
        there = set(ids)
        done = (item for item in self.items.values() if item.id in self.acked)
        acked = [entry["id"] for item in done for entry in item.entries]
        gone = there | self.removed | self.optional
        _report("acknowledged entries lost", [each for each in acked if each not in gone], acked)
        _report("removed entries came back", sorted(there & self.removed), self.removed)
        _report("refused entries are stored", sorted(there & self.refused), self.refused)
        _report("entries out of their writer's order", _misplaced(loaded), loaded)

    def check_order(self, loaded: Sequence[Entry]) -> None:
        """Compare the session with appends that followed each other in any process.

        Raises:
            Broken: as `check`, or the order differs.
        """
        self.check(loaded)
        expected = [entry["id"] for item in self.items.values() for entry in item.entries]
        there = [entry["id"] for entry in loaded]
        expected = [each for each in expected if each in set(there)]
        wrong = [mine for mine, other in zip(there, expected, strict=True) if mine != other]
        _report("entries out of the order of their acks", wrong, there)

    def check_whole(self, loaded: Sequence[Entry]) -> None:
        """Check that each batch is there as a whole or not at all.

        Raises:
            Broken: a part of a batch is there.
        """
        there = {entry["id"] for entry in loaded}
        for item in self.items.values():
            found = sum(entry["id"] in there for entry in item.entries)
            if 0 < found < len(item.entries):
                raise Broken(
                    "entries of a batch are there", f"batch {item.id}", count=found,
                    of=len(item.entries),
                )  # fmt: skip

    def _new_entry(self, writer: str, size: int) -> Entry:
        number = self._numbers[writer] = self._numbers.get(writer, 0) + 1
        name = f"{writer}-{number}"
        text = (f"{name} " + _TEXT * (size // len(_TEXT.encode()) + 1))[:size]
        return {"id": name, "writer": writer, "number": number, "text": text}

    def _add(self, name: str, entries: tuple[Entry, ...]) -> Item:
        # Keys sort in the order of the appends, because some stores order by them.
        key = f"{self.session}-{len(self.items):08d}-{entries[0]['writer']}"
        item = Item(name, key, entries)
        self.items[name] = item
        return item


def _is_one(entry: object, sent: Mapping[str, Entry]) -> bool:
    if not isinstance(entry, dict):
        return False
    found = cast("Entry", entry)
    return sent.get(str(found.get("id"))) == found


def _repeated(ids: Sequence[str]) -> list[str]:
    counts = Counter(ids)
    return [each for each, count in counts.items() for _ in range(count - 1)]


def _misplaced(loaded: Iterable[Entry]) -> list[str]:
    by_writer: dict[str, list[Entry]] = {}
    for entry in loaded:
        by_writer.setdefault(entry["writer"], []).append(entry)
    return [
        later["id"]
        for entries in by_writer.values()
        for earlier, later in pairwise(entries)
        if later["number"] < earlier["number"]
    ]


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:60] + "..."


def _report(what: str, ids: Sequence[str], of: Collection[object]) -> None:
    if ids:
        named = ", ".join(ids[: limits.IDS_MAX])
        more = f" and {len(ids) - limits.IDS_MAX} more" if len(ids) > limits.IDS_MAX else ""
        raise Broken(what, named + more, count=len(ids), of=len(of))
