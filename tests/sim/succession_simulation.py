"""The simulation of one session's streams that are deleted, replaced by others, and expire."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from sim.faults import Fault, inject
from sim.files import Stamp, parse_stamp, public, record_of, stamp_of
from sim.orders import Fate, Order, done, lose_answers, waiting
from sim.simulation import Simulation
from sim.worlds import World
from sim.writers import Writers
from steno_protocol import paths
from steno_protocol.commands import AppendStream, DeleteStream
from steno_protocol.errors import Busy, Conflict, NotFound, OutcomeUnknown, StenoError
from steno_protocol.paths import DeletedStream
from steno_protocol.positions import Position
from steno_protocol.replies import Deleted
from stenod.feed.feed import Feed
from stenod.runtime.config import Config
from stenod.sessions import streams
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.writer.mailbox import Item
from stenod.writer.writer import Writer
from support.lines import SESSION, uuid7
from support.simulated_disk import MOMENTS, PowerCut, SimulatedDisk, Survival
from support.writing import PATH, Sent

NAMES = ("a", "b", "c")
STEPS = 20
EXPIRY_S = 60
DEATH_SHARES = (0.5, 0.75)
FAULTS = [Fault.CALL, Fault.NAME, Fault.NAME, Fault.SYNC, Fault.LOOK, Fault.WRITE]


@dataclass(eq=False, slots=True)
class Life:
    """The records of a stream from its first append on, wherever its file's name goes.

    Attributes:
        acked: the orders that are durable in it, each with the line at which it begins.
        tried: these and all that may be in it.
    """

    acked: dict[str, int] = field(default_factory=dict[str, int])
    tried: dict[str, Order] = field(default_factory=dict[str, Order])


@dataclass(frozen=True, slots=True)
class Naming:
    """The meaning of the names at one instant.

    Attributes:
        lives: by the stream's name, those that were deleted, oldest first, and the present one.
        expiry: the Unix time from which on each deleted one may be gone.
        keys: of the deletions.
    """

    lives: Mapping[str, Sequence[Life]]
    expiry: Mapping[Life, float] = field(default_factory=dict[Life, float])
    keys: frozenset[str] = frozenset()

    def after(self, command: DeleteStream, now: float) -> "Naming":
        """The naming after a deletion."""
        lives, name, other = dict(self.lives), command.stream, command.successor
        gone = lives[name][-1]
        lives[name] = [*lives[name], lives[other][-1] if other else Life()]
        if other:
            lives[other] = [*lives[other][:-1], Life()]
        return Naming(lives, {**self.expiry, gone: int(now) + EXPIRY_S}, self.keys | {command.key})


class StreamWriters(Writers):
    """A desk with the writer of the context, and those of the streams that were opened."""

    def __init__(self, disk: SimulatedDisk, tasks: TaskGroup, wall_s: float) -> None:
        super().__init__(disk, tasks, shared=False, wall_s=wall_s, at_once=True)
        self.named: dict[str, Writer] = {}
        self._feeds: list[Feed] = []

    def append(self, command: AppendStream, records: Sequence[bytes]) -> Sent:
        """Send records to a stream."""
        sent = Sent(command, self)
        item = Item(command, records, sent, sum(map(len, records)), None)
        self._submit(self._writer(command.stream), item)
        return sent

    async def open_stream(self, stream: str) -> None:
        """Open a stream if it exists."""
        if self.disk.has_file(f"{PATH}/{paths.stream_file(stream)}"):
            await self._writer(stream).open()

    def _writer(self, stream: str) -> Writer:
        if stream not in self.named:
            feed = Feed(self.spawn, self._read, lambda: self.now_s)
            opener = partial(self._open_beside, paths.stream_file(stream))
            self.named[stream] = Writer(SESSION, opener, feed, self.services, needs=self.writer)
            self.spawn(self.named[stream].serve)
            self._feeds.append(feed)
        return self.named[stream]

    async def close(self, stream: str) -> None:
        """End the writer of a stream, as the daemon does before a deletion."""
        writer = self.named.pop(stream, None)
        if writer is not None:
            writer.mailbox.close()
            await self.settle(60)
            assert self.disk.died or writer.opened is None

    def end(self) -> None:
        """Leave nothing behind that touches the disk of the next life."""
        super().end()
        for feed in self._feeds:
            feed.detach()
        for writer in self.named.values():
            writer._files.opened = writer._files._aside = None


class SuccessionSimulation(Simulation):
    """One seed of the world `successors`."""

    lives = 4
    keys_max = 4

    def __init__(self, seed: int, world: World, disk: SimulatedDisk | None = None) -> None:
        # Of the names of a folder each may survive a power cut by itself.
        disk = disk or SimulatedDisk(
            seed, names_in_order=seed % 4 == 0, ignore_folder_fsync=world.ignore_folder_fsync
        )
        super().__init__(seed, world, disk)
        self.disk.foreign.make_folder(PATH)
        self.disk.sync_all()
        self._trees = SessionFolders(Config(Path("/disk"), Path("/disk/socket")), self.disk)
        self._place = Place(SESSION, Path(PATH).parent, (Path(PATH).name,), shared=False)
        self._orders: list[Order] = []
        self._moved = set[str]()
        """The orders whose file got another name: their clients do not send them again."""
        self._deletions: dict[str, DeleteStream] = {}
        self._answers: dict[str, Deleted] = {}
        self._refused = set[str]()
        self._naming = Naming({name: [Life()] for name in NAMES})
        self._earlier: Naming | None = None
        """What a power cut may bring back: the last deletion is of unknown outcome."""
        self._last = ""

    # --- lives -----------------------------------------------------------------------------------

    def _begin_life(self, tasks: TaskGroup) -> tuple[StreamWriters, int]:
        steps = self._chance.randint(5, STEPS)
        desk = self._start(tasks)
        call, moment = self._chance.randint(0, 150), self._chance.choice(MOMENTS)
        self._plan_death(self._chance.random(), call, DEATH_SHARES, moment)
        return desk, steps

    def _start(self, tasks: TaskGroup) -> StreamWriters:
        desk = StreamWriters(self.disk, tasks, self.wall_s)
        desk.spawn(desk.writer.serve)
        self._trees.failed_syncs = desk.failed_syncs
        return desk

    async def _drain(self, daemon: StreamWriters) -> None:
        if self._chance.random() < 0.5:
            for name in NAMES:
                await daemon.close(name)

    def _kill(self, daemon: StreamWriters) -> None:
        lose_answers(self._orders)
        survival = None
        if not self.disk.died:
            self.disk._death = PowerCut
            survival = None if self.world.power_cuts else Survival.KEPT
        was_cut = self.disk._death is PowerCut
        self.disk.restart(survival)
        daemon.end()
        self.disk.heal()
        if was_cut:
            self._lose_power()
        self._check_files()

    def _lose_power(self) -> None:
        if self._earlier is not None and self._last not in self._keys_on_disk():
            self._naming = self._earlier
        self._earlier = None

    # --- steps -----------------------------------------------------------------------------------

    async def _step(self, daemon: StreamWriters) -> None:
        chance = self._chance
        self.wall_s += chance.choice([0.0, 1.0, 10.0])
        daemon.wall_s = self.disk.now_s = self.wall_s
        if self.world.faults and chance.random() < 0.25:
            inject(self.disk, chance, FAULTS, [paths.stream_file(name) for name in NAMES])
        if daemon.writer.opened is None:
            await daemon.open_context()
        drawn = chance.random()
        if drawn < 0.5:
            await self._append(daemon, self._choose_order())
        elif drawn < 0.8:
            self._disturb(12)
            await self._delete(daemon, self._choose_deletion())
        elif drawn < 0.9:
            self._read(daemon, chance.choice(NAMES))
        elif drawn < 0.95:
            await daemon.close(chance.choice(NAMES))
        else:
            with suppress(OSError):
                self._collect()
        if not self.disk.died:
            self._check_files()

    def _disturb(self, calls: int) -> None:
        """Let a death or a fault meet a deletion within so many calls."""
        chance = self._chance
        drawn, call, moment = chance.random(), chance.randint(0, calls), chance.choice(MOMENTS)
        if drawn < 0.15:
            self._plan_death(chance.random(), call, (0.7, 1.0), moment)
        elif drawn < 0.3 and self.world.faults:
            inject(self.disk, chance, [Fault.CALL, Fault.NAME, Fault.NAME], [paths.CONTEXT])

    # --- appends ---------------------------------------------------------------------------------

    def _choose_order(self) -> Order:
        chance = self._chance
        again = [order for order in waiting(self._orders) if order.key not in self._moved]
        durable = [order for order in done(self._orders) if self._is_answered_still(order)]
        drawn = chance.random()
        if again and drawn < 0.4:
            return chance.choice(again)
        if durable and drawn < 0.55:
            return chance.choice(durable)
        number = len(self._orders)
        is_uuid = chance.random() < 0.7
        key = uuid7(int(self.wall_s * 1000), number) if is_uuid else f"job-{number}"
        name, parts = chance.choice(NAMES), range(chance.randint(1, 3))
        records = [b'{"n":%d,"part":%d,"text":"%s"}' % (number, each, b"x" * 40) for each in parts]
        order = Order(AppendStream(session=SESSION, stream=name, key=key), records)
        self._orders.append(order)
        return order

    def _is_answered_still(self, order: Order) -> bool:
        if order.key in self._moved:
            return False
        naming = self._naming
        kept = [life for life in naming.lives[_stream_of(order)] if order.key in life.acked]
        return any(naming.expiry.get(life, self.wall_s) >= self.wall_s for life in kept)

    async def _append(self, desk: StreamWriters, order: Order) -> None:
        name = _stream_of(order)
        lives = self._naming.lives[name]
        lives[-1].tried[order.key] = order
        command = order.next_copy()
        assert isinstance(command, AppendStream)
        order.tries += 1
        known = len(order.replies)
        with suppress(StenoError):
            order.copies.append(desk.append(command, order.records))
        await desk.settle(40)
        order.take_answers()
        if len(order.replies) == known:
            return
        assert len({ack.first for ack in order.acks}) == 1, f"{order.key}: {order.acks}"
        assert sum(not ack.duplicate for ack in order.acks) <= 1, f"{order.key} was applied twice"
        first = Position.parse(order.acks[0].first)
        lives[first.generation].acked[order.key] = first.line
        if name in _streams_of(self._deletions.get(self._last)):
            # It was put into a file that has its name for good.
            self._earlier = None

    # --- deletions -------------------------------------------------------------------------------

    def _choose_deletion(self) -> DeleteStream:
        chance = self._chance
        if self._earlier is not None:
            return self._deletions[self._last]
        known = [each for each in self._deletions.values() if self._is_known(each)]
        if known and chance.random() < 0.25:
            return chance.choice(known)
        key = f"delete-{len(self._deletions)}"
        there = [each for each in NAMES if self._naming.lives[each][-1].acked]
        is_blind = chance.random() < 0.1
        name, *others = NAMES if is_blind or not there else chance.sample(there, len(there))
        other = others[0] if others and chance.random() < 0.8 else None
        lives, expect = self._naming.lives[name], None
        if chance.random() < 0.4:
            expect = str(Position(len(lives) - 1, _acked_count(lives[-1])))
        return DeleteStream(session=SESSION, stream=name, key=key, expect=expect, successor=other)

    def _is_known(self, command: DeleteStream) -> bool:
        """Whether a deletion was not applied, or its file has not expired."""
        if command.key not in self._answers:
            return command.key not in self._naming.keys | self._refused
        return self._answers[command.key].expires_at >= self.wall_s

    async def _delete(self, desk: StreamWriters, command: DeleteStream) -> None:
        """Delete a stream as the daemon does."""
        before, self._deletions[command.key] = self._naming, command
        after = before.after(command, self.wall_s)
        is_applied = command.key in before.keys
        try:
            answer = await self._answer(desk, command)
        except (Conflict, NotFound) as error:
            assert not is_applied, f"{command.key} was applied, and is refused now"
            self._check_refusal(command, error)
            self._refused.add(command.key)
        except OutcomeUnknown:
            pass
        except OSError:
            is_there = command.key in self._keys_on_disk()
            assert is_applied or not is_there, f"{command.key} failed, and was applied"
        else:
            if answer is None:
                return
            assert command.key in self._keys_on_disk(), f"{command.key} was answered, and is not"
            assert self._answers.setdefault(command.key, answer) == answer
            self._name(command, after)
            self._earlier = None
            return
        finally:
            if command.key in self._keys_on_disk():
                self._name(command, after)

    def _name(self, command: DeleteStream, after: Naming) -> None:
        """Note that a deletion was applied, be it for good or not."""
        if command.key in self._naming.keys:
            return
        lives = self._naming.lives
        # Neither does a client go on whose stream is another one's generation now.
        for name in filter(None, [command.successor]):
            self._moved.update(lives[name][-1].tried)
        self._earlier, self._naming, self._last = self._naming, after, command.key

    async def _answer(self, desk: StreamWriters, command: DeleteStream) -> Deleted | None:
        """Its answer; None if it was not asked for."""
        found = self._find(command)
        if found is not None:
            return found
        for name in _streams_of(command):
            with suppress(Busy):
                await desk.open_stream(name)
            await desk.close(name)
        if self.disk.died or desk.writer.opened is None:
            return None
        found = self._find(command)
        if found is not None:
            return found
        self._disturb(4)
        with self._trees.opened(self._place) as folder:
            return streams.discard(
                self.disk, folder, self._place, command, self.wall_s, EXPIRY_S, desk.failed_syncs
            )

    def _find(self, command: DeleteStream) -> Deleted | None:
        with self._trees.opened(self._place) as folder:
            return streams.find_deleted(self.disk, folder, self._place, command, EXPIRY_S)

    def _check_refusal(self, command: DeleteStream, error: StenoError) -> None:
        """A refused deletion had a reason."""
        lives = [self._naming.lives[name][-1] for name in _streams_of(command)]
        if isinstance(error, NotFound):
            assert not all(life.acked for life in lives), f"{command.key}: {error!r}"
            return
        head = Position(len(self._naming.lives[command.stream]) - 1, _acked_count(lives[0]))
        is_sure = len(lives[0].acked) == len(lives[0].tried)
        assert not is_sure or command.expect != str(head), f"{command.key}: {error!r}"

    def _collect(self) -> None:
        with self._trees.opened(self._place) as folder:
            going = streams.expired(self.disk, folder, self.wall_s, EXPIRY_S)
            streams.expire(self.disk, folder, going)

    # --- verdicts --------------------------------------------------------------------------------

    def _read(self, desk: StreamWriters, name: str) -> None:
        """Read a generation as a client does."""
        if not self.disk.has_file(f"{PATH}/{paths.CONTEXT}"):
            # There is no session yet.
            return
        generation = self._chance.randrange(len(self._naming.lives[name]))
        life, writer = self._naming.lives[name][generation], desk.named.get(name)
        try:
            if writer is not None and writer.opened is not None:
                view = writer.opened.log.view(generation)
            else:
                file = paths.stream_file(name)
                found = self._trees.readable_stream(self._place, file, generation, with_head=True)
                assert found.generation == generation
                view = found.view
        except NotFound:
            assert self._is_expired(life), f"{name}: generation {generation} is not there"
            return
        except OSError:
            # A fault of the disk, or an expired file of an open stream.
            return
        try:
            data = view.read(view.size, 0)
        except OSError:
            return
        finally:
            view.release()
        if not self._is_expired(life):
            self._check_life(f"{name}: reading {generation}", life, data)

    def _is_expired(self, life: Life) -> bool:
        return self._naming.expiry.get(life, self.wall_s) < self.wall_s

    def _files(self) -> Iterator[tuple[str, DeletedStream | None, bytes]]:
        """The streams and what deletions left behind, without what is void."""
        folder = self.disk.folder_at(PATH).cached
        for name in folder:
            stream, deleted = paths.stream_of(name), paths.deleted_stream_of(name)
            if (
                deleted is not None
                and folder.get(paths.stream_file(deleted.stream)) is folder[name]
            ):
                continue
            stream = stream if deleted is None else deleted.stream
            if stream is not None:
                yield stream, deleted, self.disk.content(f"{PATH}/{name}")

    def _keys_on_disk(self) -> set[str]:
        return {deleted.key for _, deleted, _ in self._files() if deleted is not None}

    def _check_files(self) -> None:
        """Each name stands for its life, and for no other one."""
        present, past, naming = dict[str, bytes](), dict[tuple[str, int], bytes](), self._naming
        for stream, deleted, data in self._files():
            if deleted is None:
                present[stream] = data
            else:
                assert deleted.key in naming.keys, f"{deleted.file} was refused"
                number = stream, deleted.number - 1
                assert number not in past, f"{deleted.file}: another one has its number"
                past[number] = data
        for name, lives in naming.lives.items():
            known = {number for stream, number in past if stream == name}
            count = len(lives) - 1
            assert known <= set(range(count)), f"{name}: {known}, {count} deletions"
            assert not count or count - 1 in known, f"{name}: the number of the stream is lost"
            self._check_life(name, lives[-1], _whole(present.get(name, b"")))
            for number, life in enumerate(lives[:-1]):
                if not self._is_expired(life):
                    found = past.get((name, number), b"")
                    self._check_life(f"{name}: generation {number}", life, _whole(found))

    def _check_life(self, where: str, life: Life, data: bytes) -> None:
        """Every acknowledged order is there where its ack says, and none of another stream."""
        lines, begun = data.splitlines(keepends=True), dict[str, int]()
        for number, line in enumerate(lines):
            stamp = stamp_of(line)
            assert stamp.key in life.tried, f"{where}: a record of another stream: {line!r}"
            if stamp.index == 0:
                assert stamp.key not in begun, f"{where}: {stamp.key} is there twice"
                begun[stamp.key] = number
            order = life.tried[stamp.key]
            assert begun[stamp.key] + stamp.index == number, f"{where}: {stamp} is not whole"
            assert public(record_of(line)) == json.loads(order.records[stamp.index])
        for key, line in life.acked.items():
            assert begun.get(key) == line, f"{where}: {key} was acked at {line}, is at {begun}"
            count = len(life.tried[key].records)
            assert len(lines) >= line + count, f"{where}: {key} is torn"

    async def _settle(self) -> None:
        self.wall_s += 1
        async with anyio.create_task_group() as tasks:
            desk = self._start(tasks)
            await desk.open_context()
            if self._earlier is not None:
                await self._delete(desk, self._deletions[self._last])
                assert self._earlier is None
            for order in self._orders:
                while order.fate is Fate.OPEN and order.key not in self._moved:
                    assert order.tries < 80
                    await self._append(desk, order)
            for name in NAMES:
                for _ in range(3):
                    self._read(desk, name)
                await desk.close(name)
            desk.writer.mailbox.close()
            await desk.settle(20)
            tasks.cancel_scope.cancel()
        self.disk.crash(Survival.LOST)

    def _judge(self) -> None:
        self._check_files()
        applied: list[str] = []
        for _, _, data in self._files():
            applied += [
                stamp_of(line).key
                for line in _whole(data).splitlines()
                if stamp_of(line).index == 0
            ]
        assert len(applied) == len(set(applied)), "a record is in two files"
        self.wall_s += 2 * EXPIRY_S
        self._collect()
        self.disk.crash(Survival.LOST)
        self._check_files()


def _stream_of(order: Order) -> str:
    assert isinstance(order.command, AppendStream)
    return order.command.stream


def _streams_of(command: DeleteStream | None) -> list[str]:
    return [] if command is None else [each for each in (command.stream, command.successor) if each]


def _acked_count(life: Life) -> int:
    ends = [line + len(life.tried[key].records) for key, line in life.acked.items()]
    return max(ends, default=0)


def _whole(data: bytes) -> bytes:
    """The whole batches of a file: a torn one at its end is no record yet."""
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    stamps = list(itertools.takewhile(lambda stamp: stamp.key, map(_stamp_of, lines)))
    while stamps and stamps[-1].index < stamps[-1].count - 1:
        stamps.pop()
    return b"".join(lines[: len(stamps)])


def _stamp_of(line: bytes) -> Stamp:
    return parse_stamp(record_of(line, has_foreign=True).get("_id", "")) or Stamp("")
