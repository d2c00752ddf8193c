"""The Python calls and files of one append, as bounds that never rise."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import steno
from support.call_counts import CallCounts
from support.foreground import daemon_of_tests

APPENDS = 20
MESSAGE = {"role": "user", "content": "hi"}

CLIENT_CALLS_MAX, CLIENT_FILES_MAX = 47, 8
DAEMON_CALLS_MAX, DAEMON_FILES_MAX = 93, 14
DAEMON_AND_PROTOCOL_FILES_MAX = 19

FOLLOWING_CALLS_MAX, FOLLOWING_FILES_MAX = 91, 14

# Without the calls of the event loop, which differ between versions of Python. A coroutine that
# waits for the reply counts twice: its resumption is a call, too.
ASYNC_CALLS_MAX = {False: 53, True: 86}
ASYNC_FILES_MAX = {False: 7, True: 13}


def least(counted: Sequence[CallCounts]) -> tuple[int, int]:
    """The calls and the files of the append with the fewest."""
    return min((each.calls, len(each.files)) for each in counted)


def test_an_append_takes_no_more_calls_than_it_may(root: Path) -> None:
    counted: list[CallCounts] = []
    with (
        daemon_of_tests(root, "e2e.counting_daemon") as daemon,
        steno.connect_sync(root, spawn=False) as client,
    ):
        session = client.open("demo", follow=False)
        for _ in range(APPENDS):
            counts = CallCounts()
            counts.count(lambda: session.append_message(MESSAGE))
            counted.append(counts)
    # Read once the daemon has ended: its log is whole only then.
    bursts = [
        (int(calls), int(files), int(daemon_files))
        for calls, files, daemon_files in re.findall(
            r"counted (\d+) (\d+) (\d+)", "".join(daemon.log)
        )
    ]
    # An append whose sync was interrupted by housekeeping takes a few more.
    calls, files = least(counted)
    assert calls <= CLIENT_CALLS_MAX
    assert files <= CLIENT_FILES_MAX
    # Bursts without a commit are smaller.
    commits = sorted(each for each in bursts if each[0] > DAEMON_CALLS_MAX // 2)
    assert len(commits) >= APPENDS // 2
    calls, files, daemon_files = commits[0]
    assert calls <= DAEMON_CALLS_MAX
    assert daemon_files <= DAEMON_FILES_MAX
    assert files <= DAEMON_AND_PROTOCOL_FILES_MAX


def test_append_of_a_follower_takes_few_calls(root: Path) -> None:
    counted: list[CallCounts] = []
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        for _ in range(APPENDS):
            counts = CallCounts()
            counts.count(lambda: session.append_message(MESSAGE))
            counted.append(counts)
    # An append whose event does not follow its reply at once takes a few more.
    calls, files = least(counted)
    assert calls <= FOLLOWING_CALLS_MAX
    assert files <= FOLLOWING_FILES_MAX


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("follow", [False, True])
async def test_append_of_the_async_client_takes_few_calls(root: Path, follow: bool) -> None:
    counted: list[CallCounts] = []
    async with steno.connect(root) as client:
        session = await client.open("demo", follow=follow)
        for _ in range(APPENDS):
            counts = CallCounts()
            await counts.count_async(lambda: session.append_message(MESSAGE))
            counted.append(counts)
    # An append that wakes the event loop more than once takes a few more.
    calls, files = min((each.own_calls, len(each.files)) for each in counted)
    assert calls <= ASYNC_CALLS_MAX[follow]
    assert files <= ASYNC_FILES_MAX[follow]
