"""Recovery points, renewed while appends go on."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import pytest

from steno_protocol import limits
from stenod.core.recovery_point import RecoveryPoint, decode_recovery_point
from support.lines import append, user, uuid7
from support.stored_session import NOW_S
from support.writing import PATH, Desk

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

T = TypeVar("T")

TEXT = "x" * 400


class SlowDesk(Desk):
    """A desk where all that is read or noted waits while `is_slow`."""

    is_slow = False

    async def _read(self, work: Callable[[], T]) -> T:
        while self.is_slow:
            await anyio.lowlevel.checkpoint()
        return await super()._read(work)

    async def fill(self, count: int) -> None:
        """Append so many records, with keys that need not be looked up."""
        for _ in range(count):
            await self.do(append(self.key()), user(TEXT))

    @property
    def lines(self) -> int:
        """The number of durable lines."""
        return self.durable().count(b"\n")

    def key(self) -> str:
        """One that is younger than all before."""
        return uuid7(int(NOW_S * 1000) + 1 + len(self.answered), 0)

    def mark(self) -> RecoveryPoint | None:
        """The mark that lies there."""
        name = f"{PATH}/context.mark"
        return decode_recovery_point(self.disk.content(name)) if self.disk.has_file(name) else None


@pytest.fixture(autouse=True)
def _small_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MARK_BYTES", 1000)


async def test_appends_go_on_while_a_mark_is_renewed() -> None:
    async with SlowDesk().open() as desk:
        before = desk.mark()
        for lines in (3, 6):
            desk.is_slow = True
            await desk.fill(lines - desk.lines)
            await desk.settle()
            marked = len(desk.durable())
            # It is on its way, and others are answered.
            await desk.fill(1)
            assert desk.mark() == before
            assert not desk.writer.is_idle
            desk.is_slow = False
            await desk.settle()
            assert desk.writer.is_idle
            before = mark = desk.mark()
            assert mark is not None
            assert (mark.bytes, mark.lines) == (marked, lines)
            assert len(desk.durable()) > marked


async def test_an_append_two_intervals_behind_waits_for_the_recovery_point() -> None:
    async with SlowDesk().open() as desk:
        desk.is_slow = True
        for _ in range(6):
            await desk.fill(1)
            await desk.settle()
        behind = len(desk.durable())
        assert 2 * limits.MARK_BYTES <= behind < 3 * limits.MARK_BYTES
        late = desk.send(append(desk.key()), user(TEXT))
        await desk.settle(200)
        assert late.answer is None
        desk.is_slow = False
        await desk.wait_for(lambda: late.answer is not None)
        await desk.settle()
        mark = desk.mark()
        # Of both that were under way the newer one is kept, whichever came last.
        assert mark is not None
        assert mark.bytes == behind


async def test_a_mark_that_comes_behind_the_end_is_dropped() -> None:
    desk = SlowDesk()
    async with desk.open():
        desk.is_slow = True
        await desk.fill(3)
        await desk.fill(1)
        # The writer ends while the mark is still on its way.
        desk.writer.mailbox.close()
        await desk.settle()
        ended = desk.mark()
        assert ended is not None
        assert ended.bytes == len(desk.durable())
        desk.is_slow = False
        await desk.settle()
        assert desk.mark() == ended
    assert desk.death is None


async def test_failed_write_of_a_recovery_point_affects_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SlowDesk().open() as desk:

        def refuse(*_: object) -> int:
            raise OSError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(desk.disk, "open_new", refuse)
            await desk.fill(6)
            await desk.settle()
        assert desk.mark() is None
        await desk.fill(3)
        await desk.settle()
        assert desk.mark() is not None
