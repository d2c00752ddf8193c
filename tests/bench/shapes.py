"""What one local connection can take of the daemon's memory and of other clients' rate.

python -m bench.shapes FOLDER [SHAPE ...]

Each row: the most memory of the daemon during the flood beyond that before it, the memory that is
left 3 s after its end, and the appends a second of another client, as a share of those it makes
alone.
"""

import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from socket import AF_UNIX
from socket import socket as unix_socket
from typing import Final

import zmq

import steno
from steno._sansio.requests import new_key
from steno_protocol import limits, paths
from steno_protocol.messages import OutgoingRequest, encode_requests, split_message
from support.foreground import ForegroundDaemon
from support.resident import resident_bytes
from support.served_transport import GREETING, READY_OF_DEALER, large_frame

FLOOD_S: Final = 3.0
MESSAGE: Final = {"role": "user", "content": "hi"}


def _endless(path: str) -> None:
    with unix_socket(AF_UNIX) as one:
        one.connect(path)
        one.sendall(GREETING + READY_OF_DEALER)
        frame = large_frame(limits.MIB) + bytes(limits.MIB)
        while True:
            one.sendall(frame)


def _foreign(size: int) -> Callable[[str], None]:
    def flood(path: str) -> None:
        _send(path, cycle([[bytes(size)]]))

    return flood


def _appends(size: int) -> Callable[[str], None]:
    def flood(path: str) -> None:
        record = json.dumps({"role": "user", "content": "x" * size}).encode()

        def messages() -> Iterator[list[bytes]]:
            yield encode_requests([_request(b"o", {"command": "open", "session": "flood"})])
            for number in count():
                command = {"command": "append", "session": "flood", "key": new_key()}
                request = _request(b"r%d" % number, command, record)
                yield from split_message(encode_requests([request]))

        _send(path, messages())

    return flood


def _request(name: bytes, command: dict[str, object], *records: bytes) -> OutgoingRequest:
    return OutgoingRequest(name, json.dumps(command).encode(), records)


def _send(path: str, messages: Iterator[list[bytes]]) -> None:
    """Send messages as fast as the daemon takes them, and receive all replies."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.set(zmq.SNDHWM, 8)
    socket.connect(f"ipc://{path}")
    for frames in messages:
        while not socket.poll(1000, zmq.POLLOUT):
            continue
        socket.send_multipart(frames)
        with suppress(zmq.Again):
            while True:
                socket.recv_multipart(zmq.NOBLOCK)


SHAPES: Final[dict[str, Callable[[str], None]]] = {
    "endless multipart message": _endless,
    "foreign messages of 1 MiB": _foreign(limits.MIB),
    "foreign messages of 8 MiB": _foreign(8 * limits.MIB),
    "foreign messages of 16 MiB": _foreign(16 * limits.MIB),
    "pipelined appends of 100 B": _appends(100),
    "pipelined appends of 100 KiB": _appends(100 * limits.KIB),
    "pipelined appends of 1 MiB": _appends(limits.MIB),
    "pipelined appends of 8 MiB": _appends(8 * limits.MIB),
    "pipelined appends of 15 MiB": _appends(15 * limits.MIB),
}


def measure(root: Path, shape: Callable[[str], None]) -> str:
    """Run one shape beside a client that appends, and return a row."""
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("other", follow=False)
        alone = _rate(session, FLOOD_S)
        before = resident_bytes(daemon.pid)
        most = before
        is_over = threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_over.wait(0.01):
                with suppress(OSError):
                    most = max(most, resident_bytes(daemon.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        flood = multiprocessing.Process(target=shape, args=(str(root / paths.SOCKET),))
        flood.start()
        _rate(session, 0.3)
        beside = _rate(session, FLOOD_S)
        flood.kill()
        flood.join()
        _rate(session, FLOOD_S)
        is_over.set()
        watcher.join()
        left = resident_bytes(daemon.pid) - before
        written = root / "sessions/flood/context.jsonl"
        taken = written.stat().st_size if written.exists() else 0
        return (
            f"{(most - before) / 2**20:7.0f} MiB, {left / 2**20:6.0f} MiB left,"
            f" {beside:6.0f}/s of {alone:6.0f}: {beside / alone:.2f};"
            f" the flood wrote {taken / 2**20:.1f} MiB"
        )


def _rate(session: steno.BlockingSession, seconds: float) -> float:
    began = time.perf_counter()
    appends = 0
    while time.perf_counter() - began < seconds:
        session.append_message(MESSAGE)
        appends += 1
    return appends / (time.perf_counter() - began)


def main() -> None:
    """Print a row for each shape."""
    folder, *wanted = sys.argv[1:]
    for number, name in enumerate(SHAPES):
        if wanted and name not in wanted:
            continue
        root = Path(folder, str(number))
        root.mkdir(parents=True, mode=0o700)
        print(f"{name:30} {measure(root, SHAPES[name])}", flush=True)


if __name__ == "__main__":
    main()
