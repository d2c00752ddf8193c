"""The driver of steno's own sessions."""

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import steno
from steno.local import holder_of
from steno.testing.stores.driver import Capability, Entry


class Driver:
    """Sessions of a daemon whose root is the folder of the suite."""

    offers: Final[frozenset[Capability]] = frozenset(
        {"keys", "batches", "expect", "clear", "revert", "durable"}
    )
    version: Final = f"steno {steno.__version__}"

    def open(self, folder: Path, session: str) -> "Store":
        """Open a session; the first process starts the daemon."""
        return Store(folder, session)

    def processes(self, folder: Path) -> list[int]:
        """The pid of the daemon."""
        note = holder_of(folder)
        return [] if note is None else [note.pid]

    def end(self, folder: Path) -> None:
        """Kill the daemon."""
        for pid in self.processes(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Store:
    """A session through a blocking client; an entry is the text of a message."""

    def __init__(self, root: Path, session: str) -> None:
        self._client = steno.connect_sync(root, name="suite")
        self._session = self._client.open(session, follow=False)

    def append(self, entry: Entry, key: str, expect: str | None = None) -> None:
        """Append one entry."""
        self._session.append_message(_message(entry), key=key, expect=expect)

    def append_batch(self, entries: Sequence[Entry], key: str) -> None:
        """Append entries as one atomic batch."""
        self._session.append_message([_message(entry) for entry in entries], key=key)

    def load(self) -> list[Entry]:
        """The entries, from the daemon."""
        records = (each.record for each in self._session.records())
        return [json.loads(record["content"]) for record in records if record["role"] == "user"]

    def head(self) -> str:
        """The end of the session."""
        return str(self._session.stat().head)

    def clear(self) -> None:
        """Remove all entries."""
        self._session.clear()

    def checkpoint(self) -> str:
        """Set a checkpoint."""
        return self._session.checkpoint().handle

    def revert(self, mark: str) -> None:
        """Remove all entries after a checkpoint."""
        self._session.revert_to(mark)

    def close(self) -> None:
        """Close the connection; the daemon goes on."""
        self._client.close()


def _message(entry: Entry) -> dict[str, Any]:
    return {"role": "user", "content": json.dumps(entry)}
