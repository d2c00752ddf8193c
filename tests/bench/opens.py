"""Openings, reads and first appends of a session of a gigabyte."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import steno
from bench.lines import message, write_long_session
from bench.measuring import Comparison
from steno_protocol import limits, paths
from support.foreground import ForegroundDaemon

SESSION_BYTES: Final = 1 << 30
_SESSION: Final = "large"


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Opening with the mark that an earlier daemon left; the file is in the page cache."""
    root = folder / "open-root"
    _write_large(root / paths.SESSIONS / _SESSION / paths.CONTEXT)
    comparison = Comparison("a session of 1 GiB, warm", ("ms",), "ms", ())
    with ForegroundDaemon(root) as daemon:
        with steno.connect_sync(root, spawn=False, timeout=300) as client:
            start = time.perf_counter()
            client.open(_SESSION, follow=False).append_message(message(1))
            first = {"ms": (time.perf_counter() - start) * 1e3}
        comparison.add("first opening, of a file that was never ours", first)
        daemon.stop()
        for number in range(rounds):
            daemon.start()
            with steno.connect_sync(root, spawn=False) as client:
                _round(client, comparison)
            daemon.stop()
            daemon.start()
            with steno.connect_sync(root, spawn=False, timeout=300) as client:
                comparison.add("an append that opens it", {"ms": _append(client)})
            daemon.stop()
            report(f"opens: round {number + 1}")
    return [comparison]


def _round(client: steno.BlockingClient, comparison: Comparison) -> None:
    start = time.perf_counter()
    session = client.open(_SESSION, follow=False)
    opened = time.perf_counter()
    assert next(iter(session.lines()))
    read = time.perf_counter()
    comparison.add("opening", {"ms": (opened - start) * 1e3})
    comparison.add("first record", {"ms": (read - opened) * 1e3})


def _append(client: steno.BlockingClient) -> float:
    """Milliseconds of an append to a session that no daemon has open, as after a pause."""
    start = time.perf_counter()
    client.session(_SESSION).append_message(message(1))
    return (time.perf_counter() - start) * 1e3


def _write_large(path: Path) -> None:
    path.parent.mkdir(parents=True)
    part = path.with_name("part")
    write_long_session(part)
    with path.open("wb") as file:
        while file.tell() < SESSION_BYTES:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file, limits.COPY_BYTES)
    part.unlink()
