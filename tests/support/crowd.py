"""Processes that write to a session until it is gone.

Each runs `python -m support.crowd ROOT SESSION` and prints one JSON line per acknowledged message.
It ends when the session is gone or its standard input ends.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import steno

TESTS = Path(__file__).parents[1]


@contextmanager
def writer_processes(root: Path, session: str, count: int) -> Iterator[list["WriterProcess"]]:
    """Some processes that append; all have been acknowledged once when the block begins."""
    writers = [WriterProcess(root, session) for _ in range(count)]
    try:
        for writer in writers:
            writer.wait_for_one()
        yield writers
    finally:
        for writer in writers:
            writer.end()


class WriterProcess:
    """One process; `acks` contains what was acknowledged to it, complete after `end`."""

    def __init__(self, root: Path, session: str) -> None:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        self.acks: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.crowd", str(root), session],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_one(self) -> None:
        """Return when one more was acknowledged to it."""
        assert self._process.stdout is not None
        self.acks.append(json.loads(self._process.stdout.readline()))

    def wait_for_one_behind(self, line: int) -> None:
        """Return when it was acknowledged a message at this line or behind it."""
        while int(self.acks[-1]["first"].partition(":")[2]) < line:
            self.wait_for_one()

    def wait_until_gone(self) -> None:
        """Return when its session is gone."""
        while "gone" not in self.acks[-1]:
            self.wait_for_one()

    def end(self) -> None:
        """End it, and read the rest of its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        with self._process.stdout as said:
            self.acks += [json.loads(line) for line in said]
        assert self._process.wait(60) == 0


def wait_until(fact: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Poll a fact until it is true."""
    end = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.0002)


def append(session: "steno.BlockingSession") -> None:
    """Append events and messages in turn until standard input ends."""
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        session.append_wire("TurnBegin", {"user_input": f"{os.getpid()} {number}"})
        ack = session.append_message({"role": "user", "content": f"{os.getpid()} {number}"})
        print(json.dumps({"key": ack.key, "first": str(ack.first)}), flush=True)
        number += 1


if __name__ == "__main__":
    with steno.connect_sync(sys.argv[1], name="writer") as client:
        try:
            append(client.open(sys.argv[2], follow=False))
        except steno.NotFound:
            print(json.dumps({"gone": True}), flush=True)
