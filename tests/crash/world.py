"""The processes of a crash run: servers, daemons and agents."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

import steno
from crash.facts import Fact, Order
from steno_protocol import paths
from support.clustered_daemon import clustered_daemon
from support.nats_cluster import NatsCluster, Node
from support.proxy import Proxy

CLUSTER = "crash"
STREAM = f"STENO_{CLUSTER}"

REPORT_S = 30.0

FAMILY_PREFIX = "family-"
FAMILY_BELOW = ("", "/child", "/child/other")


class Host:
    """A daemon and its root.

    Attributes:
        name: of its folder.
        root: the folder.
        daemon: the process.
        endpoint: where it listens.
        is_stopped: whether it was stopped by a signal.
        proxies: what lies between the daemon and each server.
    """

    def __init__(self, base: Path, name: str, cluster: NatsCluster) -> None:
        self.name = name
        self.root = base / name
        self.proxies = [Proxy(int(url.rpartition(":")[2])) for url in cluster.servers]
        for proxy in self.proxies:
            proxy.__enter__()
        between = [f"nats://127.0.0.1:{proxy.port}" for proxy in self.proxies]
        self.daemon = clustered_daemon(self.root, CLUSTER, cluster, servers=between)
        self.endpoint = self.daemon.endpoint
        self.is_stopped = False
        self.is_running = False

    def start(self) -> None:
        """Start the daemon; it is ready on return."""
        self.daemon.start()
        self.is_running = True

    def kill(self) -> None:
        """SIGKILL; a stopped one, too."""
        if self.is_running:
            self.daemon.kill()
        self.is_running = self.is_stopped = False

    def end(self) -> None:
        """SIGTERM, and wait until it has drained."""
        self.daemon.stop()
        self.is_running = False

    def lose_root(self) -> None:
        """Remove all that a killed daemon has on its disk but its configuration."""
        assert not self.is_running
        kept = {paths.CONFIG: (self.root / paths.CONFIG).read_bytes()}
        shutil.rmtree(self.root)
        self.root.mkdir(mode=0o700)
        for name, data in kept.items():
            (self.root / name).write_bytes(data)

    def close(self) -> None:
        """End it, and what lies between it and the servers."""
        self.kill()
        for proxy in self.proxies:
            proxy.__exit__(None, None, None)

    def stop(self) -> None:
        """SIGSTOP: it keeps its locks and connections, and answers nobody."""
        os.kill(self.daemon.pid, signal.SIGSTOP)
        self.is_stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.daemon.pid, signal.SIGCONT)
        self.is_stopped = False


class Agents:
    """Client processes, and the facts that they report.

    Args:
        orders: one for each.
        folder: where the facts are kept, too.
    """

    def __init__(self, orders: Sequence[Order], folder: Path) -> None:
        self.facts: list[Fact] = []
        self._orders = orders
        self._changed = threading.Condition()
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._file = (folder / "facts.jsonl").open("w")

    def __enter__(self) -> Self:
        for order in self._orders:
            process = subprocess.Popen(
                [sys.executable, "-m", "crash.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(order).decode() + "\n")
            process.stdin.flush()
            self._processes.append(process)
            reader = threading.Thread(target=self._read, args=(process,))
            reader.start()
            self._readers.append(reader)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        self._join()
        self._file.close()

    def finish(self) -> None:
        """Let each agent end its last command, and wait for that."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        self._join()

    def wait_for_acks(
        self, sessions: Sequence[str], after_s: float, wait_s: float, count: int = 1
    ) -> list[str]:
        """Wait until each session has `count` acks that came after a time.

        Returns:
            The sessions that have less after `wait_s` seconds.
        """
        missing = Counter(dict.fromkeys(sessions, count))
        seen = 0

        def all_came() -> bool:
            nonlocal seen
            for fact in self.facts[seen:]:
                if fact.outcome == "ack" and fact.at_s > after_s:
                    missing[fact.session] -= 1
            seen = len(self.facts)
            return not +missing or any(each.poll() is not None for each in self._processes)

        with self._changed:
            self._changed.wait_for(all_came, wait_s)
        assert all(each.poll() is None for each in self._processes), "an agent ended: see above"
        return sorted(+missing)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            fact = msgspec.json.decode(line, type=Fact)
            with self._changed:
                self.facts.append(fact)
                self._file.write(line)
                self._changed.notify_all()

    def _join(self) -> None:
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.join()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()


@dataclass(slots=True)
class Family:
    """A session that a blow moves, and those below it.

    Attributes:
        name: the id with which it began.
        place: its id at the end.
        fault: why its move could not be finished; empty if it was.
        is_deleted: it is nowhere at the end.
        below: its sessions, as what stands behind its id.
        more: the texts of records that its first session got later.
    """

    name: str
    place: str
    fault: str = ""
    is_deleted: bool = False
    below: tuple[str, ...] = FAMILY_BELOW
    more: list[str] = field(default_factory=list[str])

    @property
    def sessions(self) -> list[str]:
        """The ids of all its sessions at the end."""
        return [] if self.is_deleted else [self.place + each for each in self.below]


class World:
    """Servers, daemons and agents.

    Attributes:
        cluster: the servers.
        hosts: the daemons.
        agents: the clients.
        sessions: the sessions that they use.
        families: the sessions that blows have moved.
        faults: what blows have found wrong.
        is_struck: set while a blow is under way.
        has_old_names: the stream came from an old copy; what was renamed or deleted since is back.
    """

    def __init__(
        self, cluster: NatsCluster, hosts: Sequence[Host], agents: Agents, sessions: Sequence[str]
    ) -> None:
        self.cluster = cluster
        self.hosts = hosts
        self.agents = agents
        self.sessions = sessions
        self.families: list[Family] = []
        self.faults: list[str] = []
        self.is_struck = threading.Event()
        self.has_old_names = False

    def owner(self, session: str) -> Host:
        """The daemon that owns a session, as the journal says."""
        with steno.connect_sync(endpoint=self.hosts[0].endpoint, timeout=REPORT_S) as client:
            (found,) = client.cluster(session, limit=1).sessions
        return next(host for host in self.hosts if host.endpoint == found.endpoint)

    def leader(self) -> Node:
        """The server that leads the stream."""
        return self.cluster.wait_for_leader(STREAM)

    def followers(self) -> list[Node]:
        """The servers that do not lead it."""
        return self.cluster.followers_of(STREAM)
