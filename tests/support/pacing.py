"""The pace of a load."""

import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.01


def wait_until(due_s: float) -> None:
    """Return at an instant of the monotonic clock."""
    while (left_s := due_s - time.monotonic()) > 0:
        time.sleep(left_s)


def wait_for_s(seconds: float) -> None:
    """Return after a time, such as that of an outage."""
    wait_until(time.monotonic() + seconds)


def wait_for_fact(is_so: Callable[[], bool], wait_s: float, what: str) -> None:
    """Wait for a fact that no event reports; an AssertionError says `what` did not come."""
    deadline = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)
