"""The start of an import, of a command, and of a daemon."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import steno
from bench.lines import message
from bench.measuring import Comparison
from steno_protocol import paths
from support.foreground import ForegroundDaemon

SESSIONS: Final = 1000
"""Sessions that were active before a restart."""

_PYTHON: Final = "python -c pass"


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Times from nothing to an answer, in milliseconds."""
    starts = Comparison("from nothing to", ("ms",), "ms", (_PYTHON,))
    root = folder / "start-root"
    many = folder / "many-root"
    for number in range(SESSIONS):
        file = many / paths.SESSIONS / f"session-{number}" / paths.CONTEXT
        file.parent.mkdir(parents=True)
        file.write_bytes(message(number) + b"\n")
    for number in range(rounds):
        starts.add(_PYTHON, {"ms": _run("-c", "pass")})
        starts.add("import steno", {"ms": _run("-c", "import steno")})
        with ForegroundDaemon(root):
            command = ("-m", "steno_cli", "--root", str(root), "sessions")
            starts.add("one command: steno sessions", {"ms": _run(*command)})
        starts.add("first ack, the daemon started for it", {"ms": _spawned(folder / f"s{number}")})
        start = time.perf_counter()
        with ForegroundDaemon(many), steno.connect_sync(many, spawn=False):
            elapsed = (time.perf_counter() - start) * 1e3
        starts.add(f"a daemon that knows {SESSIONS:,} sessions", {"ms": elapsed})
        report(f"starts: round {number + 1}")
    return [starts]


def _run(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return (time.perf_counter() - start) * 1e3


def _spawned(root: Path) -> float:
    start = time.perf_counter()
    with steno.connect_sync(root) as client:
        client.open("first", follow=False).append_message(message(1))
        elapsed = (time.perf_counter() - start) * 1e3
        client.drain()
    return elapsed
