"""The commits of writers under test: in tasks or in groups."""

from collections.abc import Callable
from typing import TypeVar

import anyio.lowlevel

T = TypeVar("T")


def _nothing() -> None:
    return None


class TestCommits:
    """The `Commits` of a writer under test.

    Attributes:
        is_inline: whether rounds may serve; else everything is left to the tasks.
        groups_max: group commits under way at a time.
        before: called before each commit; in a task that is between the look at the file and the
            write, in a round behind the writes.
        after: called when a write and its sync are done, before the writer goes on.
        gate: a task's commit waits until it is set.
    """

    __test__ = False

    def __init__(self, *, is_inline: bool = False) -> None:
        self.is_inline = is_inline
        self.groups_max = 1
        self.before: Callable[[], None] = _nothing
        self.after: Callable[[], None] = _nothing
        self.gate: anyio.Event | None = None

    async def __call__(self, work: Callable[[], T], files: int = 1) -> T:
        """See `Commits`."""
        if self.gate is not None:
            await self.gate.wait()
        await anyio.lowlevel.checkpoint()
        return self.here(work)

    def here(self, work: Callable[[], T], files: int = 1) -> T:
        """See `Commits`."""
        self.before()
        try:
            return work()
        finally:
            self.after()
