"""A client between two real daemons of which one owns a session, and is killed.

Both have the tree of the session as a mount, so that the lock of its folder decides who owns it;
the home daemon names the other one as a daemon of a cluster does.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import pytest

import steno
from steno_protocol import credentials
from steno_protocol.credentials import Allowed
from steno_protocol.errors import Held
from steno_protocol.rights import Right
from stenod.recovery import file_opening
from support import remote_access
from support.daemon_in_thread import DaemonInThread
from support.foreground import ForegroundDaemon
from support.remote_access import admit

SESSION = "tree:demo"
APPENDS = 120
WAIT_S = 60


class Hosts(NamedTuple):
    """Two daemons: the clients' home, and the owner of the session."""

    home: Path
    owner: ForegroundDaemon
    key: Path
    file: Path


@pytest.fixture
def hosts(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    home, other, tree = root / "a", root / "b", root / "tree"
    for folder in (home, other, tree):
        folder.mkdir(mode=0o700)
    mount = f'[mounts]\ntree = "{tree}"\n'
    (home / "config.toml").write_text(mount)
    (other / "config.toml").write_text(f'{mount}[network]\nlisten = "tcp://127.0.0.1:*"\n')
    key = remote_access.allow(other, "laptop")
    with ForegroundDaemon(other) as owner:
        endpoint = remote_access.endpoint_of(owner)

        def held(message: str, session: str) -> Held:
            return Held(message, session=session, endpoint=endpoint)

        monkeypatch.setattr(file_opening, "Held", held)
        with steno.connect_sync(endpoint=endpoint, key_file=key) as client:
            client.open(SESSION, follow=False)
        with DaemonInThread(home):
            yield Hosts(home, owner, key, tree / "demo" / "context.jsonl")


def numbers(lines: list[bytes]) -> list[int]:
    return [int(json.loads(line)["content"]) for line in lines]


def message(number: int) -> dict[str, str]:
    return {"role": "user", "content": str(number)}


def test_appends_of_threads_are_applied_once_when_the_owner_is_killed(hosts: Hosts) -> None:
    half = threading.Event()

    def append(number: int) -> steno.Ack:
        if number == APPENDS // 2:
            half.set()
        return session.append_message(message(number))

    with (
        steno.connect_sync(hosts.home, spawn=False, key_file=hosts.key) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        session = client.session(SESSION)
        with session.subscribe("start") as events:
            acks = [threads.submit(append, number) for number in range(APPENDS)]
            assert half.wait(WAIT_S)
            hosts.owner.kill()
            places = {int(ack.result(WAIT_S).first.line): n for n, ack in enumerate(acks)}
            seen: list[int] = []
            while len(seen) < APPENDS:
                event = events.next_event(timeout=WAIT_S)
                assert event is not None
                if isinstance(event, steno.RecordsEvent):
                    seen += numbers(event.lines())
    stored = numbers(hosts.file.read_bytes().splitlines())
    assert sorted(stored) == list(range(APPENDS))
    assert seen == stored
    assert [places[line] for line in range(APPENDS)] == stored


@pytest.mark.anyio
async def test_appends_of_tasks_are_applied_once_when_the_owner_is_killed(hosts: Hosts) -> None:
    acks: dict[int, steno.Ack] = {}
    seen: list[int] = []
    half = anyio.Event()

    async def append(first: int) -> None:
        for number in range(first, APPENDS, 4):
            acks[number] = await session.append_message(message(number))
            if len(acks) == APPENDS // 2:
                half.set()

    async with steno.connect(hosts.home, spawn=False, key_file=hosts.key) as client:
        session = client.session(SESSION)
        with anyio.fail_after(WAIT_S):
            async with session.subscribe("start") as events, anyio.create_task_group() as tasks:
                for first in range(4):
                    tasks.start_soon(append, first)
                await half.wait()
                await anyio.to_thread.run_sync(hosts.owner.kill)
                while len(seen) < APPENDS:
                    event = await anext(events)
                    if isinstance(event, steno.RecordsEvent):
                        seen += numbers(event.lines())
    stored = numbers(hosts.file.read_bytes().splitlines())
    assert sorted(stored) == list(range(APPENDS))
    assert seen == stored
    assert [stored[acks[number].first.line] for number in range(APPENDS)] == list(range(APPENDS))


def test_a_key_that_the_owner_does_not_know_is_refused_with_its_address(
    hosts: Hosts, tmp_path: Path
) -> None:
    stranger = remote_access.allow(tmp_path, "stranger")
    with (
        steno.connect_sync(hosts.home, spawn=False, key_file=stranger, timeout=3) as client,
        pytest.raises(steno.StenoError) as refused,
    ):
        client.session(SESSION).append_message(message(0))
    assert "tcp://127.0.0.1" in refused.value.message


def test_a_client_without_a_key_is_refused_with_its_address(hosts: Hosts) -> None:
    with (
        steno.connect_sync(hosts.home, spawn=False) as client,
        pytest.raises(steno.Unauthorized, match="that daemon owns the session"),
    ):
        client.session(SESSION).append_message(message(0))


def lend(hosts: Hosts) -> Path:
    """Give the home daemon's root the owner's folder of keys, as the guide says."""
    return Path(shutil.copytree(hosts.owner.root / "keys", hosts.home / "keys")) / "server.key"


def admit_home(hosts: Hosts, key: Path) -> None:
    """Let the owner admit the key of its daemons, as one of a cluster does."""
    own = credentials.decode_pair(key.read_text(), str(key))
    admit(hosts.owner.root / "keys", Allowed("home", own.public, Right.ADMIN))


def test_a_client_without_a_key_uses_that_of_its_home_daemon(hosts: Hosts) -> None:
    admit_home(hosts, lend(hosts))
    with steno.connect_sync(hosts.home, spawn=False) as client:
        client.session(SESSION).append_message(message(0))
    assert numbers(hosts.file.read_bytes().splitlines()) == [0]


@pytest.mark.anyio
async def test_tasks_without_a_key_use_that_of_their_home_daemon(hosts: Hosts) -> None:
    admit_home(hosts, lend(hosts))
    # Its address alone: the root is the daemon's answer.
    async with steno.connect(endpoint=f"ipc://{hosts.home}/stenod.sock") as client:
        await client.session(SESSION).append_message(message(0))
    assert numbers(hosts.file.read_bytes().splitlines()) == [0]


def test_a_home_daemon_whose_key_is_not_admitted_is_named(hosts: Hosts) -> None:
    lend(hosts)
    with (
        steno.connect_sync(hosts.home, spawn=False) as client,
        pytest.raises(steno.Unauthorized, match=f"with the key of {hosts.home}"),
    ):
        client.session(SESSION).append_message(message(0))


def test_a_home_daemon_with_another_key_than_the_owner_is_named(hosts: Hosts) -> None:
    remote_access.allow(hosts.home, "laptop")
    with (
        steno.connect_sync(hosts.home, spawn=False, timeout=3) as client,
        pytest.raises(steno.StenoError, match=f"its key is not that of {hosts.home}"),
    ):
        client.session(SESSION).append_message(message(0))


def test_a_key_that_others_can_read_is_not_lent(hosts: Hosts) -> None:
    lend(hosts).chmod(0o644)
    with (
        steno.connect_sync(hosts.home, spawn=False) as client,
        pytest.raises(steno.Unauthorized, match="chmod 600"),
    ):
        client.session(SESSION).append_message(message(0))


def test_a_damaged_key_is_not_lent(hosts: Hosts) -> None:
    lend(hosts).write_text("no key")
    with (
        steno.connect_sync(hosts.home, spawn=False) as client,
        pytest.raises(steno.Unauthorized, match="is not TOML"),
    ):
        client.session(SESSION).append_message(message(0))
