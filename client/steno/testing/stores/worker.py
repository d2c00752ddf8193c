"""The process that opens a store and carries out the suite's requests.

python -m steno.testing.stores.worker mymodule:Driver FOLDER SESSION

A request is a line of JSON on stdin, each reply one on stdout: `{"ok": value}` or
`{"error": text}`, and `at` with the begin and the end of the call in nanoseconds of the
monotonic clock, which all processes share. This module and the modules that it imports need the
standard library alone, so that it runs in any environment that the store runs in.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve requests until stdin ends."""
    # A store or its framework may print: stdout belongs to the replies.
    replies = os.dup(1)
    os.dup2(2, 1)
    spec, folder, session = sys.argv[1:]
    try:
        driver = make_driver(spec)
    except NoDriver as error:
        # The user's mistake, which no traceback explains better.
        sys.exit(str(error))
    worker = Worker(driver, Path(folder), session)
    while line := sys.stdin.readline():
        for reply in worker.replies(json.loads(line)):
            _write_all(replies, json.dumps(reply).encode() + b"\n")


class NoDriver(Exception):
    """There is no driver of this name; the text says what is missing."""


def make_driver(spec: str) -> Any:
    """Make the driver of `module:name`.

    Raises:
        NoDriver: the text is not of this form, or there is no such module or driver.
    """
    module, separator, name = spec.partition(":")
    if not (module and separator and name):
        raise NoDriver(f"{spec!r} is not of the form mymodule:Driver")
    # As pytest does for `-p`: a driver often lies in the current folder.
    here = str(Path.cwd())
    if not {"", here} & {*sys.path}:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise NoDriver(
            f"there is no module {module!r} in {here} or on PYTHONPATH: start pytest in its folder"
        ) from error
    if not hasattr(found, name):
        raise NoDriver(f"the module {module!r} ({found.__file__}) has no {name!r}")
    return getattr(found, name)()


class Worker:
    """One driver with at most one open store.

    Args:
        driver: the driver.
        folder: the folder of the store.
        session: the session to open.
    """

    def __init__(self, driver: Any, folder: Path, session: str) -> None:
        self._driver = driver
        self._folder = folder
        self._session = session
        self._store: Any = None

    def replies(self, request: dict[str, Any]) -> Any:
        """Yield the replies to a request: one, or one for each append of a stream."""
        name = request.pop("do")
        if name == "stream":
            for call in request["calls"]:
                name, item = call.pop("do"), call.pop("id")
                yield {**self._reply(name, call), "id": item}
            yield {"ok": None, "end": True}
        else:
            yield self._reply(name, request)

    def _reply(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        call: Callable[..., Any] = getattr(self, f"do_{name}")
        begin = time.monotonic_ns()
        try:
            reply = {"ok": call(**fields)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        return {**reply, "at": [begin, time.monotonic_ns()]}

    def do_describe(self) -> dict[str, Any]:
        """What the driver declares."""
        return {
            "offers": sorted(getattr(self._driver, "offers", ())),
            "version": str(getattr(self._driver, "version", "")),
            "has_processes": hasattr(self._driver, "processes"),
        }

    def do_processes(self) -> list[int]:
        """The pids of other processes that write the files."""
        return list(self._driver.processes(self._folder))

    def do_end(self) -> None:
        """End what runs for the folder."""
        if hasattr(self._driver, "end"):
            self._driver.end(self._folder)

    def do_open(self) -> None:
        """Open the store."""
        self._store = self._driver.open(self._folder, self._session)

    def do_close(self) -> None:
        """Close the store."""
        if hasattr(self._store, "close"):
            self._store.close()
        self._store = None

    def do_load(self) -> list[Any]:
        """All entries."""
        return list(self._store.load())

    def do_append(self, entry: Any, key: str, **condition: Any) -> None:
        """Append an entry; `condition` may be `expect`."""
        self._store.append(entry, key, **condition)

    def do_append_batch(self, entries: list[Any], key: str) -> None:
        """Append a batch."""
        self._store.append_batch(entries, key)

    def do_append_and_die(self, entry: Any, key: str) -> None:
        """Append an entry, and die before the answer."""
        self._store.append(entry, key)
        os.kill(os.getpid(), signal.SIGKILL)

    def do_head(self) -> Any:
        """The head for a conditional append."""
        return self._store.head()

    def do_clear(self) -> None:
        """Remove all entries."""
        self._store.clear()

    def do_checkpoint(self) -> Any:
        """Set a checkpoint; its mark."""
        return self._store.checkpoint()

    def do_revert(self, mark: Any) -> None:
        """Remove all entries after a checkpoint."""
        self._store.revert(mark)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


if __name__ == "__main__":
    main()
