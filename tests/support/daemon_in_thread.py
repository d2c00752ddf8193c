"""A whole daemon in a thread, on a real root and socket."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from steno_protocol import paths
from stenod.daemon import Daemon
from stenod.runtime import config
from stenod.store.lock import RootLock
from stenod.systemd import Supervisor
from support.daemon_log import WAIT_S, DaemonLog

T = TypeVar("T")

_LOGGER = logging.getLogger("stenod")


class DaemonInThread(DaemonLog):
    """The daemon of a root, which serves in the block.

    A test needs a process instead for signals, and for the start and the death of a daemon.

    Args:
        root: its root; a `config.toml` there is read at the start.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self._resources = ExitStack()
        self._portal: BlockingPortal | None = None
        self._daemon: _Daemon | None = None
        self._end: Future[None] | None = None

    def start(self) -> None:
        """Start it, and return when it is ready.

        Raises:
            StenoError: its configuration is not valid, or another daemon has the root.
        """
        with ExitStack() as resources:
            resources.enter_context(_logs_to(self.add_line))
            lock = RootLock(self.root)
            resources.callback(lock.release)
            self._portal = resources.enter_context(start_blocking_portal())
            self._daemon = daemon = self._portal.call(_Daemon, self.root)
            self._end = self._portal.start_task_soon(daemon.run, lock)
            self._end.add_done_callback(lambda _: daemon.is_ready.set())
            assert daemon.is_ready.wait(WAIT_S), self.log
            if self._end.done():
                self._end.result()
            self._resources = resources.pop_all()

    def call(self, work: Callable[[Daemon], T]) -> T:
        """Run a function on the daemon, in its event loop."""
        assert self._portal is not None
        assert self._daemon is not None
        return self._portal.call(work, self._daemon)

    def reload(self) -> None:
        """Read the configuration again, as at a SIGHUP."""
        self.call(Daemon._reload)

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._end is not None
        with self._resources:
            self._end.result(WAIT_S)

    def stop(self) -> None:
        """Drain it, as at a SIGTERM, and wait for its end."""
        self.call(lambda daemon: daemon._drained.set())
        self.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._end is not None
        if self._end.done():
            self.wait()
        else:
            self.stop()


class _Daemon(Daemon):
    """A daemon that leaves the signals of its process to the test."""

    def __init__(self, root: Path) -> None:
        socket = paths.socket_path(str(root), None, os.environ, os.getuid())
        self.is_ready = threading.Event()
        super().__init__(config.load(root, socket), self.is_ready.set, Supervisor())

    async def _watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        await anyio.sleep_forever()


class _LineHandler(logging.Handler):
    """Gives each event as the line that a log has of it."""

    def __init__(self, add_line: Callable[[str], None]) -> None:
        super().__init__()
        self._add_line = add_line

    def emit(self, record: logging.LogRecord) -> None:
        self._add_line(f"{record.levelname} {record.getMessage()}\n")


@contextmanager
def _logs_to(add_line: Callable[[str], None]) -> Iterator[None]:
    handler = _LineHandler(add_line)
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.level, _LOGGER.propagate = before
