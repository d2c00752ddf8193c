"""The delay of records to followers, and the followers' cost."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

import steno
from bench.figures import Comparison, percentile
from support.foreground import ForegroundDaemon

FOLLOWERS: Final = (0, 1, 16, 128)
PROCESSES_MAX: Final = 2
"""Processes that the followers share: more would measure the machine's scheduler."""

APPENDS: Final = 200
_MESSAGE: Final = {"role": "user", "content": "x" * 560}


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Sequential durable appends beside 0, 1, 16 and 128 followers."""
    title = f"{APPENDS} appends, one at a time, and their delivery to followers"
    measures = ("append_p50_us", "delivery_p50_us", "delivery_p99_us")
    comparison = Comparison(title, measures, "append_p50_us", (_name(0),))
    root = folder / "follow-root"
    with ForegroundDaemon(root) as daemon:
        for number in range(rounds):
            for followers in FOLLOWERS:
                session = f"followed/{number}-{followers}"
                values = _round(root, daemon.endpoint, session, followers)
                comparison.add(_name(followers), values)
            report(f"{title}: round {number + 1}")
    return [comparison]


def _name(followers: int) -> str:
    return f"{followers} followers" if followers != 1 else "1 follower"


def _round(root: Path, endpoint: str, session: str, followers: int) -> dict[str, float]:
    with steno.connect_sync(root, spawn=False) as client, ExitStack() as stack:
        opened = client.open(session, follow=False)
        crew = [
            stack.enter_context(_start(endpoint, session, share)) for share in _shares(followers)
        ]
        for process in crew:
            assert process.stdout is not None
            assert process.stdout.readline() == "live\n"
        took_us: list[float] = []
        acked_s: list[float] = []
        for _ in range(APPENDS):
            began_s = time.monotonic()
            opened.append_message(_MESSAGE)
            acked_s.append(time.monotonic())
            took_us.append((acked_s[-1] - began_s) * 1e6)
        seen = [line for process in crew for line in _seen(process)]
    took_us.sort()
    values = {"append_p50_us": percentile(took_us, 0.5)}
    if seen:
        delays_us = sorted((at_s - acked_s[line - 1]) * 1e6 for line, at_s in seen)
        values["delivery_p50_us"] = percentile(delays_us, 0.5)
        values["delivery_p99_us"] = percentile(delays_us, 0.99)
    return values


def _shares(followers: int) -> list[int]:
    processes = min(followers, PROCESSES_MAX)
    return [followers // processes] * processes if processes else []


def _start(endpoint: str, session: str, followers: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.follower", endpoint, session, str(followers),
               str(APPENDS)]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _seen(process: "subprocess.Popen[str]") -> list[tuple[int, float]]:
    """The line after each event, and when the event came."""
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.readline(), type=list[tuple[int, float]])
