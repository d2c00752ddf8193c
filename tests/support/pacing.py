"""The pace of a load."""

import time


def wait_until(due_s: float) -> None:
    """Return at an instant of the monotonic clock."""
    while (left_s := due_s - time.monotonic()) > 0:
        time.sleep(left_s)
