"""The delay of records to followers, and the followers' cost.

python -m bench.followers ENDPOINT SESSION FOLLOWERS LINES [PACE_MS]     one process of them
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import zmq

import steno
from bench.measuring import Comparison, percentile
from steno_protocol.commands import Subscribe
from steno_protocol.events import Live, Records
from steno_protocol.messages import decode_answers, encode_request
from steno_protocol.positions import Position
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
    command = [sys.executable, "-m", "bench.followers", endpoint, session, str(followers),
               str(APPENDS)]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _seen(process: "subprocess.Popen[str]") -> list[tuple[int, float]]:
    """The line after each event, and when the event came."""
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.readline(), type=list[tuple[int, float]])


def follow() -> None:
    """Follow as a process of its own, until every follower has seen all lines.

    It prints `live` when all of them are, and in the end the line after each event with the
    monotonic time at which the event came.
    """
    endpoint, session, followers, lines, *pace_ms = sys.argv[1:]
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(int(followers))]
    poller = zmq.Poller()
    for socket in sockets:
        socket.connect(endpoint)
        command = Subscribe(
            session=session, subscription="bench", after="now", pace_ms=int(*pace_ms)
        )
        socket.send_multipart(encode_request(b"f", command, ()))
        poller.register(socket, zmq.POLLIN)
    seen: list[tuple[int, float]] = []
    live = ended = 0
    while ended < len(sockets):
        for socket, _ in poller.poll():
            for answer in decode_answers(socket.recv_multipart()):
                if isinstance(answer.body, Live):
                    live += 1
                    if live == len(sockets):
                        print("live", flush=True)
                elif isinstance(answer.body, Records):
                    first, last = map(Position.parse, (answer.body.first, answer.body.next))
                    now = time.monotonic()
                    seen += [(line + 1, now) for line in range(first.line, last.line)]
                    ended += last.line == int(lines)
    print(msgspec.json.encode(seen).decode(), flush=True)
    for socket in sockets:
        socket.close(linger=0)
    context.term()


if __name__ == "__main__":
    follow()
