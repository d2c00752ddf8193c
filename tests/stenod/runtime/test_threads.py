"""Threads for blocking work: results, errors and cancellation."""

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import pytest

from steno_protocol.commands import Clear, Delete, Fork, Open, Rename, Stat, Subscribe
from steno_protocol.replies import Deleted, ErrorReply
from stenod.runtime.executor import NoThread, Threads
from support import daemon_in_process
from support.asking import ask
from support.daemon_in_process import DaemonInProcess
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """trio keeps threads of earlier tests, so the first job would find one."""
    return str(request.param)


async def test_an_error_in_a_thread_is_raised_in_the_waiting_task() -> None:
    def fail() -> None:
        raise OSError("the disk refused")

    threads = Threads(1)
    with pytest.raises(OSError, match="the disk refused"):
        await threads(fail)
    assert await threads(lambda: 1) == 1


async def test_more_work_than_threads_is_done_in_turn() -> None:
    threads = Threads(2)
    done: list[int] = []
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(threads, lambda number=number: done.append(number))
    assert sorted(done) == list(range(200))


async def test_cancellation_waits_until_the_work_has_ended() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(60)
        ended.set()

    threads = Threads(1)

    async def run() -> None:
        await threads(work)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
        may_end.set()
    assert ended.is_set()


async def test_a_system_without_another_thread_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads(2)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        with pytest.raises(NoThread, match="start new thread"):
            await threads(lambda: 1)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await threads(lambda: 1) == 1
    # Its thread is idle now, and does the work that comes next.
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await threads(lambda: 2) == 2


async def test_a_runtime_error_of_the_work_is_its_own() -> None:
    def fail() -> None:
        raise RuntimeError("of the work")

    with pytest.raises(RuntimeError, match="of the work") as failed:
        await Threads(1)(fail)
    assert not isinstance(failed.value, NoThread)


async def test_a_request_without_a_thread_names_what_the_daemon_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_threads = True

    async def run(work: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        if not has_threads:
            raise NoThread("can't start new thread")
        return work()

    monkeypatch.setattr(daemon_in_process, "_inline", run)
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", Open(session="demo"))
        has_threads = False
        for command in (
            Subscribe(session="demo", subscription="s"),
            Stat(session="demo"),
            Fork(session="demo", new_session="copy", key="f"),
            Rename(session="demo", new_session="other", key="r"),
            Delete(session="demo", key="d"),
            Clear(session="demo", key="c"),
        ):
            refused = await ask(daemon, type(command).__name__, command)
            assert isinstance(refused, ErrorReply), command
            assert refused.code == "storage_failed", command
            assert "no thread" in refused.message, command
        has_threads = True
        assert isinstance(await ask(daemon, "d2", Delete(session="demo", key="d")), Deleted)
    assert not daemon.faults
