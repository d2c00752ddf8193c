"""Drivers for the conformance suite: a small journal that keeps every clause, and broken ones."""

import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """A session as a file of JSON Lines, each line one append, written under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = self.open_file()

    def open_file(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def close(self) -> None:
        os.close(self.file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def read(self) -> bytes:
        return self.path.read_bytes()

    def lines(self) -> tuple[list[Any], int]:
        """The whole lines, and the length of the file up to their end."""
        lines, whole = [], 0
        for line in self.read().splitlines(keepends=True):
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
            if not line.endswith(b"\n"):
                lines.pop()
                break
            whole += len(line)
        return lines, whole

    def load(self) -> list[Entry]:
        return [entry for line in self.live() for entry in line["entries"]]

    def live(self) -> list[Any]:
        """The lines that no later line removes."""
        live: list[Any] = []
        for line in self.lines()[0]:
            if "keep" in line:
                del live[line["keep"] :]
            else:
                live.append(line)
        return live

    def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
        self.append_line({"key": key, "entries": [entry]}, expect)

    def append_batch(self, entries: Sequence[Entry], key: str) -> None:
        self.append_line({"key": key, "entries": entries})

    def clear(self) -> None:
        self.append_line({"keep": 0})

    def checkpoint(self) -> int:
        return len(self.live())

    def revert(self, mark: int) -> None:
        self.append_line({"keep": mark})

    def head(self) -> int:
        return self.lines()[1]

    def append_line(self, line: Any, expect: int | None = None) -> None:
        with self.locked():
            lines, whole = self.lines()
            if not self.is_stored(line, lines):
                if expect is not None and expect != whole:
                    raise RuntimeError(f"the head is {whole}")
                self.repair(whole)
                self.write(json.dumps(line).encode() + b"\n", whole)

    def is_stored(self, line: Any, lines: Sequence[Any]) -> bool:
        return "key" in line and any(line["key"] == each.get("key") for each in lines)

    def repair(self, whole: int) -> None:
        os.truncate(self.path, whole)

    def write(self, data: bytes, whole: int) -> None:
        try:
            while data:
                data = data[os.write(self.file, data) :]
            self.sync()
        except OSError:
            os.truncate(self.path, whole)
            raise

    def sync(self) -> None:
        os.fsync(self.file)


class JournalDriver:
    """Keeps every clause."""

    offers = frozenset({"keys", "batches", "expect", "clear", "revert", "durable"})
    store: type[Journal] = Journal

    def open(self, folder: Path, session: str) -> Journal:
        return self.store(folder / f"{session}.jsonl")


class PlainDriver(JournalDriver):
    """Keeps every clause that a store has to keep which declares no capability."""

    offers = frozenset()


class Unlocked(Journal):
    """Two writers get the same end of the file, and the later one overwrites the earlier one."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def write(self, data: bytes, whole: int) -> None:
        handle = os.open(self.path, os.O_WRONLY)
        os.pwrite(handle, data, whole)
        os.fsync(handle)
        os.close(handle)


class CreatedTwice(Journal):
    """Creates its file if it was missing a moment ago, and raises if another process was faster."""

    def open_file(self) -> int:
        if self.path.exists():
            return super().open_file()
        # As long as the creation of a schema takes.
        for number in range(200):
            self.path.with_suffix(f".new{number}.{os.getpid()}").touch()
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)


class Cached(Journal):
    """Loads once, and then knows its own appends only."""

    cache: list[Entry] | None = None

    def load(self) -> list[Entry]:
        if self.cache is None:
            self.cache = super().load()
        return self.cache

    def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
        super().append(entry, key, expect)
        if self.cache is not None:
            self.cache.append(entry)


class Sorting(Journal):
    """Loads the entries by writer, and not in their order."""

    def load(self) -> list[Entry]:
        return sorted(super().load(), key=lambda entry: str(entry["writer"]))


class Leaving(Journal):
    """Keeps the last entry of each process in a file that is nobody's once the process is dead."""

    def waiting(self) -> list[Path]:
        files = self.path.parent.glob(f"{self.path.stem}.waiting.*")
        return [file for file in files if _is_alive(int(file.suffix[1:]))]

    def read(self) -> bytes:
        return super().read() + b"".join(file.read_bytes() for file in self.waiting())

    def write(self, data: bytes, whole: int) -> None:
        self.take_in()
        self.path.with_suffix(f".waiting.{os.getpid()}").write_bytes(data)

    def take_in(self) -> None:
        for file in self.waiting():
            super().write(file.read_bytes(), 0)
            file.unlink()

    def repair(self, whole: int) -> None:
        pass

    def close(self) -> None:
        with self.locked():
            self.take_in()
        super().close()


class LockedByTheDead(Journal):
    """Refuses to open a session whose last writer did not close it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.owner = path.with_suffix(f".owner.{os.getpid()}")
        owners = [*path.parent.glob(f"{path.stem}.owner.*")]
        if not all(_is_alive(int(owner.suffix[1:])) for owner in owners):
            raise RuntimeError("the session is in use")
        self.owner.touch()

    def close(self) -> None:
        self.owner.unlink()
        super().close()


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Fusing(Journal):
    """Skips damaged lines, and appends behind a torn one."""

    def lines(self) -> tuple[list[Any], int]:
        lines = []
        for line in self.read().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return lines, len(self.read())


class Strict(Journal):
    """Raises at a damaged line."""

    def lines(self) -> tuple[list[Any], int]:
        data = self.read()
        return [json.loads(line) for line in data.splitlines()], len(data)


class Swallowing(Journal):
    """Logs a full disk and goes on."""

    def write(self, data: bytes, whole: int) -> None:
        try:
            super().write(data, whole)
        except OSError as error:
            print("cannot append:", error)


class Renaming(Journal):
    """Clears and reverts into a new file, which handles that are open do not have."""

    def append_line(self, line: Any, expect: int | None = None) -> None:
        if "keep" not in line:
            super().append_line(line, expect)
            return
        with self.locked():
            kept = self.live()[: line["keep"]]
            new = self.path.with_suffix(".new")
            new.write_text("".join(json.dumps(each) + "\n" for each in kept))
            new.replace(self.path)
            self.file = self.open_file()


class Keyless(Journal):
    """Looks at no key."""

    def is_stored(self, line: Any, lines: Sequence[Any]) -> bool:
        return False


class KeysInMemory(Journal):
    """Knows the keys of its own appends."""

    def is_stored(self, line: Any, lines: Sequence[Any]) -> bool:
        known = self.__dict__.setdefault("known", set())
        is_known = line.get("key") in known
        known.add(line.get("key"))
        return is_known and "key" in line


class OneByOne(Journal):
    """Appends a batch as so many entries."""

    def append_batch(self, entries: Sequence[Entry], key: str) -> None:
        for number, entry in enumerate(entries):
            self.append(entry, f"{key}-{number}")


class Unconditional(Journal):
    """Ignores the expected head."""

    def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
        super().append(entry, key)


class Unsynced(Journal):
    """Leaves the sync to the system."""

    def sync(self) -> None:
        pass


class SyncedLate(Unsynced):
    """Syncs an entry with the next one."""

    def write(self, data: bytes, whole: int) -> None:
        os.fsync(self.file)
        super().write(data, whole)


BROKEN: dict[type[Journal], tuple[str, frozenset[str]]] = {
    CreatedTwice: ("concurrent opens", frozenset()),
    Unlocked: (
        "concurrent writers",
        frozenset({
            "concurrent opens", "full disk", "stale writer", "whole batches", "conditional append",
        }),
    ),
    Cached: ("read your writes", frozenset()),
    Sorting: ("read your writes", frozenset()),
    Leaving: (
        "killed writer",
        frozenset({
            "torn tail", "full disk", "retry after a lost answer", "whole batches",
            "synced before the ack",
        }),
    ),
    LockedByTheDead: (
        "killed writer",
        frozenset({"torn tail", "full disk", "retry after a lost answer", "whole batches"}),
    ),
    Fusing: ("torn tail", frozenset({"whole batches"})),
    Strict: ("torn tail", frozenset({"whole batches"})),
    Swallowing: ("full disk", frozenset({"whole batches"})),
    Renaming: ("stale writer", frozenset()),
    Keyless: ("retry after a lost answer", frozenset()),
    KeysInMemory: ("retry after a lost answer", frozenset()),
    OneByOne: ("whole batches", frozenset()),
    Unconditional: ("conditional append", frozenset()),
    Unsynced: ("synced before the ack", frozenset()),
    SyncedLate: ("synced before the ack", frozenset()),
}  # fmt: skip
"""Each broken store with the clause that has to notice it, and others that may."""


def _driver_of(kind: type[Journal]) -> type[JournalDriver]:
    return type(f"{kind.__name__}Driver", (JournalDriver,), {"store": kind})


globals().update({f"{kind.__name__}Driver": _driver_of(kind) for kind in BROKEN})


class HangingDriver(PlainDriver):
    """Waits for ever in its second append."""

    class store(Journal):  # noqa: N801
        def is_stored(self, line: Any, lines: Sequence[Any]) -> bool:
            if lines:
                signal.pause()
            return False


class CrashingDriver(PlainDriver):
    """Ends its process in an append."""

    class store(Journal):  # noqa: N801
        def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)


class PrintingDriver(PlainDriver):
    """Prints what looks like a reply."""

    class store(Journal):  # noqa: N801
        def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
            print('{"ok": null, "at": [0, 0]}', flush=True)
            os.write(1, b"no end of line")
            super().append(entry, key, expect)


class RefusingDriver(PlainDriver):
    """Raises at one append of each writer."""

    class store(Journal):  # noqa: N801
        def append(self, entry: Entry, key: str, expect: int | None = None) -> None:
            if entry["number"] == 9:
                raise RuntimeError("database is locked")
            super().append(entry, key, expect)


class BoastingDriver(PlainDriver):
    """Offers what the suite does not know."""

    offers = frozenset({"everything"})
