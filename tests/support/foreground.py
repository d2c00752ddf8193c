"""A daemon process that a test kills and starts again."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import IO, Self

from support.daemon_log import DaemonLog
from support.project import PROJECT

START_S = 90.0
"""Time for a start or an end. A daemon of a cluster waits half a minute for servers that others
leave no processor; a test ends before this where its daemon hangs."""


class ForegroundDaemon(DaemonLog):
    """`python -m stenod --foreground` on a root, ready when `start` returns.

    Attributes:
        endpoint: where it listens.
        environment: variables that it is started with, beside those of the test.
        handles_max: files that it may open, None for as many as the test.
    """

    def __init__(self, root: Path, *arguments: str, module: Sequence[str] = ("stenod",)) -> None:
        super().__init__()
        self.root = root
        self.endpoint = f"ipc://{root}/stenod.sock"
        self.environment: dict[str, str] = {}
        self.handles_max: int | None = None
        self._arguments = arguments
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The pid of the living daemon."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        command = [sys.executable, "-m", *self._module, "--foreground", "--root", str(self.root)]
        if self.handles_max is not None:
            command = ["sh", "-c", f'ulimit -n {self.handles_max}; exec "$0" "$@"', *command]
        self._process = subprocess.Popen(
            [*command, *self._arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )
        is_ready = Future[bool]()
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr, is_ready))
        self._reader.start()
        assert wait([is_ready], START_S).done, self.log
        # Not whether it still runs: another client may stop it as soon as it is ready.
        assert is_ready.result(), self.log

    def wait(self) -> int:
        """Wait until it ends by itself; its exit code."""
        return self._end()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """SIGTERM, and wait until it has drained; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def _end(self) -> int:
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait(START_S)
        self._reader.join()
        self._process = None
        return code

    def _read(self, stream: IO[str], is_ready: Future[bool]) -> None:
        with stream:
            for line in stream:
                self.add_line(line)
                if " ready " in line and not is_ready.done():
                    is_ready.set_result(True)
        if not is_ready.done():
            is_ready.set_result(False)


def daemon_of_tests(root: Path, module: str) -> ForegroundDaemon:
    """A daemon that is not quite as it is for users: a module of `support` starts it."""
    daemon = ForegroundDaemon(root, module=(module,))
    daemon.environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "tests"), *sys.path])
    return daemon
