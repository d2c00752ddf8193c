"""Each open file remembers a bounded number of keys, and forgotten ones are looked up."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from steno_protocol import limits
from steno_protocol.commands import Append, Open
from steno_protocol.replies import Ack
from stenod.core.keys import KeyTable
from support.asking import ask, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

KEYS_MAX = 8
UNSTAMPED_KEYS_MAX = 24
APPENDS = 3 * KEYS_MAX


@pytest.fixture(autouse=True)
def few_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "UNSTAMPED_KEYS_MAX", UNSTAMPED_KEYS_MAX)
    with patch.object(KeyTable.__init__, "__defaults__", (None, KEYS_MAX)):
        yield


async def _put(daemon: DaemonInProcess, session: str, number: int, *, again: bool = False) -> Ack:
    key = f"{session}-{number}"
    command = Append(session=session, key=key, repeat=again)
    ack = await ask(daemon, f"{key}-{again}", command, user("one"))
    assert isinstance(ack, Ack)
    return ack


def _keys(daemon: DaemonInProcess, session: str) -> KeyTable:
    opened = daemon.registry.writers(session)[0].opened
    assert opened is not None
    return opened.machine.keys


async def test_forgotten_keys_get_their_first_answers_from_the_files() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session="demo"))
        firsts: list[str] = []
        for number in range(APPENDS):
            firsts.append((await _put(daemon, "demo", number)).first)
            assert len(_keys(daemon, "demo")) <= KEYS_MAX + KEYS_MAX // 8

        for number, first in enumerate(firsts):
            ack = await _put(daemon, "demo", number, again=True)
            assert (ack.duplicate, ack.first) == (True, first)
        content = daemon.disk.content(f"{ROOT}/sessions/demo/context.jsonl")
        assert content.count(b"\n") == APPENDS


async def test_a_session_without_stamps_remembers_more_keys() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session="plain", stamp=False))
        firsts = [(await _put(daemon, "plain", number)).first for number in range(APPENDS)]
        await close_all(daemon)
        await ask(daemon, "o2", Open(session="plain"))

        for number, first in enumerate(firsts):
            ack = await _put(daemon, "plain", number, again=True)
            assert (ack.duplicate, ack.first) == (True, first)


async def test_a_closed_file_releases_its_key_filter() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session="demo"))
        await _put(daemon, "demo", 0)
        await _put(daemon, "demo", 1, again=True)
        keys = _keys(daemon, "demo")
        assert not keys.needs_filter
        await close_all(daemon)
        assert keys.needs_filter
