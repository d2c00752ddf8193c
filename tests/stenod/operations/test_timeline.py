"""The timeline beside a writer: entries are written one after the other."""

import errno
from collections.abc import Callable
from typing import TypeVar

import anyio
import pytest

from steno_protocol import paths
from steno_protocol.commands import Fork, Open, Rename
from steno_protocol.positions import Position
from steno_protocol.replies import ErrorReply, Moved, SessionStat
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from support.asking import ask, send
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import SESSION, append, checkpoint, clear, mail, prompt, revert, user
from support.simulated_disk import SimulatedDisk
from support.writing import PATH, Desk

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

T = TypeVar("T")

SLOW_TURNS = 5
"""A disk so slow that every other task has its turn before it is done."""


class WatchedDesk(Desk):
    """A desk that sees which work on the timeline is under way at the same time.

    Attributes:
        done: how much work was done.
        spans: for each work that changed the timeline, what was done when it was begun, and then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.spans: list[tuple[int, int]] = []

    async def _read(self, work: Callable[[], T]) -> T:
        begun = self.done
        for _ in range(SLOW_TURNS):
            await anyio.lowlevel.checkpoint()
        before = len(self.disk.calls)
        result = work()
        self.done += 1
        if any(call.name == paths.TIMELINE for call in self.disk.calls[before:]):
            self.spans.append((begun, self.done))
        return result


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_two_lines_of_a_timeline_are_never_under_way_at_once(turns: int) -> None:
    desk = WatchedDesk()
    noted: list[int] = []

    async def note(number: int) -> None:
        details = {"to": "other", "at": f"0:{number}"}
        await desk.writer.note(TimelineEntry(kind="fork", generation=0, details=details))
        noted.append(number)

    async with desk.open():
        await desk.do(append("k"), user("one"), user("two"))
        await desk.do(checkpoint("c"))
        desk.spans.clear()
        commands = [mail("m", 0, "look"), prompt("p", "be kind"), revert("r", 0), clear("z")]
        sent = [desk.send(command) for command in commands]
        for number in range(6):
            desk.spawn(lambda number=number: note(number))
            await desk.settle(turns)
        await desk.wait_for(lambda: sent[-1].answer is not None and len(noted) == 6)

        assert len(desk.spans) == len(commands) + len(noted)
        for (_, done), (begun, _) in zip(desk.spans, desk.spans[1:], strict=False):
            assert begun >= done
        assert len(desk.stored.timeline()) == 1 + len(desk.spans)


async def test_failed_line_that_cannot_be_cut_spares_later_lines() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k"), user("one"))
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.TIMELINE)
        desk.disk.fail_next("truncate", errno.EIO, name=paths.TIMELINE)
        details = {"to": "other", "at": "0:1"}
        with pytest.raises(OSError, match="timeline"):
            await desk.writer.note(TimelineEntry(kind="fork", generation=0, details=details))

        await desk.do(clear("z"))

        # The page cache still shows the dropped pages, until their memory is needed.
        desk.disk.evict(f"{PATH}/{paths.TIMELINE}")
        kinds = [entry.kind for entry in desk.stored.timeline()]
        assert kinds == ["created", "fork", "cleared"]


async def test_a_fork_beside_a_rewrite_lists_every_earlier_rewrite() -> None:
    ends: set[Position] = set()
    for turns in range(-24, 24):
        daemon = DaemonInProcess(SimulatedDisk())
        async with daemon.running():
            await ask(daemon, "o", Open(session=SESSION))
            await ask(daemon, "a", append("k1"), user("one"))
            asked = Fork(session=SESSION, new_session="copy", key="f")
            first, second = [("c", clear("c")), ("f", asked)][:: -1 if turns < 0 else 1]
            send(daemon, *first)
            for _ in range(abs(turns)):
                await anyio.lowlevel.checkpoint()
            send(daemon, *second)
            await daemon.wait_for_answer(b"c")
            await daemon.wait_for_answer(b"f")
            made = daemon.answers[b"f"][0]
            assert isinstance(made, SessionStat)
        end = Position.parse(made.head)
        entries = timeline.decode(daemon.disk.content(f"{ROOT}/sessions/copy/{paths.TIMELINE}"))
        kinds = [entry.kind for entry in entries]
        assert kinds == ["cleared"] * end.generation + ["forked"], f"{turns} turns later"
        ends.add(end)
    assert len(ends) == 2


@pytest.mark.parametrize(
    ("command", "skip"),
    [
        # The fork's own timeline is written first.
        (Fork(session=SESSION, new_session="copy", key="f"), 1),
        (Rename(session=SESSION, new_session="moved", key="r"), 0),
    ],
    ids=["fork", "rename"],
)
async def test_change_that_the_disk_cannot_record_is_a_storage_failure(
    command: Fork | Rename, skip: int
) -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await ask(daemon, "o", Open(session=SESSION))
        disk.fail_next("write", errno.ENOSPC, name=paths.TIMELINE, skip=skip)
        failed = await ask(daemon, "first", command)
        assert isinstance(failed, ErrorReply)
        assert (failed.code, failed.outcome) == ("storage_failed", "unknown")

        answer = await ask(daemon, "again", command)
        assert isinstance(answer, (SessionStat, Moved))
