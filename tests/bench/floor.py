"""The floor: a minimal ZeroMQ daemon with durable appends.

A blocking ROUTER loop: drain what waits, one write, one fdatasync, an ack each. It checks nothing,
knows no sessions, forgets its clients, and repeats no promise of steno's; what steno costs above it
is the price of those promises.

    python -m bench.floor ENDPOINT [FILE]

Without a file it is an echo: it answers and writes nothing.
"""

import os
import sys
from pathlib import Path

import zmq


def serve(endpoint: str, path: Path | None) -> None:
    """Append the last frame of every message to `path` until the process is killed."""
    router = zmq.Context.instance().socket(zmq.ROUTER)
    router.setsockopt(zmq.SNDHWM, 0)
    router.setsockopt(zmq.RCVHWM, 0)
    router.bind(endpoint)
    file = None
    if path is not None:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    print("ready", flush=True)
    while True:
        router.poll()
        waiting = _drain(router)
        if file is not None:
            os.write(file, b"".join(line for _, _, line in waiting))
            os.fdatasync(file)
        for peer, request, _ in waiting:
            router.send(peer, zmq.SNDMORE)
            router.send(request)


def _drain(router: "zmq.Socket[bytes]") -> list[tuple[bytes, bytes, bytes]]:
    receive, last = router.recv, int(zmq.NOBLOCK)
    waiting: list[tuple[bytes, bytes, bytes]] = []
    try:
        while True:
            waiting.append((receive(last), receive(last), receive(last)))
    except zmq.Again:
        return waiting


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
