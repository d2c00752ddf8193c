"""The limit of open files: counted close to it, with a reserve."""

import errno
import os
import subprocess
import sys

import pytest

from steno_protocol import limits
from stenod.runtime.fd_limit import HandleLimit

MOST = 80
KEPT = 10


def test_an_eighth_of_the_handles_is_kept_in_reserve() -> None:
    taken = 20
    handles = HandleLimit(MOST, lambda: taken)
    while handles.take(1):
        taken += 1
    assert taken == MOST - KEPT
    assert not handles.take(1)
    taken -= 3
    assert handles.take(2)
    taken += 2
    assert not handles.take(2)
    assert HandleLimit(1 << 20, lambda: (1 << 20) - limits.HANDLES_RESERVE_MAX - 1).take(1)


def test_handles_are_counted_only_when_none_may_be_left() -> None:
    counts = 0

    def count() -> int:
        nonlocal counts
        counts += 1
        return 0

    handles = HandleLimit(MOST, count)
    for _ in range(MOST - KEPT):
        assert handles.take(1)
    assert counts == 1


@pytest.mark.parametrize(("number", "is_room"), [(errno.EMFILE, False), (errno.ENOENT, True)])
def test_an_unknown_handle_limit_refuses_no_client_and_an_exhausted_one_does(
    number: int, is_room: bool
) -> None:
    def count() -> int:
        raise OSError(number, "")

    assert HandleLimit(MOST, count).take(1) is is_room


def test_the_handles_of_this_process_are_counted() -> None:
    # In another one: here libzmq's threads may close the connections of earlier tests meanwhile.
    count = (
        "from stenod.runtime.fd_limit import open_handles; before = open_handles();"
        " file = open('/dev/null'); print(open_handles() - before)"
    )
    counted = subprocess.run(
        [sys.executable, "-c", count],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert counted.stdout == "1\n"
