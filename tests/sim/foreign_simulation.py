"""The simulation of one session's writers beside a foreign program, with faults and deaths."""

from contextlib import suppress
from functools import partial
from unittest.mock import patch

import anyio
from anyio.abc import TaskGroup

from sim.faults import Fault, inject
from sim.files import Lines
from sim.followers import DurableFollower
from sim.foreign_program import IN_PLACE, BusyDisk, ForeignProgram
from sim.orders import Order, lose_answers, waiting
from sim.session_simulation import TRIES_MAX, SessionSimulation
from sim.verdicts.foreign import ForeignVerdict
from sim.worlds import World
from sim.writers import NotedSent, Writers
from steno_protocol import limits, paths
from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack
from support.simulated_disk import MOMENTS, PowerCut, ProcessKilled, Survival
from support.simulated_inodes import File

STEPS = 12
CALLS_MAX = 120
"""A death comes within so many calls."""

FAULTS = [
    Fault.CALL, Fault.CALL, Fault.SYNC, Fault.LOOK, Fault.WRITE, Fault.NAME, Fault.SPACE,
]  # fmt: skip
DEATH_SHARES = (0.45, 0.75)


class ForeignSimulation(SessionSimulation):
    """One seed of the worlds `foreign` and `rough`.

    Attributes:
        program: the foreign program.
    """

    again_below, durable_below = 0.4, 0.5

    def __init__(self, seed: int, world: World) -> None:
        self._busy = BusyDisk(seed)
        super().__init__(seed, world, self._busy)
        self._busy.at_death = self._note_open
        self._held: list[File] = []
        self._desk: Writers | None = None
        is_strict = world.foreign_manner not in IN_PLACE
        self.program = ForeignProgram(self._busy, self._chance, world.foreign_manner, self._kept_of)
        self._verdict = ForeignVerdict(self.disk, self.orders, self.program, is_strict=is_strict)
        self._has_follower = is_strict
        # A replacement while no daemon has the file open shows in no event; and half a line that a
        # rewrite left at the end is cut by an opening without a recovery point.
        self._follows_on = world.foreign_manner not in ("editor", "pieces")
        self._cuts_none = world.foreign_manner != "pieces"
        self._follower = self._new_follower()

    def _new_follower(self) -> DurableFollower:
        return DurableFollower(self.disk, self._verdict.faults.append)

    async def run(self) -> None:
        """Live several lives, settle everything, and judge.

        Raises:
            AssertionError: a promise was broken.
        """
        with patch.object(limits, "QUARANTINE_FILES_MAX", 10_000):
            await super().run()

    # --- lives -----------------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[Writers, int]:
        desk = self._start(tasks)
        drawn = self._chance.random()
        call, moment = self._chance.randint(0, CALLS_MAX), self._chance.choice(MOMENTS)
        self._plan_death(drawn, call, DEATH_SHARES, moment)
        self._busy.before = self.program.act
        return desk, self._chance.randint(3, STEPS)

    def _start(self, tasks: TaskGroup) -> Writers:
        self._tick()
        self._desk = self._make_writers(tasks, at_once=self._chance.random() < 0.5)
        return self._desk

    def _tick(self) -> None:
        self.wall_s += self._chance.choice([0.0, 0.1, 3 * limits.FOREIGN_SETTLE_S])
        self.disk.now_s = self.wall_s
        if self._desk is not None:
            self._desk.now_s += self.wall_s - self._desk.wall_s
            self._desk.wall_s = self.wall_s

    async def _drain(self, daemon: Writers) -> None:
        if not self.disk.died and self._chance.random() < 0.5:
            await self._close(daemon)

    async def _close(self, desk: Writers) -> None:
        self._heal()
        for writer in (desk.wire, desk.writer):
            writer.mailbox.close()
            await desk.settle(60)

    def _kill(self, daemon: Writers) -> None:
        self._busy.before = None
        if not self.disk.died:
            self._note_open()
            # No task that still runs may touch the disk of the next life.
            is_cut = self.world.power_cuts and self._chance.random() < 0.5
            self.disk._death = PowerCut if is_cut else ProcessKilled
        lose_answers(self.orders)
        self._verdict.forgive(self._held)
        if self.disk._death is PowerCut:
            self._cut_power(None)
        else:
            self.disk.restart()
        daemon.end()
        self._heal()
        self._desk = None
        self._follower.subscriber = None
        if not self._follows_on:
            self._follower = self._new_follower()

    def _cut_power(self, survival: Survival | None) -> None:
        self._verdict.note_durable()
        self.disk.crash(survival)
        self._verdict.forget_unsynced()
        self.program.forget()

    def _end_life(self, daemon: Writers) -> None:
        """Judge, and let the foreign program go on while memory gets short."""
        self._verdict.judge()
        if self._chance.random() < 0.3:
            self._verdict.note_durable()
            self._evict()
            self._verdict.forget_unsynced()
        for _ in range(self._chance.choice([0, 0, 1, 4])):
            self._tick()
            self.program.act_now()

    # --- open files ------------------------------------------------------------------------------

    def _note_open(self) -> None:
        self._held = [file for file, _ in self._open_files()]

    def _kept_of(self, file: File) -> int | None:
        """How many bytes of a file the daemon would keep, None if it has it not open."""
        return next((size for opened, size in self._open_files() if opened is file), None)

    def _open_files(self) -> list[tuple[File, int]]:
        if self._desk is None:
            return []
        files = self._desk.writer._files
        held = [files.opened, files._aside.opened if files._aside is not None else None]
        found: list[tuple[File, int]] = []
        for opened in held:
            handle = None if opened is None else self.disk._handles.get(opened.log._file.handle)
            if opened is not None and handle is not None and isinstance(handle.node, File):
                found.append((handle.node, opened.log.synced))
        return found

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: Writers) -> None:
        self._tick()
        self._follow(daemon)
        for _ in range(self._chance.randint(1, 3)):
            self._send(daemon, self._choose_order())
        if self.world.faults and self._chance.random() < 0.15:
            inject(self.disk, self._chance, FAULTS, [paths.CONTEXT, paths.WIRE])
        await daemon.settle(self._chance.choice([1, 5, 40]))

    def _follow(self, desk: Writers) -> None:
        is_idle = self._follower.subscriber is None and desk.writer.opened is not None
        if self._has_follower and is_idle:
            self._follower.subscribe(desk.feed, 1 << 20)

    def _draw_order(self) -> Order:
        return self._drawing.draw_intruded()

    def _send(self, desk: Writers, order: Order) -> None:
        command = order.next_copy()
        order.tries += 1
        assert order.tries < TRIES_MAX, f"{order.key} was sent {order.tries} times in vain"
        sent = NotedSent(command, desk, partial(self._take_answer, order))
        with suppress(StenoError):
            order.copies = [desk.submit(sent, order.records)]

    def _take_answer(self, order: Order, answer: Ack | StenoError) -> None:
        if self.disk.died or self._desk is None:
            return
        writer = self._desk.writer_of(order.repeated(repeat=False))
        durable: bytes | None = None
        if writer.opened is not None:
            node = self.disk._handles[writer.opened.log._file.handle].node
            durable = bytes(node.durable) if isinstance(node, File) else None
        self._verdict.take(order, answer, durable)

    # --- the end ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        self.wall_s += 10 * limits.FOREIGN_SETTLE_S
        self.program.finish()
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            await desk.settle(20)
            await self._answer_all(desk)
            assert desk.writer.opened is not None
            self._follow(desk)
            await desk.writer.settle()
            await desk.settle(100 + 20 * desk.feed.head.generation)
            self._check_follower(desk)
            await self._close(desk)
            tasks.cancel_scope.cancel()
        self._verdict.forgive([])
        self._verdict.judge()
        self._desk = None
        self._cut_power(Survival.LOST)

    async def _answer_all(self, desk: Writers) -> None:
        while again := waiting(self.orders):
            for order in again:
                self._send(desk, order)
            await desk.settle(20 + 6 * len(again))
            self._tick()

    def _check_follower(self, desk: Writers) -> None:
        if self._has_follower:
            assert self._follower.position == desk.feed.head
            found: Lines = desk.file().splitlines(keepends=True)
            is_same = self._follower.lines == found or not self._cuts_none
            assert is_same, "a follower has other lines than the file"

    def _judge(self) -> None:
        self._verdict.judge()
