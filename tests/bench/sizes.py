"""What a daemon takes for few and for many sessions: memory, handles, disk, and time for the list.

The options are the defaults, so that most of many sessions are closed again while others are
written; with all of them open, see the part `idle`.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import steno
from bench.idle import handles
from bench.lines import message
from bench.measuring import Comparison
from steno_protocol import paths
from steno_protocol.commands import List
from steno_protocol.limits import KIB, MIB
from steno_protocol.replies import Sessions
from support.foreground import ForegroundDaemon
from support.resident import resident_bytes

SESSIONS: Final = (10, 1000, 10_000)
RECORDS: Final = 20
"""Records of a session, appended as one batch."""

_WRITERS: Final = 8
"""Clients that fill the root; one alone would wait for each sync."""


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Fill a root for each number of sessions, and look at its daemon and its disk."""
    found = Comparison(
        f"a root with sessions of {RECORDS} records of 600 bytes",
        ("mib", "handles", "disk_kib_a_session", "sessions_a_s", "list_ms"),
        "mib",
        (),
    )
    for number in range(rounds):
        for sessions in SESSIONS:
            root = folder / f"sizes-{number}-{sessions}"
            root.mkdir()
            found.add(f"{sessions:,} sessions", _measured(root, sessions))
            report(f"sizes: round {number + 1}, {sessions} sessions")
    return [found]


def _measured(root: Path, sessions: int) -> dict[str, float]:
    with ForegroundDaemon(root) as daemon:
        before = time.perf_counter()
        with ThreadPoolExecutor(_WRITERS) as pool:
            shares = [range(number, sessions, _WRITERS) for number in range(_WRITERS)]
            list(pool.map(partial(_fill, root), shares))
        filled_s = time.perf_counter() - before
        figures = {
            "mib": resident_bytes(daemon.pid) / MIB,
            "handles": float(handles(daemon.pid)),
            "disk_kib_a_session": _disk_bytes(root / paths.SESSIONS) / KIB / sessions,
            "sessions_a_s": sessions / filled_s,
        }
        with steno.connect_sync(root, spawn=False) as client:
            before = time.perf_counter()
            client.request(List(limit=1000), Sessions)
            figures["list_ms"] = 1000 * (time.perf_counter() - before)
    return figures


def _fill(root: Path, numbers: range) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        for number in numbers:
            session = client.open(f"session-{number}", follow=False)
            session.append_message([message(record) for record in range(RECORDS)])


def _disk_bytes(folder: Path) -> int:
    """The blocks that files and folders take."""
    return 512 * sum(each.lstat().st_blocks for each in (folder, *folder.rglob("*")))
