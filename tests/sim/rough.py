"""A session beside another program, whose daemons die and whose disk fails.

`neighbour` has a sound disk and daemons that end in peace. Here the daemon is killed or the power
is cut at any call, calls fail, what was not synced is forgotten, and the next daemon opens what is
left, while the other program goes on. `rough_books` says what must be true all the same.
"""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import anyio

from sim.both_files import BothDesk
from sim.intruder import CONTEXT, MANNERS, WIRE, Intruder, RoughDisk
from sim.rough_books import TRIES_MAX, Books, Wish, draw_kind
from sim.rough_reader import RoughReader
from sim.simulation import run_seed
from steno_protocol import limits, paths
from steno_protocol.commands import AppendWire, Mutation
from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack
from stenod.feed.feed import Subscriber
from stenod.recovery.file_opening import OpenOptions
from stenod.writer.mailbox import Item
from support import lines
from support.simulated_disk import MOMENTS, Effect, PowerCut, ProcessKilled, Survival
from support.simulated_inodes import File
from support.stored_session import NOW_S
from support.wire_writing import append_wire, event
from support.writing import PATH, Desk, Sent

LIVES = 4
STEPS = 12
CALLS_MAX = 120
"""A death comes within so many calls."""


class RoughSent(Sent):
    """A command whose answer goes into the books."""

    __slots__ = ("tell",)

    def __init__(self, command: Mutation, desk: Desk, tell: Callable[[Any], None]) -> None:
        super().__init__(command, desk)
        self.tell = tell

    def _answered(self, answer: Ack | StenoError) -> None:
        super()._answered(answer)
        self.tell(answer)


class RoughSimulation:
    """One seed.

    Attributes:
        disk: where the session lies.
        intruder: the other program.
        books: what was promised.
    """

    def __init__(self, seed: int) -> None:
        manner = list(MANNERS)[seed % len(MANNERS)]
        # By itself, so that a world is told from its seed.
        world = random.Random(f"world {seed}")
        self._has_faults = world.random() < 0.6
        self._has_deaths = world.random() < 0.8
        self._is_shared = world.random() < 0.5
        self._chance = random.Random(seed)
        self.disk = RoughDisk(seed)
        self.disk.at_death = self._note_open
        self._held: list[File] = []
        self.disk.foreign.make_folder(PATH)
        self.disk.sync_all()
        self.intruder = Intruder(self.disk, self._chance, manner, self._kept_of)
        self.books = Books(self.disk, self.intruder, is_strict=manner not in ("in place", "all"))
        self._desk: BothDesk | None = None
        self._now_s = NOW_S
        self._has_reader = manner not in ("in place", "all")
        # What replaces a file while nobody has it open, nobody can tell a reader of; and half a
        # line that a rewrite left at the end is cut by an opening that has no mark.
        self._reads_on = manner not in ("editor", "pieces")
        self._cuts_none = manner != "pieces"
        self._reader = RoughReader(self.disk, self.books.faults.append)

    async def run(self) -> None:
        """Live several lives, settle everything, and judge.

        Raises:
            AssertionError: a promise was broken.
        """
        with patch.object(limits, "QUARANTINE_FILES_MAX", 10_000):
            for _ in range(LIVES):
                await self._live()
            await self._settle()
        self._cut_power(Survival.LOST)
        self.books.judge()

    # --- lives ---------------------------------------------------------------------------------

    async def _live(self) -> None:
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            self._plan_death()
            self.disk.before = self.intruder.act
            for _ in range(self._chance.randint(3, STEPS)):
                await self._step(desk)
                if self.disk.died:
                    break
            await self._end(desk)
            tasks.cancel_scope.cancel()
        self.books.judge()
        self._pass_between_lives()

    def _start(self, tasks: anyio.abc.TaskGroup) -> BothDesk:
        self._tick()
        desk = BothDesk(
            self.disk, [], wall_s=self._now_s, shared=self._is_shared,
            at_once=self._chance.random() < 0.5,
        )  # fmt: skip
        desk._tasks = tasks
        self._desk = desk
        desk.spawn(desk.writer.serve)
        desk.spawn(desk.wire.serve)

        async def open_session() -> None:
            with suppress(StenoError, OSError):
                await desk.writer.open(OpenOptions(create=True))

        desk.spawn(open_session)
        return desk

    def _plan_death(self) -> None:
        drawn = self._chance.random()
        call = len(self.disk.calls) + self._chance.randint(0, CALLS_MAX)
        moment = self._chance.choice(MOMENTS)
        if self._has_deaths and drawn < 0.45:
            self.disk.crash_at(call, moment)
        elif self._has_deaths and drawn < 0.75:
            self.disk.kill_at(call, moment)

    async def _end(self, desk: BothDesk) -> None:
        """Whatever way it ends, nobody gets an answer from this daemon any more."""
        if not self.disk.died and self._chance.random() < 0.5:
            await self._drain(desk)
        self.disk.before = None
        if not self.disk.died:
            self._note_open()
            # Nothing of what is still running may touch the disk of the next life.
            is_cut = self._has_deaths and self._chance.random() < 0.5
            self.disk._death = PowerCut if is_cut else ProcessKilled
        self.books.lose_answers()
        self.books.forgive(self._held)
        if self.disk._death is PowerCut:
            self._cut_power(None)
        else:
            self.disk.restart()
        for feed, writer in ((desk.feed, desk.writer), (desk.wire_feed, desk.wire)):
            feed.detach()
            writer._files.opened = writer._files._aside = None
        self._heal()
        self._desk = None
        self._reader.subscriber = None
        if not self._reads_on:
            self._reader = RoughReader(self.disk, self.books.faults.append)

    async def _drain(self, desk: BothDesk) -> None:
        self._heal()
        for writer in (desk.wire, desk.writer):
            writer.mailbox.close()
            await desk.settle(60)

    def _heal(self) -> None:
        self.disk.heal()
        self.disk.free_bytes = None

    def _cut_power(self, survival: Survival | None) -> None:
        self.books.note_durable()
        self.disk.crash(survival)
        self.books.forget_unsynced()
        self.intruder.forget()

    def _pass_between_lives(self) -> None:
        """The other program goes on, and memory gets short."""
        if self._chance.random() < 0.3:
            self.books.note_durable()
            for path in (CONTEXT, WIRE, f"{PATH}/{paths.TIMELINE}"):
                if self.disk.has_file(path):
                    self.disk.evict(path)
            self.books.forget_unsynced()
        for _ in range(self._chance.choice([0, 0, 1, 4])):
            self._tick()
            self.intruder.act_now()

    def _tick(self) -> None:
        self._now_s += self._chance.choice([0.0, 0.1, 3 * limits.FOREIGN_SETTLE_S])
        self.disk.now_s = self._now_s
        if self._desk is not None:
            self._desk.now_s += self._now_s - self._desk.wall_s
            self._desk.wall_s = self._now_s

    # --- what is kept open ---------------------------------------------------------------------

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

    # --- steps ---------------------------------------------------------------------------------

    async def _step(self, desk: BothDesk) -> None:
        self._tick()
        self._follow(desk)
        for _ in range(self._chance.randint(1, 3)):
            self._send(desk, self._choose())
        if self._has_faults and self._chance.random() < 0.15:
            self._fail_something()
        await desk.settle(self._chance.choice([1, 5, 40]))

    def _follow(self, desk: BothDesk) -> None:
        reader = self._reader
        if self._has_reader and reader.subscriber is None and desk.writer.opened is not None:
            # Nobody was ever shown a record that a crash could take back.
            desk.feed.check(reader.position)
            reader.subscriber = Subscriber(reader.send, reader.position, 1 << 20)
            desk.feed.add(reader.subscriber)

    def _choose(self) -> Wish:
        waiting = self.books.waiting()
        done = [wish for wish in self.books.wishes if wish.acks and wish.under_way is None]
        drawn = self._chance.random()
        if waiting and drawn < 0.4:
            return self._chance.choice(waiting)
        if done and drawn < 0.5:
            return self._chance.choice(done)
        return self._draw()

    def _send(self, desk: BothDesk, wish: Wish) -> None:
        command = wish.make(wish.tries > 0)
        wish.tries += 1
        assert wish.tries < TRIES_MAX, f"{wish.key} was sent {wish.tries} times in vain"
        is_event = isinstance(command, AppendWire)
        sent = RoughSent(command, desk, partial(self._answered, wish, is_event))
        writer = desk.wire if is_event else desk.writer
        with suppress(StenoError):
            size = sum(map(len, wish.records))
            desk._submit(writer, Item(command, wish.records, sent, size, None))
            wish.under_way = sent

    def _answered(self, wish: Wish, is_event: bool, answer: Ack | StenoError) -> None:
        if self.disk.died or self._desk is None:
            return
        writer = self._desk.wire if is_event else self._desk.writer
        durable: bytes | None = None
        if writer.opened is not None:
            node = self.disk._handles[writer.opened.log._file.handle].node
            durable = bytes(node.durable) if isinstance(node, File) else None
        self.books.take(wish, answer, durable)

    def _draw(self) -> Wish:
        chance, number = self._chance, len(self.books.wishes)
        key = f"ours-{number}-"
        if chance.random() < 0.5:
            key = lines.uuid7(int(self._now_s * 1000), number)
        kind = draw_kind(chance)
        records: list[bytes] = []
        if kind in ("append", "batch"):
            count = 1 if kind == "append" else chance.randint(2, 3)
            records = [lines.user(f"ours-{number}-{part}") for part in range(count)]
        elif kind in ("event", "events"):
            count = 1 if kind == "event" else chance.randint(2, 3)
            records = [event(number, f"ours-{part}") for part in range(count)]
        durability = "written" if chance.random() < 0.15 else "synced"
        build = _builder(kind, chance)

        def make(repeat: bool) -> Mutation:
            return build(key, repeat=repeat, durability=durability)

        wish = Wish(key, make, records, gives_up=chance.random() < 0.3)
        self.books.wishes.append(wish)
        return wish

    def _fail_something(self) -> None:
        chance, disk = self._chance, self.disk
        effect = chance.choice(list(Effect))
        error = chance.choice([errno.EIO, errno.ENOSPC])
        name = chance.choice([paths.CONTEXT, paths.WIRE])
        match chance.randint(0, 6):
            case 0 | 1:
                disk.fail_at(len(disk.calls) + chance.randint(0, 12), error, effect)
            case 2:
                disk.fail_next("fdatasync", errno.EIO, name=name, effect=effect)
                if chance.random() < 0.5:
                    disk.fail_next("truncate", errno.EIO, name=name)
            case 3:
                method = chance.choice(["read", "stat", "names", "stat_name", "open_read"])
                disk.fail_next(method, errno.EIO, skip=chance.randint(0, 6))
            case 4:
                disk.shorten_next("write", chance.randint(1, 20), times=3)
            case 5:
                method = chance.choice(["rename", "link", "fsync"])
                disk.fail_next(method, error, skip=chance.randint(0, 3), effect=effect)
            case _:
                disk.free_bytes = chance.choice([0, 30, 300, None])

    # --- the end -------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """A last daemon on a sound disk, and nobody beside it: every command gets its answer."""
        self._now_s += 10 * limits.FOREIGN_SETTLE_S
        self.intruder.finish()
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            await desk.settle(20)
            while waiting := self.books.waiting():
                for wish in waiting:
                    self._send(desk, wish)
                await desk.settle(20 + 6 * len(waiting))
                self._tick()
            assert desk.writer.opened is not None
            self._follow(desk)
            await desk.writer.settle()
            await desk.settle(100 + 20 * desk.feed.head.generation)
            self._check_reader(desk)
            await self._drain(desk)
            tasks.cancel_scope.cancel()
        self.books.forgive([])
        self.books.judge()
        self._desk = None

    def _check_reader(self, desk: BothDesk) -> None:
        if self._has_reader:
            assert self._reader.position == desk.feed.head
            found = desk.file().splitlines(keepends=True)
            is_same = self._reader.lines == found or not self._cuts_none
            assert is_same, "a reader has other lines than the file"


def _builder(kind: str, chance: random.Random) -> Callable[..., Mutation]:
    match kind:
        case "append" | "batch":
            return lines.append
        case "event" | "events":
            return append_wire
        case "checkpoint":
            return lines.checkpoint
        case "revert":
            return partial(lines.revert, checkpoint_id=chance.randint(0, 2))
        case "clear":
            return lines.clear
        case _:
            return partial(lines.restore, generation=chance.randint(0, 3))


def play_rough(seed: int) -> None:
    """Play one seed.

    Raises:
        AssertionError: a promise was broken; the message names the seed.
    """
    run_seed(seed, RoughSimulation(seed).run)
