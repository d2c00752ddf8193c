"""Files and folders of a simulated disk: cached and durable contents."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, assert_never

SNAPSHOTS_MAX = 8
"""States of one file between two syncs that a power cut mixes; more would only cost time."""


class Survival(StrEnum):
    """The unsynced changes of one file that survive a power cut."""

    LOST = "lost"
    """None of it."""

    KEPT = "kept"
    """All of it: the kernel had written it back by itself."""

    TORN = "torn"
    """The first changes, the last of them cut at any byte."""

    NULS = "nuls"
    """The size without the data: NUL where new bytes should be."""

    SHUFFLED = "shuffled"
    """Each page as it was at any moment, and the size of any moment: later writes may be there
    while earlier ones are not."""


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes put at an offset, beyond the end or over earlier bytes."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """A size that a file was given."""

    size: int


Change = Written | Cut


def apply(content: bytearray, change: Change) -> None:
    """Make one change; a gap is filled with NUL, as in every file system."""
    _resize(content, _size_after(len(content), change))
    if isinstance(change, Written):
        content[change.offset : change.offset + len(change.data)] = change.data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


FileKind = Literal["file", "symlink", "fifo", "foreign"]
"""A regular file of our own, or a refused kind: a link, a FIFO, another user's file."""


@dataclass(eq=False, slots=True)
class File:
    """A file: its contents for every process, and those on the medium.

    Attributes:
        cached: the content that a read returns.
        durable: the content that a power cut cannot take; pages that a failed sync dropped are
            missing here although `changes` does not have them any more.
        changes: what was done to `cached` since the last sync, oldest first.
        failures: how many syncs of it failed.
    """

    inode: int
    modified_s: float
    kind: FileKind = "file"
    links: int = 0
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list[Change])
    failures: int = 0

    def change(self, change: Change, now_s: float) -> None:
        """Change the cached content."""
        apply(self.cached, change)
        self.changes.append(change)
        self.modified_s = now_s

    def sync(self) -> None:
        """Make the pages durable that the kernel still counts as dirty."""
        for change in self.changes:
            apply(self.durable, change)
        self.changes.clear()

    def fail_sync(self) -> None:
        """A sync failed: the pages count as clean, and never reach the medium."""
        self.drop_dirty()
        self.failures += 1

    def drop_dirty(self) -> None:
        """Unsynced data is lost, and still read from memory."""
        self.changes.clear()

    def sync_part(self, chance: random.Random) -> None:
        """A failed sync that reached the medium with some of the pages, and dropped the rest."""
        if self.changes:
            self.durable = _after(self.durable, _torn(self.changes, chance))
        self.changes.clear()

    def evict(self) -> None:
        """Memory pressure: clean pages are forgotten and read again from the medium."""
        size = len(self.cached)
        self.cached = bytearray(self.durable)
        for change in self.changes:
            apply(self.cached, change)
        _resize(self.cached, size)

    def lose_power(self, survival: Survival, chance: random.Random, page_bytes: int) -> None:
        """Keep the unsynced changes that `survival` selects."""
        if self.changes:
            self.durable = self._survivor(survival, chance, page_bytes)
        self.cached = bytearray(self.durable)
        self.changes.clear()

    def _survivor(self, survival: Survival, chance: random.Random, page_bytes: int) -> bytearray:
        match survival:
            case Survival.LOST:
                return self.durable
            case Survival.KEPT:
                return _after(self.durable, self.changes)
            case Survival.TORN:
                return _after(self.durable, _torn(self.changes, chance))
            case Survival.NULS:
                return self._nuls(chance)
            case Survival.SHUFFLED:
                return self._shuffled(chance, page_bytes)
            case _:
                assert_never(survival)

    def _nuls(self, chance: random.Random) -> bytearray:
        content = bytearray(self.durable)
        for change in _torn(self.changes, chance):
            _resize(content, _size_after(len(content), change))
        return content

    def _shuffled(self, chance: random.Random, page_bytes: int) -> bytearray:
        moments = self._moments(chance)
        content = bytearray(len(chance.choice(moments)))
        for start in range(0, len(content), page_bytes):
            page = chance.choice(moments)[start : start + page_bytes]
            content[start : start + len(page)] = page[: len(content) - start]
        return content

    def _moments(self, chance: random.Random) -> list[bytes]:
        """States that the file went through: the first, the last, and some between."""
        last = len(self.changes)
        between = chance.sample(range(1, last), min(last - 1, SNAPSHOTS_MAX - 2))
        wanted = {0, last, *between}
        content = bytearray(self.durable)
        moments = [bytes(content)]
        for done, change in enumerate(self.changes, 1):
            apply(content, change)
            if done in wanted:
                moments.append(bytes(content))
        return moments


def _after(content: bytearray, changes: Iterable[Change]) -> bytearray:
    result = bytearray(content)
    for change in changes:
        apply(result, change)
    return result


def _torn(changes: Sequence[Change], chance: random.Random) -> list[Change]:
    """Some of the first changes; if the last one left is a write, a part of it."""
    kept = list(changes[: chance.randint(1, len(changes))])
    match kept[-1]:
        case Written(offset, data):
            kept[-1] = Written(offset, data[: chance.randint(0, len(data))])
        case Cut():
            pass
        case _:
            assert_never(kept[-1])
    return kept


def _size_after(size: int, change: Change) -> int:
    match change:
        case Written(offset, data):
            return max(size, offset + len(data))
        case Cut(cut):
            return cut
        case _:
            assert_never(change)


@dataclass(frozen=True, slots=True)
class Named:
    """A name given to a file, in place of the earlier file."""

    name: str
    node: "Node"


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A name that was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that became another, in one instant."""

    old: str
    new: str
    node: "Node"


@dataclass(eq=False, slots=True)
class Moved:
    """A name that went from one folder to another, in one instant: one change of both folders."""

    source: "Folder"
    old: str
    target: "Folder"
    new: str
    node: "Node"

    def survive(self) -> None:
        """Make it durable in both folders."""
        if self.source.durable.get(self.old) is self.node:
            del self.source.durable[self.old]
        self.target.durable[self.new] = self.node
        self.forget()

    def forget(self) -> None:
        """It is decided: in neither folder it waits any longer."""
        for folder in (self.source, self.target):
            folder.changes = [change for change in folder.changes if change is not self]


NameChange = Named | Unnamed | Renamed | Moved


def apply_name(names: "dict[str, Node]", change: NameChange) -> None:
    """Make one change of names, if its source exists."""
    match change:
        case Named(name, node):
            names[name] = node
        case Unnamed(name):
            names.pop(name, None)
        case Renamed(old, new, node):
            # A rename of a file without a durable name here cannot have happened.
            if names.get(old) is node:
                del names[old]
                names[new] = node
        case Moved():
            raise AssertionError("a move changes two folders: it survives as a whole")
        case _:
            assert_never(change)


@dataclass(eq=False, slots=True)
class Folder:
    """A folder: the names that every process sees, and those on the medium."""

    inode: int
    modified_s: float
    cached: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    durable: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    changes: list[NameChange] = field(default_factory=list[NameChange])

    def change(self, change: NameChange) -> None:
        """Change the cached names, and the links of the files that it speaks of."""
        before = list(self.cached.values())
        apply_name(self.cached, change)
        self.changes.append(change)
        _count_links(before, -1)
        _count_links(self.cached.values(), +1)

    def move(self, old: str, target: "Folder", new: str) -> None:
        """Take a name from here to another folder; it is a folder's, so no links are counted."""
        moved = Moved(self, old, target, new, self.cached.pop(old))
        target.cached[new] = moved.node
        for folder in {id(self): self, id(target): target}.values():
            folder.changes.append(moved)

    def sync(self) -> None:
        """Make the names durable."""
        for change in self.changes:
            self._make_durable(change)
        self.changes.clear()

    def _make_durable(self, change: NameChange) -> None:
        if isinstance(change, Moved):
            change.survive()
        else:
            apply_name(self.durable, change)

    def lose_power(self, survival: Survival, chance: random.Random, *, in_order: bool) -> None:
        """Undo names that were not synced.

        Args:
            survival: LOST undoes all, KEPT none, anything else some.
            chance: decides which.
            in_order: what survives is a prefix of what was done, as with one journal; else each
                change survives or not by itself.
        """
        for change in _surviving_names(self.changes, survival, chance, in_order):
            self._make_durable(change)
        for change in self.changes:
            if isinstance(change, Moved):
                change.forget()
        self.changes.clear()

    def read_again(self) -> None:
        """Restore the power: only durable data exists."""
        self.cached = dict(self.durable)

    def nodes(self) -> "Iterator[Node]":
        """Everything that has, had or may have again a name here."""
        yield from self.cached.values()
        yield from self.durable.values()
        for change in self.changes:
            if not isinstance(change, Unnamed):
                yield change.node


def _surviving_names(
    changes: Sequence[NameChange], survival: Survival, chance: random.Random, in_order: bool
) -> Sequence[NameChange]:
    if survival is Survival.LOST:
        return []
    if survival is Survival.KEPT:
        return changes
    if in_order:
        return changes[: chance.randint(0, len(changes))]
    return [change for change in changes if chance.random() < 0.5]


def _count_links(nodes: "Iterable[Node]", step: int) -> None:
    for node in nodes:
        if isinstance(node, File):
            node.links += step


@dataclass(eq=False, slots=True)
class Handle:
    """An open file or folder, like an open file description of the kernel.

    Attributes:
        node: what is open.
        name: what it was opened by.
        writable: whether it may be changed by this handle.
        failures: number of failed syncs of its file that it has reported: each handle that was open
            before a failure reports it once, for any caller, and later handles never do.
    """

    node: "Node"
    name: str
    writable: bool = False
    failures: int = 0

    def __post_init__(self) -> None:
        self.learn()

    def learn(self) -> bool:
        """Learn of all failed syncs of its file; True if there was one that it did not know of."""
        node, known = self.node, self.failures
        self.failures = node.failures if isinstance(node, File) else 0
        return self.failures != known


Node = File | Folder
