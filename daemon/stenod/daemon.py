"""The life of a daemon: lock, bind, serve, drain, end.

The daemon locks before it binds, because a second bind on the same path succeeds and steals every
new client. Only the lock's holder removes the socket.
"""

import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

import steno_system as system
from steno_protocol import __version__, limits, paths
from steno_protocol.credentials import KEYS_FOLDER
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from stenod.api.auth import Admission
from stenod.api.metrics import MetricsServer
from stenod.api.peers import Outbox
from stenod.api.router import Router
from stenod.api.status import Reporter
from stenod.idle_exit import IdleExit
from stenod.net import kept_port, relay_process
from stenod.net.relay_process import RelayProcess
from stenod.net.transport import Transport
from stenod.operations.operation import Parts
from stenod.operations.operations import Operations
from stenod.runtime import config, daemon_log, memory
from stenod.runtime.config import Config
from stenod.runtime.executor import Threads, in_thread
from stenod.runtime.fd_limit import process_limit
from stenod.runtime.internal_errors import fault_of
from stenod.runtime.path_watch import PathWatch
from stenod.runtime.quotas import Quotas
from stenod.runtime.statistics import Statistics
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.sessions.cluster_member import ReplicatedDisk
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import SessionFolders
from stenod.store import syncs
from stenod.store.disk import Disk
from stenod.store.lock import RootLock
from stenod.store.posix import PosixDisk
from stenod.store.read_only import ReadOnlyDisk
from stenod.store.usage import free_bytes
from stenod.systemd import Supervisor
from stenod.writer.group_commit import AdaptiveCommits
from stenod.writer.services import Services

_ENGINE: Final = "stenod_cluster.joining"
"""The engine that the table `[replication]` names; its `join` makes a `ReplicatedDisk`."""


class Daemon:
    """One daemon on one root.

    Args:
        config: its root, socket, mounts and options.
        on_ready: called once it accepts clients.
        supervisor: the service manager, if there is one.
        is_reader: it changes no file of the root, and ends with its standard input.
    """

    def __init__(
        self,
        config: Config,
        on_ready: Callable[[], None],
        supervisor: Supervisor,
        *,
        is_reader: bool = False,
    ) -> None:
        self._is_reader = is_reader
        self._config = config
        self._supervisor = supervisor
        self._on_ready = on_ready
        local = ReadOnlyDisk() if is_reader else PosixDisk()
        # Before anything is opened: this refuses a cluster that cannot be used.
        self._member = self._join(local)
        self._handles = process_limit()
        self._full_until = 0.0
        self._is_forgetting = False
        self._local = Transport(self._has_room, self._forget_soon)
        self._admission = Admission(
            config.root / KEYS_FOLDER, daemon_log.log, is_clustered=self._member is not None
        )
        self._transports = [self._local]
        self._relay: RelayProcess | None = None
        self._drained = anyio.Event()
        self._lock: RootLock | None = None
        self._tasks: TaskGroup | None = None
        self._metrics: MetricsServer | None = None
        self._statistics = Statistics(slow_sync_s=config.settings.number("disk.slow_sync_s"))
        self._outbox = Outbox(self._statistics, lambda key: self._admits(key) is None)
        trees = SessionFolders(config, local if self._member is None else self._member.disk)
        self._quotas = Quotas(
            lambda: config.settings,
            time.monotonic,
            lambda session: trees.place(session).path,
            lambda: [tree.folder for tree in trees.trees],
            free_bytes,
        )
        self._services = self._make_services()
        self._registry = Registry(
            trees, self._services, self._handles, self._member, self._check_root
        )
        queries = Queries(self._registry, trees, self._services)
        self._operations = Operations(Parts(trees, self._registry, queries, self._services))
        self._reporter = Reporter(self._config, self._registry, self._services)
        self._router = Router(
            self._reporter,
            self._registry,
            queries,
            self._operations,
            self._outbox,
            self._services,
            self._admission,
            is_reader=is_reader,
            drain=self._drained.set,
            release_soon=self._forget_soon,
        )

    async def run(self, lock: RootLock | None) -> None:
        """Serve until a signal or a `drain`; every acknowledged byte is on disk on return."""
        self._lock = lock
        self._supervisor.check_listening(self._config.socket)
        try:
            if self._member is not None:
                is_allowed = self._config.settings.is_on("replication.lazy_sync")
                await in_thread(partial(self._member.check_promises, is_lazy_allowed=is_allowed))
            self._local.bind_ipc(self._config.socket, self._supervisor.listening)
            self._listen_for_others()
            self._serve_metrics()
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if self._relay is not None:
                    tasks.start_soon(self._relay.serve)
                tasks.start_soon(self._keep_house)
                tasks.start_soon(self._watch_root)
                tasks.start_soon(self._end_when_idle)
                tasks.start_soon(self._measure_root)
                if self._member is not None:
                    tasks.start_soon(self._member.serve, self._registry.lose)
                # A notified parent may send a signal at once.
                await tasks.start(self._watch_signals)
                if lock is None:
                    tasks.start_soon(self._end_with_stdin)
                else:
                    self._take_over(lock)
                # After the note: a client that was answered looks for it, and without it takes the
                # daemon for one of another machine.
                for transport in self._transports:
                    handle = partial(self._router.handle, transport)
                    refusal = partial(self._router.refusal, transport)
                    is_waiting = partial(self._router.is_waiting, transport)
                    tasks.start_soon(
                        transport.serve, handle, refusal, self._registry.commit, is_waiting
                    )
                daemon_log.log("ready", pid=os.getpid(), root=str(self._config.root))
                self._on_ready()
                self._supervisor.ready()
                tasks.start_soon(self._supervisor.keep_watchdog)
                await self._drained.wait()
                self._supervisor.stopping()
                await self._drain()
                tasks.cancel_scope.cancel()
        finally:
            if self._member is not None:
                await in_thread(self._member.close)
            if self._metrics is not None:
                await in_thread(self._metrics.close)
            if self._relay is not None:
                self._relay.close()
            for transport in self._transports:
                transport.close()
            daemon_log.log("ended", pid=os.getpid())

    def _take_over(self, lock: RootLock) -> None:
        if lock.left_by is not None:
            # The killed daemon's own log ends abruptly; the kernel's log has the reason.
            daemon_log.log("left_by_killed", pid=lock.left_by.pid, see="the kernel's log")
        lock.write_note(self._note())

    async def _end_with_stdin(self) -> None:
        await anyio.wait_readable(sys.stdin.fileno())
        self._drained.set()

    def _note(self) -> bytes:
        note = paths.LockNote(
            pid=os.getpid(),
            version=__version__,
            root=str(self._config.root),
            endpoint=self._config.endpoint,
        )
        return msgspec.json.encode(note)

    async def _drain(self) -> None:
        self._router.begin_drain()
        daemon_log.log("draining", queued=self._registry.queued)
        with anyio.move_on_after(limits.DRAIN_TIMEOUT_S):
            await self._registry.wait_quiet()
        self._router.finish_drain()

    async def _keep_house(self) -> None:
        while True:
            if not self._is_reader:
                self._spawn(self._operations.sweep.when_due)
                self._spawn(self._operations.collector.when_due)
            await anyio.sleep(limits.HOUSEKEEPING_S)
            self._registry.retire_idle()
            self._registry.end_stalled()
            self._router.forget_gone()
            memory.release_free()
            self._spawn(self._router.foreign_poll.look)

    async def _watch_root(self) -> None:
        """Notice a lost root or socket, and leave a sign of life in the lock's time.

        Clients cannot report a lost socket: they have no other way to the daemon, and wait for the
        kernel's message to it.
        """
        answered, touched_at = 0, time.monotonic()
        root = self._config.root
        with PathWatch([self._config.socket, root / paths.LOCK, root]) as watch:
            while True:
                await watch.wait(limits.ROOT_WATCH_S)
                self._check_root()
                now = time.monotonic()
                if self._router.handled != answered and now - touched_at >= limits.LIFE_SIGN_S:
                    answered, touched_at = self._router.handled, now
                    if self._lock is not None:
                        self._lock.touch()

    def _forget_soon(self) -> None:
        """Remove the clients whose connections end about now, together and a little later."""
        if not self._is_forgetting:
            self._is_forgetting = True
            self._spawn(self._forget_ended)

    async def _forget_ended(self) -> None:
        await anyio.sleep(limits.FORGET_S)
        self._is_forgetting = False
        self._router.forget_gone()
        memory.release_free()

    def _check_root(self) -> None:
        """Drain if the root's lock or the socket is gone.

        Without the lock another daemon may own the root. Without the socket no client can connect,
        and connected clients find the next daemon.
        """
        if self._lock is None or self._drained.is_set():
            return
        if not self._lock.is_in_place:
            daemon_log.log("root_lost", root=str(self._config.root))
            self._router.begin_drain()
            self._drained.set()
        elif not self._local.is_reachable:
            daemon_log.log("socket_lost", socket=str(self._config.socket))
            self._drained.set()

    def _serve_metrics(self) -> None:
        port = self._config.settings.count("metrics.port")
        if port:
            self._metrics = MetricsServer(port, self._router.stats)
            daemon_log.log("metrics", port=port)

    async def _end_when_idle(self) -> None:
        await IdleExit(self._services, self._is_used, lambda: self._router.connection_count).wait()
        daemon_log.log("idle_exit", idle_exit_s=self._config.settings.number("life.idle_exit_s"))
        self._drained.set()

    async def _measure_root(self) -> None:
        """Measure the size of all sessions from time to time, if there is a quota for it."""
        measured_s = -limits.HOUSEKEEPING_S
        while True:
            is_due = time.monotonic() - measured_s >= limits.HOUSEKEEPING_S
            if self._quotas.wants_root and (is_due or self._quotas.is_root_full):
                self._quotas.root_measured(await in_thread(self._quotas.measure_root))
                measured_s = time.monotonic()
            wanted = self._quotas.wants_root
            await anyio.sleep(limits.ROOM_CHECK_S if wanted else limits.HOUSEKEEPING_S)

    def _is_used(self) -> bool:
        self._router.forget_gone()
        return bool(self._router.peers) or not self._registry.is_at_rest

    async def _watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                daemon_log.log("signal", number=int(number))
                if number == signal.SIGHUP:
                    self._supervisor.reloading()
                    self._reload()
                    self._supervisor.ready()
                else:
                    self._drained.set()

    def _reload(self) -> None:
        """Read the configuration again; an invalid one changes nothing."""
        try:
            waiting = self._config.adopt(config.read(self._config.root))
        except BadRequest as error:
            daemon_log.log("config_refused", error=error.message, still="the options as before")
            return
        daemon_log.adopt(self._config.settings)
        self._statistics.slow_sync_s = self._config.settings.number("disk.slow_sync_s")
        daemon_log.log("config_read", mounts=sorted(self._config.mounts))
        for option in waiting:
            daemon_log.log("config_waits", option=option, until="the next start: steno restart")

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a background task; an internal error ends that task alone."""
        try:
            await work()
        except Exception as error:
            daemon_log.log("internal", error=fault_of(error))

    def _make_services(self) -> Services:
        is_alone = self._member is None
        return Services(
            commit=AdaptiveCommits(
                Threads(limits.COMMIT_THREADS_MAX),
                syncs.are_none_running,
                groups_max=1 if is_alone else limits.COMMIT_THREADS_MAX,
                # The event loop carries what a cluster's commit sends.
                may_block=is_alone,
            ),
            read=Threads(limits.READ_THREADS_MAX),
            monotonic=time.monotonic,
            wall=time.time,
            flush=self._outbox.flush,
            statistics=self._statistics,
            log=daemon_log.log,
            settings=partial(attrgetter("settings"), self._config),
            quotas=self._quotas,
            spawn=self._spawn,
            unknown=UnknownOutcomes(started_ms=int(time.time() * 1000)),
        )

    def _join(self, disk: Disk) -> ReplicatedDisk | None:
        """Join the cluster that the configuration names; None if it names none."""
        cluster = self._config.settings.text("replication.cluster")
        if not cluster:
            return None
        try:
            # By name: no module of the daemon imports the engine, which an installation may lack.
            joining = import_module(_ENGINE)
        except ModuleNotFoundError as error:
            raise BadRequest(
                f"the cluster {cluster} needs the extra `nats` of stenod ({error}):"
                f" install it with `{extra_command('nats')}`"
            ) from None
        joined: ReplicatedDisk = joining.join(self._config, disk, daemon_log.log)
        return joined

    def _listen_for_others(self) -> None:
        """Listen for clients on other machines, if that is configured.

        Raises:
            Unauthorized, BadRequest: the daemon has no private key that only it can read.
            StorageFailed: the address cannot be bound.
        """
        wanted = self._config.settings.text("network.listen")
        if not wanted:
            return
        own = self._admission.own_key()
        listener = relay_process.listen(kept_port.candidates(wanted, self._config.root))
        endpoint = relay_process.endpoint_of(listener)
        # The relay bounds these connections before they reach this process.
        remote = Transport(lambda _: True, self._forget_soon)
        self._transports.append(remote)
        target = remote.bind_for_relay(self._config.root, own, self._admits, daemon_log.log)
        connections_max = min(
            self._handles.most // limits.REMOTE_HANDLES_SHARE_MAX, limits.REMOTE_CONNECTIONS_MAX
        )
        self._handles.set_aside = lambda: max(0, connections_max - remote.connection_count)
        self._relay = RelayProcess(
            listener,
            target,
            connections_max,
            lambda: not remote.connection_count,
            self._turn_away,
            daemon_log.log,
        )
        kept_port.keep(endpoint, self._config.root)
        self._reporter.remote_endpoint = endpoint
        daemon_log.log("listening", endpoint=endpoint)

    def _has_room(self, _: int) -> bool:
        """Whether a file handle is free for one more local connection."""
        # Counting thousands of handles for each refused connection would block the event loop.
        if time.monotonic() >= self._full_until:
            if self._handles.take(1):
                return True
            self._full_until = time.monotonic() + limits.HANDLES_RECOUNT_S
        self._turn_away(1)
        return False

    def _turn_away(self, connections: int) -> None:
        """Count connections that were closed for want of room; the first one is logged."""
        if not self._statistics.turned_away:
            daemon_log.log("no_handles", limit=self._handles.most, see="ulimit -n")
        self._statistics.turned_away += connections

    def _admits(self, public: str) -> str | None:
        client = self._admission.client(public)
        return client.name if client is not None else None


def prepare_process() -> None:
    """Configure the process before it opens anything.

    The umask keeps other users out of the socket and the files. The soft limit of open files rises
    to the hard one. Memory of large reads is returned to the system. Threads switch often, because
    a recovery that decodes in a thread must not delay the event loop. Imported modules never become
    garbage and commands hardly create cycles, so the garbage collector runs rarely.
    """
    os.umask(0o077)
    # The memory contains conversations, and a crash collector may read a core file.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # SIGHUP must not end the daemon before it handles it. SIGUSR1 and SIGUSR2 make other daemons
    # reopen their logs; this one follows its log's name unasked.
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    memory.limit_heaps()
    gc.freeze()
    gc.set_threshold(limits.GC_OBJECTS_MAX)
    sys.setswitchinterval(limits.THREAD_SWITCH_S)
    system.raise_handle_limit()


def serve(
    config: Config, lock: RootLock, on_ready: Callable[[], None], supervisor: Supervisor
) -> None:
    """Run a daemon to its end, and release the lock.

    Raises:
        StenoError, OSError: the daemon could not start or continue.
    """
    try:
        _run(lambda: Daemon(config, on_ready, supervisor), lock)
    finally:
        lock.release()


def serve_reader(config: Config, on_ready: Callable[[], None]) -> None:
    """Serve reads until the standard input ends; nothing in the root changes.

    Raises:
        StenoError, OSError: the reader could not start or continue.
    """
    _run(lambda: Daemon(config, on_ready, Supervisor(), is_reader=True), None)


def _run(make: Callable[[], Daemon], lock: RootLock | None) -> None:
    async def main() -> None:
        # Made here: the connection to a cluster's servers belongs to the event loop.
        await make().run(lock)

    try:
        anyio.run(main)
    except ExceptionGroup as group:
        raise _first_of(group) from group


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of the daemon's tasks, without its groups."""
    match group.exceptions[0]:
        case ExceptionGroup() as inner:
            return _first_of(inner)
        case first:
            return first
