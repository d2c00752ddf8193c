"""The number of Python calls and files of a piece of work."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

OURS = ("/steno/", "/steno_protocol/", "/stenod/")


class CallCounts:
    """The calls during `count`.

    Attributes:
        calls: calls of Python functions, those of other packages included.
        own_calls: calls of the project's functions.
        files: the project's files that they are in.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.own_calls = 0
        self.files: set[str] = set()

    def count(self, work: Callable[[], object]) -> None:
        """Count the calls of this thread while `work` runs."""
        # Kept: CPython goes on to use the function after it has forgotten it.
        self._hook = self._look
        sys.setprofile(self._hook)
        try:
            work()
        finally:
            sys.setprofile(None)

    async def count_async(self, work: Callable[[], Awaitable[object]]) -> None:
        """Count the calls of this thread, those of the event loop included, while `work` runs."""
        self._hook = self._look
        sys.setprofile(self._hook)
        try:
            await work()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        self.calls += 1
        name = frame.f_code.co_filename
        if any(part in name for part in OURS) and name.endswith(".py"):
            self.own_calls += 1
            self.files.add(name)
