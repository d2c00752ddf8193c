"""The life of a daemon: lock, bind, serve, drain, end.

The lock comes before the bind, because a second bind on an ipc path succeeds and steals every new
client; the socket is removed only by the lock's holder.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import anyio
import msgspec
from anyio.abc import TaskGroup

from steno_protocol import __version__, limits, places
from stenod import journal
from stenod.blocking import Adaptive, in_thread
from stenod.config import Config
from stenod.custody import Custody
from stenod.mailbox import Budget
from stenod.outbox import Outbox
from stenod.peers import Peer
from stenod.registry import Registry
from stenod.router import Router
from stenod.store.lock import RootLock
from stenod.store.posix import PosixDisk
from stenod.transport import Sent, Transport
from stenod.trees import Trees
from stenod.workshop import Statistics, Workshop


class Daemon:
    """One daemon on one root.

    Args:
        config: its root, socket and mounts.
        on_ready: called once it answers.
    """

    def __init__(self, config: Config, on_ready: Callable[[], None]) -> None:
        self._config = config
        self._on_ready = on_ready
        self._transport = Transport()
        self._outbox = Outbox(self._send, self._transport.after_sends)
        self._drained = anyio.Event()
        self._tasks: TaskGroup | None = None
        budget = Budget()
        workshop = Workshop(
            commit=Adaptive(lambda: budget.taken_bytes > 0),
            read=in_thread,
            monotonic=time.monotonic,
            wall=time.time,
            flush=self._outbox.flush,
            statistics=Statistics(),
            tell=journal.tell,
            budget=budget,
        )
        disk = PosixDisk()
        trees = Trees(config, disk)
        self._registry = Registry(trees, disk, workshop, self._spawn)
        self._custody = Custody(trees, disk, self._registry, workshop)
        self._router = Router(
            config, self._registry, self._custody, self._outbox, workshop, self._spawn
        )
        self._router.drain = self._drained.set

    async def run(self, lock: RootLock) -> None:
        """Serve until a signal or a `drain`; everything acknowledged is on disk on return."""
        self._transport.bind(self._config.socket)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._transport.serve, self._router.handle, self._outbox.flush)
                tasks.start_soon(self._keep_house)
                tasks.start_soon(self._watch_signals)
                lock.tell(self._note())
                journal.tell("ready", pid=os.getpid(), root=str(self._config.root))
                self._on_ready()
                await self._drained.wait()
                await self._drain()
                tasks.cancel_scope.cancel()
        finally:
            self._transport.close()
            journal.tell("ended", pid=os.getpid())

    def _note(self) -> bytes:
        note = places.LockNote(
            pid=os.getpid(),
            version=__version__,
            root=str(self._config.root),
            endpoint=self._config.endpoint,
        )
        return msgspec.json.encode(note)

    async def _drain(self) -> None:
        self._router.begin_drain()
        journal.tell("draining", queued=self._registry.queued)
        with anyio.move_on_after(limits.DRAIN_TIMEOUT_S):
            await self._registry.wait_quiet()
        self._router.finish_drain()

    async def _keep_house(self) -> None:
        while True:
            self._spawn(self._custody.sweep_when_due)
            await anyio.sleep(limits.HOUSEKEEPING_S)
            self._registry.retire_idle()
            self._registry.end_stalled()
            self._router.forget_gone()
            if not self._transport.is_reachable:
                journal.tell("socket_lost", socket=str(self._config.socket))
                self._drained.set()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                journal.tell("signal", number=int(number))
                self._drained.set()

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a background task; a fault in it ends that task alone."""
        try:
            await work()
        except Exception as error:
            journal.tell("internal", error=repr(error))

    def _send(self, peer: Peer, frames: Sequence[bytes]) -> bool:
        match self._transport.send(peer.identity, frames):
            case Sent.OK:
                return True
            case Sent.FULL:
                peer.dropped += 1
                return False
            case Sent.GONE:
                peer.dropped += 1
                self._router.forget(peer)
                return False


def prepare_process() -> None:
    """What has to be true of the process before it opens anything.

    The umask keeps others out of the socket and the files. libzmq 4.3.5 aborts when an ipc accept
    meets EMFILE, so the soft limit of open files is raised to the hard one. The interpreter takes
    turns often, because a recovery that decodes in a thread must not hold the loop back.
    """
    os.umask(0o077)
    sys.setswitchinterval(limits.SWITCH_S)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(config: Config, lock: RootLock, on_ready: Callable[[], None]) -> None:
    """Run a daemon to its end; releases the lock."""

    async def main() -> None:
        await Daemon(config, on_ready).run(lock)

    try:
        anyio.run(main)
    finally:
        lock.release()
