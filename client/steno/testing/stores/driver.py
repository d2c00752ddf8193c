"""The interface between the suite and a store.

A driver is a class, or any callable without arguments, that a module offers:

    class Driver:
        offers = frozenset({"batches"})

        def open(self, folder, session):
            return MyStore(folder / f"{session}.jsonl")

Every process of the suite makes a driver of its own, opens the store in the same folder, and calls
the store from one thread. `append` and `append_batch` return when the store acknowledges the
entries; any exception means that they were not acknowledged. Entries are JSON objects with the
string keys `id`, `writer` and `text` and the number `number`; `load` returns them as given, in
the order of the store.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

Entry = dict[str, Any]
"""One entry of a session: a JSON object."""

Capability = Literal["keys", "batches", "expect", "clear", "revert", "durable"]

CAPABILITIES: Final[dict[Capability, str]] = {
    "keys": "an append that is repeated with its key is stored once",
    "batches": "`append_batch(entries, key)` stores all of the entries or none",
    "expect": "`append(entry, key, expect=store.head())` raises if the head has changed",
    "clear": "`clear()` removes all entries",
    "revert": "`revert(store.checkpoint())` removes all entries after the checkpoint",
    "durable": "an acknowledged entry is on the disk",
}
"""What a driver may declare in `offers`, beyond `append` and `load`."""


class Store(Protocol):
    """A session that one process has open; the methods of undeclared capabilities may be missing.

    An optional method `close()` is called when the process is done with it.
    """

    def append(self, entry: Entry, key: str) -> object:
        """Append one entry; without the capability `keys` the key may be ignored."""

    def load(self) -> Sequence[Entry]:
        """Return all entries, the oldest first, those of other processes too."""
        ...


class Driver(Protocol):
    """Opens a store for the suite.

    Optional attributes and methods:

    * `offers`: a set of the names in `CAPABILITIES`; nothing if it is missing.
    * `version`: the store and its version, for reports.
    * `processes(folder)`: the pids of the processes that write the files for the callers, such as
      a server; the suite kills them, limits their files and observes their syncs.
    * `end(folder)`: end what still runs for a folder; the suite then removes the folder.
    """

    def open(self, folder: Path, session: str) -> Store:
        """Open a session, and create it if it is missing.

        Args:
            folder: an existing folder, empty for the first process.
            session: a name of lower-case letters.
        """
        ...
