"""The cost of a flood on one file for clients of another."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import steno
from bench.lines import message
from bench.measuring import Comparison, latencies_us, percentile
from support.foreground import ForegroundDaemon

EXTRA_MS: Final = (0, 1, 10)
"""The additional time of each sync."""

ACTIONS: Final = 100
_ALONE: Final = "alone"
_FLOODS: Final = {
    _ALONE: None,
    "beside a flood on another session": ("other", "context"),
    "beside a flood on its own wire file": ("own", "wire"),
}
MEASURES: Final = ("append_p50_us", "append_p99_us", "read_p50_us")


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Appends to one session and reads of another, alone and beside floods."""
    found: list[Comparison] = []
    for extra_ms in EXTRA_MS:
        title = f"a disk with {extra_ms} ms slower syncs: appends and reads of one client"
        comparison = Comparison(title, MEASURES, "append_p50_us", (_ALONE,))
        root = folder / f"slow-{extra_ms}"
        module = ("bench.slow_disk", str(extra_ms))
        with ForegroundDaemon(root, module=module), steno.connect_sync(root, spawn=False) as client:
            own = client.open("own", follow=False)
            read = client.open("read", follow=False)
            read.append_message([message(number) for number in range(100)])
            for number in range(rounds):
                for name, flood in _FLOODS.items():
                    with _flooded(root, flood):
                        comparison.add(name, _values(own, read))
                report(f"{title}: round {number + 1}")
        found.append(comparison)
    return found


def _values(own: steno.BlockingSession, read: steno.BlockingSession) -> dict[str, float]:
    line = message(1)
    appends = sorted(latencies_us(ACTIONS, lambda: own.append_message(line)))
    reads = sorted(latencies_us(ACTIONS, lambda: list(read.lines())))
    return {
        "append_p50_us": percentile(appends, 0.5),
        "append_p99_us": percentile(appends, 0.99),
        "read_p50_us": percentile(reads, 0.5),
    }


@contextmanager
def _flooded(root: Path, flood: tuple[str, str] | None) -> Iterator[None]:
    if flood is None:
        yield
        return
    command = [sys.executable, "-m", "bench.flood", str(root), *flood]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "flooding\n"
            yield
        finally:
            process.kill()
