"""Worker processes that start together and stay for all rounds."""

import subprocess
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import msgspec

from bench.tasks import Outcome, Task


class Crew:
    """A context manager with client processes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for _ in range(self._size):
            worker = subprocess.Popen(
                [sys.executable, "-m", "bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._workers.append(self._stack.enter_context(worker))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            for worker in self._workers:
                worker.kill()
        self._stack.close()

    def work(self, task: Task) -> list[Outcome]:
        """All do the same task at the same time."""
        self._say(msgspec.json.encode(task).decode())
        for worker in self._workers:
            assert _heard(worker) == "ready"
        self._say("go")
        return [msgspec.json.decode(_heard(worker), type=Outcome) for worker in self._workers]

    def _say(self, line: str) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(line + "\n")
            worker.stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended: see what it said above")
    return line.rstrip("\n")
