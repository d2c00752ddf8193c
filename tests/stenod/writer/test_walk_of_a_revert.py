"""The files, calls and pieces of blocking work of one revert, as bounds that never rise."""

from collections.abc import Callable
from typing import TypeVar

import anyio.lowlevel
import pytest

from steno_protocol.commands import Open
from steno_protocol.replies import Ack
from support import daemon_in_process
from support.asking import ask
from support.call_counts import CallCounts
from support.daemon_in_process import DaemonInProcess
from support.lines import append, checkpoint, revert, user
from support.simulated_disk import SimulatedDisk

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

T = TypeVar("T")

CALLS_MAX, FILES_MAX = 299, 28
"""Without the transport and the disk, which are the test's."""


async def test_a_revert_is_one_piece_of_work_of_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    blocking = 0

    async def read(work: Callable[[], T]) -> T:
        nonlocal blocking
        blocking += 1
        await anyio.lowlevel.checkpoint()
        return work()

    monkeypatch.setattr(daemon_in_process, "_inline", read)
    async with DaemonInProcess(SimulatedDisk()).running() as daemon:
        await ask(daemon, b"1", Open(session="demo"))
        await ask(daemon, b"2", append("one"), user("one"))
        await ask(daemon, b"3", checkpoint("mark"))
        await ask(daemon, b"4", append("two"), user("two"))
        counts, blocking, answers = CallCounts(), 0, list[object]()

        async def go_back() -> None:
            answers.append(await ask(daemon, b"5", revert("back", 0)))

        await counts.count_async(go_back)
    assert isinstance(answers[0], Ack)
    assert blocking == 1
    assert counts.own_calls <= CALLS_MAX
    assert len([file for file in counts.files if "/daemon/stenod/" in file]) <= FILES_MAX
