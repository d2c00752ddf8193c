"""A limit on the time of a block, which a signal ends."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_REPEAT_S: Final = 0.1
"""Between two interruptions: the first is lost if it hits a callback that ignores exceptions."""


class TimeIsUp(BaseException):
    """The work took longer than its limit; no `except Exception` of a library catches it."""


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """End the block after this time, also within a regular expression.

    Only a signal interrupts a search of `re`, and only the main thread receives signals: another
    thread has no limit. A timer that runs already is continued afterwards.

    Args:
        seconds: wall-clock time for the block.

    Raises:
        TimeIsUp: the block was interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, _end)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the handler of a signal
    raise TimeIsUp
