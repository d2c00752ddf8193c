"""How many Python calls and files an append takes: a bound that may be lowered and not raised."""

import re
from pathlib import Path

import steno
from support.call_counts import CallCounts
from support.foreground import daemon_of_tests

APPENDS = 20
MESSAGE = {"role": "user", "content": "hi"}

CLIENT_CALLS_MAX, CLIENT_FILES_MAX = 70, 16
DAEMON_CALLS_MAX, DAEMON_FILES_MAX = 99, 30


def test_an_append_takes_no_more_calls_than_it_may(root: Path) -> None:
    counted: list[CallCounts] = []
    with (
        daemon_of_tests(root, "support.counting_daemon") as daemon,
        steno.connect_sync(root, spawn=False) as client,
    ):
        session = client.open("demo", follow=False)
        for _ in range(APPENDS):
            counts = CallCounts()
            counts.count(lambda: session.append_message(MESSAGE))
            counted.append(counts)
        bursts = [
            (int(calls), int(files))
            for calls, files in re.findall(r"counted (\d+) (\d+)", "".join(daemon.log))
        ]
    # An append whose sync was interrupted by housekeeping takes a few more.
    calls, files = min((each.calls, len(each.files)) for each in counted)
    assert calls <= CLIENT_CALLS_MAX
    assert files <= CLIENT_FILES_MAX
    # Bursts without a commit are smaller.
    commits = sorted(each for each in bursts if each[0] > DAEMON_CALLS_MAX // 2)
    assert len(commits) >= APPENDS // 2
    calls, files = commits[0]
    assert calls <= DAEMON_CALLS_MAX
    assert files <= DAEMON_FILES_MAX
