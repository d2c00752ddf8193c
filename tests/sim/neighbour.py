"""A session beside another program that works on its file between any two calls to the disk.

`simulation` has a foreign program that appends between steps; here it comes between the calls of
one step, and it also does what editors and kimi-cli do: it puts another file in the place of ours.
Nobody can order what it does, so the verdict is short: whatever was acknowledged, and whatever
another program appended, lies in some file of the folder.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from unittest.mock import patch

import anyio

from sim.simulation import run_seed
from steno_protocol import limits, paths
from steno_protocol.errors import StenoError
from stenod.recovery.file_opening import OpenOptions
from support.lines import append, checkpoint, clear, revert, user, uuid7
from support.simulated_disk import Call, SimulatedDisk
from support.stored_session import NOW_S
from support.writing import PATH, Desk, Sent

LIVES = 2
STEPS = 25
CONTEXT = f"{PATH}/{paths.CONTEXT}"

Result = TypeVar("Result")


class BusyDisk(SimulatedDisk):
    """A disk on which somebody else may act before each call.

    Attributes:
        before: called before every call, unless it is what makes one.
    """

    before: Callable[[], None] | None = None

    def _look(self, call: Call, effect: Callable[[], Result]) -> Result:
        self._let_others()
        return super()._look(call, effect)

    def _change(self, call: Call, effect: Callable[[], Result], **how: Any) -> Result:
        # Nothing can look and cut in one step; what comes between the two is beyond any guard.
        if call.method != "truncate":
            self._let_others()
        return super()._change(call, effect, **how)

    def _let_others(self) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
            self.before = before


class Neighbour:
    """Another program. What it appends are tokens that are told apart wherever they end up.

    Attributes:
        appended: every piece that it appended.
    """

    def __init__(self, disk: BusyDisk, chance: random.Random, manner: str) -> None:
        self.appended: list[bytes] = []
        self._disk = disk
        self._chance = chance
        self._manner = manner
        self._number = 0
        self._read: bytes | None = None
        self._missing = 0

    def act(self) -> None:
        """Perhaps do something, now."""
        if self._chance.random() > 0.03:
            return
        if not self._disk.has_file(CONTEXT):
            self._put_back()
            return
        match self._manner:
            case "lines":
                self._append(b'{"role":"user","content":"%b"}\n' % self._token())
            case "pieces":
                ends = [b"\n", b"\n", b"", b'"}\n']
                self._append(
                    self._chance.choice([b"", b'{"role":"user","content":"'])
                    + self._token()
                    + self._chance.choice(ends)
                )
            case "editor":
                self._edit()
            case _:
                self._rotate()

    def _token(self) -> bytes:
        self._number += 1
        return b"theirs-%d-" % self._number

    def _append(self, piece: bytes) -> None:
        self._disk.foreign.append(CONTEXT, piece)
        self.appended.append(piece.strip(b"\n"))

    def _edit(self) -> None:
        """Read the file, and some calls later put what was read in its place."""
        if self._read is None:
            self._read = self._disk.content(CONTEXT)
        else:
            self._disk.foreign.replace(f"{PATH}/aside", self._read)
            self._disk.foreign.rename(f"{PATH}/aside", paths.CONTEXT)
            self._read = None

    def _rotate(self) -> None:
        """Move the file away as kimi-cli does; some calls later another one is made there."""
        self._read = rotate(self._disk, self._chance)
        if self._chance.random() < 0.7:
            self._put_back()

    def _put_back(self) -> None:
        if self._read is not None:
            self._disk.foreign.replace(CONTEXT, self._read)
            self._read = None


def rotate(disk: SimulatedDisk, chance: random.Random) -> bytes:
    """Move the present file away, as kimi-cli does; what it puts there some calls later."""
    data = disk.content(CONTEXT)
    number = 1
    while disk.has_file(f"{PATH}/{paths.generation_file(number)}"):
        number += 1
    disk.foreign.rename(CONTEXT, paths.generation_file(number))
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: chance.randint(0, len(lines))])


class NeighbourSimulation:
    """One seed: steps of one writer, and a neighbour who comes between its calls."""

    def __init__(self, seed: int) -> None:
        self.disk = BusyDisk(seed)
        self.disk.foreign.make_folder(PATH)
        self.disk.sync_all()
        self._chance = random.Random(seed)
        self.neighbour = Neighbour(
            self.disk,
            self._chance,
            ["lines", "pieces", "editor", "rotation"][seed % 4],
        )
        self._sent: list[tuple[Sent, bytes]] = []
        self._number = 0
        self._now_s = NOW_S

    async def run(self) -> None:
        """Live, then look for everything.

        Raises:
            AssertionError: something is nowhere.
        """
        with patch.object(limits, "QUARANTINE_FILES_MAX", 10_000):
            for _ in range(LIVES):
                await self._live()
        self.judge()

    async def _live(self) -> None:
        async with anyio.create_task_group() as tasks:
            desk = Desk(self.disk, wall_s=self._now_s, at_once=self._chance.random() < 0.5)
            desk._tasks = tasks
            desk.spawn(desk.writer.serve)

            async def open_session() -> None:
                with suppress(StenoError, OSError):
                    await desk.writer.open(OpenOptions(create=True))

            desk.spawn(open_session)
            await desk.settle(30)
            self.disk.before = self.neighbour.act
            for _ in range(STEPS):
                self._now_s += self._chance.choice([0.0, 0.1, 3 * limits.FOREIGN_SETTLE_S])
                desk.wall_s = self.disk.now_s = self._now_s
                for _ in range(self._chance.randint(1, 3)):
                    self._send(desk)
                await desk.settle(self._chance.choice([1, 5, 40]))
            self.disk.before = None
            await desk.settle(60)
            desk.writer.mailbox.close()
            await desk.settle(60)
            tasks.cancel_scope.cancel()
        desk.feed.detach()
        self.disk.kill()

    def _send(self, desk: Desk) -> None:
        self._number += 1
        key = uuid7(int(self._now_s * 1000), self._number)
        token = b"ours-%d-" % self._number
        with suppress(StenoError):
            match self._chance.choices(["append", "clear", "revert", "checkpoint"], [20, 2, 2, 4])[
                0
            ]:
                case "append":
                    sent = desk.send(append(key), user(token.decode()))
                    self._sent.append((sent, token))
                case "clear":
                    desk.send(clear(key))
                case "revert":
                    desk.send(revert(key, 0))
                case _:
                    desk.send(checkpoint(key))

    def judge(self) -> None:
        """Everything that was acknowledged, or appended by the neighbour, is in some file."""
        everything = b"".join(data for path, data in self.disk.tree().items() if PATH in path)
        for sent, token in self._sent:
            if sent.answer is not None and not isinstance(sent.answer, StenoError):
                assert token in everything, f"{token!r} was acked and is nowhere"
        for piece in self.neighbour.appended:
            assert piece in everything, f"{piece!r} of another program is nowhere"


def play_beside(seed: int) -> None:
    """Play one seed.

    Raises:
        AssertionError: something was lost; the message names the seed.
    """
    run_seed(seed, NeighbourSimulation(seed).run)
