"""Simulated agents: the client's exchange, mirrors and readers, and what became of each order."""

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from sim.network import UNDER_WAY_MAX, Connection
from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno._sansio.requests import mutation, result_of
from steno.values import DmailEvent, File, Live, RecordsEvent, Reset
from steno_protocol import commands, replies
from steno_protocol.errors import ErrorCode, Outcome, StenoError, Unreachable
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.version import PROTOCOL_VERSION
from support.lines import user, uuid7

SESSIONS = ["a", "b", "a/sub"]


class Fate(enum.Enum):
    """What an order ended with, as its agent was told."""

    OPEN = enum.auto()
    DONE = enum.auto()
    REFUSED = enum.auto()
    GONE = enum.auto()
    """Its session was deleted, and with it the answer."""


@dataclass(eq=False)
class Order:
    """One command, repeated with its key until it is known what became of it."""

    command: commands.Command
    records: Sequence[bytes]
    key: str
    session: str
    pending: Pending | None = None
    fate: Fate = Fate.OPEN
    tries: int = 0
    answers: list[Any] = field(default_factory=list[Any])
    error: StenoError | None = None
    after: "Order | None" = None
    """What the same agent had done in the session's other file when it drew this."""


@dataclass(eq=False)
class Watcher:
    """A subscription that keeps the lines of what it was told, and checks that they follow.

    Attributes:
        mail: what it was told last of a D-Mail.
        mail_name: the attempt that told it so.
    """

    follower: Follower
    generation: int | None = None
    lines: list[bytes] = field(default_factory=list[bytes])
    mail: DmailEvent | None = None
    mail_name: str | None = None

    def take_in(self, exchange: Exchange, now_s: float) -> None:
        """Take what has come, and grant credit for it."""
        while self.follower.inbox:
            match self.follower.pop():
                case RecordsEvent() as event:
                    found = split_lines(event.block)
                    if self.generation is None:
                        self.generation = event.first.generation
                    place = Position(self.generation, len(self.lines))
                    assert event.first == place, f"{event.first} after {place}"
                    assert event.next.line == event.first.line + len(found)
                    self.lines += found
                case Reset() as event:
                    assert event.kept <= len(self.lines), f"{event} after {len(self.lines)} lines"
                    del self.lines[event.kept :]
                    self.generation = event.generation
                case Live() as event:
                    if self.generation is None:
                        self.generation = event.head.generation
                case DmailEvent() as event:
                    self.mail, self.mail_name = event, self.follower.name
            exchange.consumed(self.follower, now_s)


@dataclass(eq=False)
class Reading:
    """A session that is read block by block.

    Attributes:
        done_before: what was known to be done when it began.
    """

    session: str
    reader: LineReader
    done_before: Sequence[Order] = ()
    pending: Pending | None = None
    lines: list[tuple[Position, bytes]] = field(default_factory=list[tuple[Position, bytes]])
    is_over: bool = False


class Agent:
    """One client process, with a clock of its own.

    Attributes:
        orders: every change that it asked for.
        mirrors: the sessions whose history it follows.
        watchers: its plain subscriptions.
        connection: None while it has none.
        under_way_max: messages that its connections take in one direction.
    """

    under_way_max = UNDER_WAY_MAX

    def __init__(self, name: str, chance: random.Random, ahead_s: float) -> None:
        self.name = name
        self.orders: list[Order] = []
        self.mirrors: dict[str, Mirror] = {}
        self.watchers: list[Watcher] = []
        self.readings: list[Reading] = []
        self.connection: Connection | None = None
        self.exchange = Exchange(commands.Hello(protocol=PROTOCOL_VERSION, name=name))
        self._chance = chance
        self._ahead_s = ahead_s
        self._connections = 0

    def now(self, now_s: float) -> float:
        """Its own monotonic clock."""
        return now_s + self._ahead_s

    # --- the connection --------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Make a connection and greet the daemon on it."""
        self._connections += 1
        identity = f"{self.name}-{self._connections}".encode()
        self.connection = Connection(identity, self.exchange, self.name, self.under_way_max)
        return self.connection

    def hang_up(self) -> None:
        """The connection is lost with all that is under way."""
        self.connection = None
        self.exchange.disconnected("the connection was lost")

    def step(self, now_s: float) -> None:
        """What its loop does: clocks, sends, and what has come."""
        self.exchange.tick(self.now(now_s))
        for watcher in self.watchers:
            watcher.take_in(self.exchange, self.now(now_s))
        for mirror in self.mirrors.values():
            self.exchange.consumed(mirror.follower, self.now(now_s))
        for order in self.orders:
            self._look_at(order)
        for reading in self.readings:
            self._read_on(reading, now_s)
        if self.connection is not None:
            self.connection.flush()

    # --- orders ----------------------------------------------------------------------------------

    def give(self, order: Order, now_s: float, timeout_s: float) -> None:
        """Ask for a change, or ask again with its key."""
        order.tries += 1
        command = order.command
        if order.tries > 1 and isinstance(command, commands.Mutation):
            command = mutation_again(command)
        order.pending = self.exchange.submit(
            command, order.records, nothing, self.now(now_s), timeout_s
        )

    def _look_at(self, order: Order) -> None:
        pending = order.pending
        if pending is None or not pending.is_done:
            return
        order.pending = None
        try:
            reply, _ = result_of(pending, replies.Reply)
        except StenoError as error:
            order.error = error
            if isinstance(error, Unreachable) and order.tries > 1:
                # It was never sent; what became of the call before it is as unknown as it was.
                return
            if error.outcome is not Outcome.UNKNOWN:
                order.fate = Fate.REFUSED
            elif error.code is ErrorCode.NOT_FOUND:
                order.fate = Fate.GONE
            return
        order.answers.append(reply)
        order.fate = Fate.DONE

    def waiting(self) -> list[Order]:
        """Those of which it does not know what became of them, and that are not under way."""
        return [each for each in self.orders if each.fate is Fate.OPEN and each.pending is None]

    def open(self, session: str, now_s: float, *, create: bool = True) -> None:
        """Open a session, and make it when there is none."""
        command = commands.Open(session=session, create=create, by=self.name)
        self.exchange.submit(command, (), nothing, self.now(now_s), 30.0)

    # --- following and reading -------------------------------------------------------------------

    def mirror(self, session: str, now_s: float, timeout_s: float) -> None:
        """Follow a session's history."""
        if session in self.mirrors:
            self.exchange.unfollow(self.mirrors.pop(session).follower)
        mirror = self.mirrors[session] = Mirror(session)
        self.exchange.follow(mirror.follower, self.now(now_s), timeout_s)

    def watch(self, session: str, now_s: float, timeout_s: float, file: File = "context") -> None:
        """Subscribe to a session's file from its start."""
        window = self._chance.choice([1100, 4000, 1 << 20])
        watcher = Watcher(Follower(session, "start", nothing, file=file, window=window))
        self.watchers.append(watcher)
        self.exchange.follow(watcher.follower, self.now(now_s), timeout_s)

    def read(self, session: str) -> None:
        """Begin to read a session's present generation."""
        self.readings.append(Reading(session, LineReader(session, None)))

    def _read_on(self, reading: Reading, now_s: float) -> None:
        if reading.is_over:
            return
        if reading.pending is None:
            command = reading.reader.next_command()
            if command is None:
                reading.lines = list(reading.reader.lines)
                reading.is_over = True
                return
            bytes_max = self._chance.choice([1, 300, 100_000])
            reading.pending = self.exchange.submit(
                replace(command, bytes_max=bytes_max), (), nothing, self.now(now_s), 30.0
            )
        elif reading.pending.is_done:
            try:
                reply, block = result_of(reading.pending, replies.Reply)
            except StenoError:
                reading.is_over = True
            else:
                assert isinstance(reply, replies.Lines)
                reading.reader.take(reply, block)
            reading.pending = None


def mutation_again(command: commands.Mutation) -> commands.Mutation:
    """A change as a caller repeats it with its key."""
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    for known in ("session", "by", "key", "expect", "durability", "repeat", "deadline_ms"):
        fields.pop(known)
    return mutation(
        type(command), command.session, command.by or "", command.key, command.expect,
        command.durability, **fields,
    )  # fmt: skip


Build = Callable[[str, str, str], tuple[commands.Command, list[bytes]]]


class Drawing:
    """Draws what the agents ask for."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0

    def draw(self, agent: Agent, wall_s: float) -> Order:
        """A change of some session, with a key that is made now."""
        self._number += 1
        number = self._number
        key = uuid7(int(wall_s * 1000), number)
        session = self._chance.choice(SESSIONS)
        drawn = self._chance.random()
        if drawn < 0.07:
            command: commands.Command = commands.Delete(session=session, key=key, by=agent.name)
            return Order(command, [], key, session)
        if drawn < 0.11:
            new = f"fork-{number}"
            command = commands.Fork(session=session, new_session=new, key=key, by=agent.name)
            return Order(command, [], key, session)
        command, records = self._change(session, key, agent.name, number)
        return Order(command, records, key, session)

    def _change(
        self, session: str, key: str, by: str, number: int
    ) -> tuple[commands.Mutation, list[bytes]]:
        chance = self._chance
        expect = f"0:{chance.randint(0, 6)}" if chance.random() < 0.05 else None
        fields = {"session": session, "key": key, "by": by, "expect": expect}
        durability = "written" if chance.random() < 0.2 else "synced"
        match chance.choices(
            ["append", "batch", "checkpoint", "usage", "revert", "clear", "restore", "prompt"],
            [40, 15, 10, 8, 10, 4, 4, 4],
        )[0]:
            case "append":
                records = [user(f"{number}" * chance.choice([1, 30]))]
                return commands.Append(**fields, durability=durability), records
            case "batch":
                records = [user(f"{number} {part}") for part in range(chance.randint(2, 4))]
                return commands.Append(**fields, durability=durability), records
            case "checkpoint":
                return commands.Checkpoint(**fields, add_user_message=chance.random() < 0.5), []
            case "usage":
                return commands.UpdateTokenCount(**fields, token_count=number), []
            case "revert":
                return commands.RevertTo(**fields, checkpoint_id=chance.randint(0, 2)), []
            case "clear":
                return commands.Clear(**fields), []
            case "restore":
                return commands.RestoreGeneration(**fields, generation=chance.randint(0, 2)), []
            case _:
                return commands.WriteSystemPrompt(**fields, prompt=f"prompt {number}"), []


def nothing() -> None:
    """An agent looks for itself."""
