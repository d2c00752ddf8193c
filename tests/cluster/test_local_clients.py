"""Clients on a daemon's own machine, without a key, whose sessions go to other machines."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import pytest

import steno
from cluster.test_moves import TIMEOUT_S, client_of, knows_both
from steno_protocol.commands import HandOver
from steno_protocol.replies import Done
from support import remote_access
from support.clustered_daemon import clustered_daemon
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster, free_ports, wait_until
from support.nats_journals import skip_without_servers

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

AGENT = "agent-7"


class Hosts(NamedTuple):
    """Two daemons that name their addresses of TCP as owners, with the same key."""

    home: ForegroundDaemon
    other: ForegroundDaemon

    def give(self, source: ForegroundDaemon, target: ForegroundDaemon) -> None:
        """Hand the session over, once each daemon knows the other one."""
        with client_of(source) as giving, client_of(target) as taking:
            for client in (giving, taking):
                wait_until(lambda at=client: knows_both(at), "a daemon does not hear the other one")
            giving.request(HandOver(session="s", host=advertised(target)), Done)

    @property
    def lines(self) -> list[dict[str, object]]:
        """The records of the session, as the other daemon has them."""
        with client_of(self.other) as client:
            return [dict(each.record) for each in client.session("s").records()]


def listening(root: Path, cluster: NatsCluster) -> ForegroundDaemon:
    """A daemon that tells others an address of TCP; it is not started."""
    daemon = clustered_daemon(root, root.parent.name, cluster)
    address = f"tcp://127.0.0.1:{next(free_ports(1))}"
    config = root / "config.toml"
    text = config.read_text().replace(daemon.endpoint, address)
    config.write_text(f'{text}[network]\nlisten = "{address}"\n')
    return daemon


def advertised(daemon: ForegroundDaemon) -> str:
    return remote_access.endpoint_of(daemon)


@pytest.fixture
def hosts(three_nodes: NatsCluster) -> Iterator[Hosts]:
    skip_without_servers()
    # The path of a socket is bounded.
    folder = Path(tempfile.mkdtemp(prefix="local-")).resolve()
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        home, other = (listening(folder / name, three_nodes) for name in "ab")
        remote_access.allow(home.root, "laptop")
        shutil.copytree(home.root / "keys", other.root / "keys")
        yield Hosts(held.enter_context(home), held.enter_context(other))


def record(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def texts(event: object) -> list[str]:
    assert event is not None
    if not isinstance(event, steno.RecordsEvent):
        return []
    return [json.loads(line)["content"] for line in event.lines()]


def test_a_local_client_follows_its_session_through_a_failover_and_back(hosts: Hosts) -> None:
    with steno.connect_sync(hosts.home.root, spawn=False, name=AGENT, timeout=TIMEOUT_S) as client:
        client.open("s", follow=False)
        session = client.session("s")
        with session.subscribe("start") as events:
            session.append_message(record("at home"))
            hosts.give(hosts.home, hosts.other)
            session.append_message(record("given away"))
            hosts.other.kill()
            session.append_message(record("taken back"))
            hosts.other.start()
            hosts.give(hosts.home, hosts.other)
            session.append_message(record("given again"))
            hosts.home.kill()
            session.append_message(record("without home"))
            hosts.home.start()
            session.append_message(record("home again"))
            seen: list[str] = []
            while len(seen) < 6:
                seen += texts(events.next_event(timeout=TIMEOUT_S))
    assert seen == [
        "at home", "given away", "taken back", "given again", "without home", "home again",
    ]  # fmt: skip
    assert [each["content"] for each in hosts.lines] == seen


def test_a_local_client_stays_the_author_at_another_host(hosts: Hosts) -> None:
    with client_of(hosts.home) as client:
        client.open("s", follow=False)
    hosts.give(hosts.home, hosts.other)
    with steno.connect_sync(hosts.home.root, spawn=False, name=AGENT) as client:
        client.session("s").append_message(record("by the agent"))
    (line,) = hosts.lines
    assert (line["_by"], line.get("_claim")) == (AGENT, None)


@pytest.mark.anyio
async def test_local_tasks_follow_their_session_through_a_failover(hosts: Hosts) -> None:
    seen: list[str] = []
    in_thread = anyio.to_thread.run_sync
    async with steno.connect(hosts.home.root, spawn=False, timeout=TIMEOUT_S) as client:
        await client.open("s", follow=False)
        session = client.session("s")
        async with session.subscribe("start") as events:
            await session.append_message(record("at home"))
            await in_thread(hosts.give, hosts.home, hosts.other)
            await session.append_message(record("given away"))
            await in_thread(hosts.other.kill)
            await session.append_message(record("taken back"))
            with anyio.fail_after(TIMEOUT_S):
                while len(seen) < 3:
                    seen += texts(await anext(events))
    assert seen == ["at home", "given away", "taken back"]
    await in_thread(hosts.other.start)


def test_one_shot_commands_on_the_home_host_reach_the_owner(hosts: Hosts) -> None:
    with client_of(hosts.home) as client:
        client.open("s", follow=False)
    hosts.give(hosts.home, hosts.other)

    def steno_command(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "steno_cli", *words, "--root", str(hosts.home.root)],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip

    steno_command("append", "s", "from a shell")
    assert "from a shell" in steno_command("read", "s")
    steno_command("delete", "s", "--yes")
    with client_of(hosts.other) as client:
        assert [each.session for each in client.sessions()] == []
