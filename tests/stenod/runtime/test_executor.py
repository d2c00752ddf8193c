"""The place of a commit: inline or in a thread."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from steno_protocol import limits
from stenod.runtime.executor import Blocking, NoThread, in_thread
from stenod.writer.group_commit import AdaptiveCommits

pytestmark = pytest.mark.anyio


class Disk:
    """Work of a given duration on its own clock; it records where it ran."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self.now_s = 0.0

    def sync(self) -> int:
        self.now_s += self.takes_s
        return threading.get_ident()


@pytest.fixture
def disk() -> Disk:
    return Disk()


def adaptive(disk: Disk, threads: Blocking = in_thread) -> AdaptiveCommits:
    return AdaptiveCommits(threads, clock=lambda: disk.now_s)


async def _is_inline(commit: AdaptiveCommits, work: Callable[[], int]) -> bool:
    return await commit(work) == threading.get_ident()


async def _learn(commit: AdaptiveCommits, disk: Disk, takes_s: float, commits: int) -> None:
    disk.takes_s = takes_s
    for _ in range(commits):
        await commit(disk.sync)


async def test_one_hiccup_of_a_fast_disk_changes_nothing(disk: Disk) -> None:
    commit = adaptive(disk)
    await _learn(commit, disk, limits.INLINE_SYNC_S / 2, limits.SYNCS_REMEMBERED_MAX)
    await _learn(commit, disk, 1.0, 1)
    assert await _is_inline(commit, disk.sync)


async def test_a_slow_disk_is_synced_in_a_thread_until_it_is_fast_again(disk: Disk) -> None:
    commit = adaptive(disk)
    await _learn(commit, disk, limits.INLINE_SYNC_S * 2, limits.SYNCS_REMEMBERED_MAX)
    assert not await _is_inline(commit, disk.sync)
    await _learn(commit, disk, limits.INLINE_SYNC_S / 2, limits.SYNCS_REMEMBERED_MAX)
    assert await _is_inline(commit, disk.sync)


async def test_waits_for_the_interpreter_do_not_make_a_disk_slow(disk: Disk) -> None:
    commit = adaptive(disk)
    for takes_s in (1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0):
        await _learn(commit, disk, takes_s, 1)
    assert await _is_inline(commit, disk.sync)


async def test_a_commit_beside_one_in_a_thread_is_in_a_thread_too(disk: Disk) -> None:
    commit = adaptive(disk)
    await _learn(commit, disk, limits.INLINE_SYNC_S * 2, limits.SYNCS_REMEMBERED_MAX)
    begun, may_end = threading.Event(), threading.Event()
    was_inline = True

    def wait() -> int:
        begun.set()
        may_end.wait(60)
        return 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, wait)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        # The disk is fast again, and its file system is in the middle of a sync.
        commit._is_fast = True
        was_inline = await _is_inline(commit, disk.sync)
        may_end.set()
    assert not was_inline


async def test_a_slow_disk_is_synced_inline_where_the_system_gives_no_thread(disk: Disk) -> None:
    async def refuse(_: Callable[[], object]) -> Any:
        raise NoThread("can't start new thread")

    commit = adaptive(disk, refuse)
    disk.takes_s = limits.INLINE_SYNC_S * 2
    for _ in range(limits.SYNCS_REMEMBERED_MAX):
        assert await _is_inline(commit, disk.sync)
    assert not commit.is_inline


async def test_a_disk_that_needs_the_event_loop_never_blocks_it(disk: Disk) -> None:
    refusals = iter([NoThread("can't start new thread")])

    async def refuse_once(work: Callable[[], Any]) -> Any:
        for refusal in refusals:
            raise refusal
        return await in_thread(work)

    commit = AdaptiveCommits(refuse_once, clock=lambda: disk.now_s, may_block=False)
    assert not commit.is_inline
    assert not await _is_inline(commit, disk.sync)
    assert not commit.is_inline


async def test_a_commit_that_gets_no_thread_for_long_fails(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Callable[[], object]) -> Any:
        raise NoThread("can't start new thread")

    monkeypatch.setattr(limits, "THREAD_RETRY_S", 0)
    commit = AdaptiveCommits(refuse, clock=lambda: disk.now_s, may_block=False)
    with pytest.raises(OSError, match="no thread"):
        await commit(disk.sync)
