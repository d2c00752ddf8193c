"""Simulated agents: the client's exchange, its mirrors, readers and compactions, and orders."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from sim.network import UNDER_WAY_MAX, Connection
from sim.orders import Fate, Order
from steno._sansio.compaction import Begun, Compacting
from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno._sansio.past_state import PastReader
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno._sansio.requests import mutation, result_of
from steno._sansio.wire_events import WireReader
from steno.values import DmailEvent, File, Live, RecordsEvent, Reset
from steno_protocol import PROTOCOL_VERSION, commands, replies
from steno_protocol.blocks import split_lines
from steno_protocol.errors import ErrorCode, NotFound, Outcome, StenoError, Unreachable
from steno_protocol.positions import Position
from support.lines import user, uuid7

TIMEOUT_S = 30.0
THINKING_S = [0.0, 0.0, 0.5, 5.0]
"""How long a model takes for a summary."""

LEASES_MS = [60_000, 60_000, 400]


@dataclass(eq=False)
class Watcher:
    """A subscription that keeps the lines of its events, and checks that they follow each other.

    Attributes:
        mail: the last event of a D-Mail.
        mail_name: the attempt at a subscription that it came with.
    """

    follower: Follower
    generation: int | None = None
    lines: list[bytes] = field(default_factory=list[bytes])
    mail: DmailEvent | None = None
    mail_name: str | None = None

    def take_in(self, exchange: Exchange, now_s: float) -> None:
        """Take every event that has come, and grant credit for it."""
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
    """A file that is read block by block.

    Attributes:
        done_before: the orders that were known to be done when it began.
    """

    session: str
    reader: LineReader
    done_before: Sequence[Order] = ()
    pending: Pending | None = None
    lines: list[tuple[Position, bytes]] = field(default_factory=list[tuple[Position, bytes]])
    is_over: bool = False


@dataclass(eq=False)
class Summary:
    """A compaction from its beginning to its commit.

    Attributes:
        job: builds the client's commands and reads their replies.
        number: makes its text unique.
        thinks_s: how long the model takes.
        gives_up: it is aborted when the model is done.
        begun: the lines to summarise, once they are known.
        past: reads them.
        due: when the model is done.
    """

    job: Compacting
    number: int
    thinks_s: float
    gives_up: bool
    pending: Pending | None = None
    begun: Begun | None = None
    past: PastReader | None = None
    due: float = inf
    is_over: bool = False


@dataclass(eq=False)
class Look:
    """A question for the D-Mail that waits.

    Attributes:
        gone: mails that were known to wait no longer when it was asked.
        is_last: everything else had its reply before.
    """

    session: str
    pending: Pending
    gone: frozenset[str]
    is_last: bool = False


@dataclass(eq=False)
class Repeat:
    """One more copy of an order that was acknowledged long ago."""

    order: Order
    pending: Pending


class Agent:
    """One client process, with a clock of its own.

    Attributes:
        orders: every change that it asked for.
        mirrors: the sessions whose history it follows.
        watchers: its plain subscriptions.
        readings: every file that it began to read.
        compactions: every compaction that it began.
        looks: every question for a mail.
        repeats: every copy of an acknowledged order.
        connection: None while it has none.
        under_way_max: messages that its connections take in one direction.
    """

    def __init__(
        self, name: str, chance: random.Random, ahead_s: float, under_way_max: int = UNDER_WAY_MAX
    ) -> None:
        self.name = name
        self.orders: list[Order] = []
        self.mirrors: dict[str, Mirror] = {}
        self.watchers: list[Watcher] = []
        self.readings: list[Reading] = []
        self.compactions: list[Summary] = []
        self.looks: list[Look] = []
        self.repeats: list[Repeat] = []
        self.connection: Connection | None = None
        self.under_way_max = under_way_max
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
        """Lose the connection with all that is under way."""
        self.connection = None
        self.exchange.disconnected("the connection was lost")

    def step(self, now_s: float) -> None:
        """Run its loop once: clocks, events, replies, and sends."""
        for summary in self.compactions:
            if not summary.is_over:
                self._go_on(summary, now_s)
        self.exchange.tick(self.now(now_s))
        for watcher in self.watchers:
            watcher.take_in(self.exchange, self.now(now_s))
        for mirror in self.mirrors.values():
            self.exchange.consumed(mirror.follower, self.now(now_s))
        for order in self.orders:
            self._take_reply(order)
        for reading in self.readings:
            self._read_on(reading, now_s)
        if self.connection is not None:
            self.connection.flush()

    # --- orders ----------------------------------------------------------------------------------

    def give(self, order: Order, now_s: float, timeout_s: float = TIMEOUT_S) -> None:
        """Ask for a change, or ask again with its key."""
        order.tries += 1
        command = order.command
        if order.tries > 1 and isinstance(command, commands.Mutation):
            command = _again(command)
        order.pending = self._ask(command, now_s, order.records, timeout_s)

    def repeat(self, now_s: float) -> None:
        """Send something once more that was acknowledged."""
        acknowledged = [
            order
            for order in self.orders
            if order.is_acknowledged and isinstance(order.command, commands.Mutation)
        ]
        if acknowledged:
            order = self._chance.choice(acknowledged)
            assert isinstance(order.command, commands.Mutation)
            pending = self._ask(_again(order.command), now_s, order.records)
            self.repeats.append(Repeat(order, pending))

    def _take_reply(self, order: Order) -> None:
        pending = order.pending
        if pending is None or not pending.is_done:
            return
        order.pending = None
        try:
            reply, _ = result_of(pending, replies.Reply)
        except StenoError as error:
            self._take_error(order, error)
        else:
            order.acknowledge(reply)

    def _take_error(self, order: Order, error: StenoError) -> None:
        order.error = error
        if isinstance(error, Unreachable) and order.tries > 1:
            # It was never sent; the outcome of the call before it is as unknown as it was.
            return
        if error.outcome is not Outcome.UNKNOWN:
            order.fate = Fate.REFUSED
        elif error.code is ErrorCode.NOT_FOUND:
            order.fate = Fate.GONE

    def known_gone(self) -> set[str]:
        """The mails that it knows to wait no longer."""
        return {
            order.command.mail_id
            for order in self.orders
            if order.is_acknowledged and isinstance(order.command, commands.DeliverDmail)
        }

    def _ask(
        self,
        command: commands.Command,
        now_s: float,
        records: Sequence[bytes] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> Pending:
        return self.exchange.submit(command, records, _nothing, self.now(now_s), timeout_s)

    # --- following and reading -------------------------------------------------------------------

    def open(self, session: str, now_s: float, *, create: bool = True) -> None:
        """Open a session, and make it when there is none."""
        self._ask(commands.Open(session=session, create=create, by=self.name), now_s)

    def look(
        self, session: str, now_s: float, gone: frozenset[str], *, is_last: bool = False
    ) -> None:
        """Ask which mail waits."""
        pending = self._ask(commands.PendingDmail(session=session), now_s)
        self.looks.append(Look(session, pending, gone, is_last))

    def mirror(self, session: str, now_s: float) -> None:
        """Follow a session's history."""
        if session in self.mirrors:
            self.exchange.unfollow(self.mirrors.pop(session).follower)
        mirror = self.mirrors[session] = Mirror(session)
        self.exchange.follow(mirror.follower, self.now(now_s), TIMEOUT_S)

    def watch(self, session: str, now_s: float, file: File = "context") -> None:
        """Subscribe to a session's file from its start."""
        window = self._chance.choice([1100, 4000, 1 << 20])
        watcher = Watcher(Follower(session, "start", _nothing, file=file, window=window))
        self.watchers.append(watcher)
        self.exchange.follow(watcher.follower, self.now(now_s), TIMEOUT_S)

    def read(self, session: str, done: Sequence[Order] = (), *, is_wire: bool = False) -> None:
        """Begin to read the present generation or the wire file of a session."""
        reader = WireReader(session, None) if is_wire else LineReader(session, None)
        self.readings.append(Reading(session, reader, done))

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
            reading.pending = self._ask(replace(command, bytes_max=bytes_max), now_s)
        elif reading.pending.is_done:
            try:
                reply, block = result_of(reading.pending, replies.Reply)
            except StenoError:
                reading.is_over = True
            else:
                assert isinstance(reply, replies.Lines)
                reading.reader.take(reply, block)
            reading.pending = None

    # --- compactions -----------------------------------------------------------------------------

    def compact(self, session: str, number: int, wall_s: float, now_s: float) -> None:
        """Begin a compaction."""
        chance = self._chance
        job = Compacting(
            session,
            self.name,
            uuid7(int(wall_s * 1000), number),
            chance.randint(1, 3),
            chance.choice(LEASES_MS),
        )
        summary = Summary(job, number, chance.choice(THINKING_S), chance.random() < 0.1)
        summary.pending = self._ask(job.begin, now_s)
        self.compactions.append(summary)

    def _go_on(self, summary: Summary, now_s: float) -> None:
        if summary.pending is not None:
            if not summary.pending.is_done:
                return
            self._take_lines(summary, summary.pending, now_s)
        if summary.is_over or summary.past is None:
            return
        command = summary.past.reader.next_command()
        if command is not None:
            summary.pending = self._ask(command, now_s)
        elif now_s >= summary.due:
            self._commit(summary, now_s)

    def _take_lines(self, summary: Summary, pending: Pending, now_s: float) -> None:
        summary.pending = None
        try:
            reply, block = result_of(pending, replies.Reply)
        except StenoError:
            summary.is_over = True
            return
        if summary.past is not None:
            assert isinstance(reply, replies.Lines)
            summary.past.reader.take(reply, block)
            summary.past.absorb()
            return
        assert isinstance(reply, replies.Compaction)
        summary.begun = summary.job.begun(reply)
        summary.is_over = summary.begun is None
        if summary.begun is not None:
            summary.past = summary.begun.past()
            summary.due = now_s + summary.thinks_s

    def _commit(self, summary: Summary, now_s: float) -> None:
        summary.is_over = True
        assert summary.begun is not None
        assert summary.past is not None
        if summary.gives_up or not _has_messages(summary.past):
            self._ask(summary.job.abort, now_s)
            return
        session, key = summary.job.begin.session, summary.job.key
        fields = summary.begun.commit_fields("", None)
        command = mutation(
            commands.CompactCommit, session, self.name, key, None, "synced", **fields
        )
        order = Order(command, [user(f"summary {summary.number}")])
        self.orders.append(order)
        self.give(order, now_s)


def _again(command: commands.Mutation) -> commands.Mutation:
    """A change as a caller repeats it with its key."""
    fields = {name: getattr(command, name) for name in command.__struct_fields__}
    for known in ("session", "by", "key", "expect", "durability", "repeat", "deadline_ms"):
        fields.pop(known)
    return mutation(
        type(command), command.session, command.by or "", command.key, command.expect,
        command.durability, **fields,
    )  # fmt: skip


def _has_messages(past: PastReader) -> bool:
    """False for a session that was deleted and made again while it was read, and has none yet."""
    try:
        return bool(past.state().history)
    except NotFound:
        return False


def _nothing() -> None:
    """Do nothing: an agent polls by itself."""
