"""Simulated clients: what each wants done, how it repeats itself, and what it was told."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from steno_protocol.commands import (
    Clear,
    CompactCommit,
    DeliverDmail,
    Mutation,
    RestoreGeneration,
    RevertTo,
    SendDmail,
    WriteSystemPrompt,
)
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Conflict,
    Exists,
    Expired,
    NotFound,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    StorageFailed,
)
from steno_protocol.events import AnyEvent, DmailEvent, Gone, Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Compaction
from stenod.feed.feed import Subscriber
from support import lines
from support.writing import Sent

Make = Callable[[bool], Mutation]
Build = Callable[..., Mutation]

_WEIGHTS = {
    "append": 10, "batch": 6, "call": 3, "result": 3, "checkpoint": 5, "usage": 2, "prompt": 1,
    "revert": 3, "clear": 1, "restore": 1, "compact": 4, "mail": 3, "deliver": 4,
}  # fmt: skip


class Fate(Enum):
    """What a client believes of its order."""

    OPEN = "open"
    DONE = "done"
    WRITTEN = "written"
    REFUSED = "refused"


@dataclass(eq=False, slots=True)
class Order:
    """One command that a client wants applied exactly once.

    Attributes:
        make: builds the command; True for a repeat.
        records: what comes with it.
        acks: every synced answer; all must be the same.
        tries: how often it was sent.
        copies: what is under way of it.
        gives_up: leave it at the first definite failure.
    """

    key: str
    make: Make
    records: Sequence[bytes]
    gives_up: bool
    fate: Fate = Fate.OPEN
    acks: list[Ack] = field(default_factory=list[Ack])
    tries: int = 0
    copies: list[Sent] = field(default_factory=list[Sent])

    @property
    def command(self) -> Mutation:
        """The command as it is first sent."""
        return self.make(False)

    def take_answer(self) -> None:
        """Read the answers once all copies have one; an ack of any of them is what counts."""
        answers = [copy.answer for copy in self.copies if copy.answer is not None]
        if not answers or len(answers) < len(self.copies):
            return
        self.copies = []
        for answer in answers:
            if isinstance(answer, Ack):
                self._take_ack(answer)
        for answer in answers:
            if isinstance(answer, StenoError) and len(answers) == 1:
                self._take_error(answer)

    def _take_ack(self, ack: Ack) -> None:
        if ack.durability == "synced":
            self.acks.append(ack)
            self.fate = Fate.DONE
        elif self.fate is Fate.OPEN:
            self.fate = Fate.WRITTEN

    def _take_error(self, error: StenoError) -> None:
        match error:
            case OutcomeUnknown() | Busy() | ShuttingDown():
                return
            case Conflict() | NotFound() | BadRequest() | Exists():
                is_refused = True
            case StorageFailed() | Expired():
                is_refused = self.gives_up
            case _:
                raise AssertionError(f"{self.key}: {error!r}")
        assert self.fate is not Fate.DONE, f"{self.key} was acked, and now {error!r}"
        if is_refused:
            self.fate = Fate.REFUSED


class Orders:
    """Draws the orders of all clients.

    Args:
        chance: decides everything.
        wall_s: the clients' clock.
    """

    def __init__(self, chance: random.Random, wall_s: Callable[[], float]) -> None:
        self._chance = chance
        self._wall_s = wall_s
        self.all: list[Order] = []
        self.begun: list[Compaction] = []

    def draw(self, head: Position) -> Order:
        """One more order of a client that last saw the session end at `head`."""
        chance = self._chance
        number = len(self.all)
        key = (
            lines.uuid7(int(self._wall_s() * 1000), number)
            if chance.random() < 0.7
            else f"job-{number}"
        )
        expect = str(head) if chance.random() < 0.1 else None
        durability = "written" if chance.random() < 0.2 else "synced"
        how = {"expect": expect, "durability": durability, "by": chance.choice([None, "planner"])}
        kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        build, records = self._draw_lines(kind, number) or self._draw_rest(kind, number, head)

        def make(repeat: bool) -> Mutation:
            return build(key, repeat=repeat, **how)

        order = Order(key, make, records, gives_up=chance.random() < 0.3)
        self.all.append(order)
        return order

    def _draw_lines(self, kind: str, number: int) -> tuple[Build, list[bytes]] | None:
        """What an order of this kind appends, None if it appends no messages."""
        match kind:
            case "append":
                return lines.append, [lines.user(f"{number}")]
            case "batch":
                count = self._chance.randint(2, 5)
                texts = [f"{number} {part}" * part for part in range(count)]
                return lines.append, [lines.user(text) for text in texts]
            case "call":
                calls = [{"id": f"t{number % 2}", "type": "function"}]
                record = {"role": "assistant", "content": None, "tool_calls": calls}
                return lines.append, [lines.line(record)[:-1]]
            case "result":
                record = {"role": "tool", "content": "ok", "tool_call_id": f"t{number % 2}"}
                return lines.append, [lines.line(record)[:-1]]
            case _:
                return None

    def _draw_rest(self, kind: str, number: int, head: Position) -> tuple[Build, list[bytes]]:
        """What an order of this kind asks for, and the record that comes with it."""
        chance = self._chance
        match kind:
            case "compact":
                cut, at, own = self._draw_compaction(head)
                build = partial(lines.compact, cut=cut, at=at, checkpoint_id=own)
                return build, [lines.user(f"summary {number}")]
            case "mail":
                return partial(lines.mail, checkpoint_id=chance.choice([0, 0, 1, 2, 4])), []
            case "deliver":
                mail_id, shown = self._draw_mail(), chance.random() < 0.5
                return partial(lines.deliver, mail_id=mail_id, add_user_message=shown), []
            case "checkpoint":
                return partial(lines.checkpoint, add_user_message=chance.random() < 0.5), []
            case "usage":
                return partial(lines.usage, token_count=number), []
            case "prompt":
                return partial(lines.prompt, text=f"prompt {number}"), []
            case "revert":
                return partial(lines.revert, checkpoint_id=chance.randint(0, 3)), []
            case "clear":
                return lines.clear, []
            case _:
                return partial(lines.restore, generation=chance.randint(0, 3)), []

    def _draw_compaction(self, head: Position) -> tuple[str, str, int]:
        """Cut, end and id as a compactor was told them, now or long ago; sometimes made up."""
        chance = self._chance
        if not self.begun or chance.random() < 0.05:
            cut = Position(head.generation, chance.randint(0, head.line + 1))
            return str(cut), str(head), chance.randint(0, 9)
        told = self.begun[-1] if chance.random() < 0.8 else chance.choice(self.begun)
        return told.cut, told.at, told.checkpoint_id

    def _draw_mail(self) -> str:
        """A mail that a client knows of, the latest most of the time."""
        mails = [order for order in self.all if is_mail(order)]
        known = [order.key for order in mails if order.fate is Fate.DONE]
        if not known or self._chance.random() < 0.1:
            return mails[-1].key if mails else "nobody"
        return known[-1] if self._chance.random() < 0.8 else self._chance.choice(known)

    def waiting(self) -> list[Order]:
        """Those that a client would send again now."""
        return [order for order in self.all if order.fate is Fate.OPEN and not order.copies]

    def take_answers(self) -> None:
        """Read every answer that has come."""
        for order in self.all:
            order.take_answer()

    def lose_answers(self) -> None:
        """The daemon is gone: what is on its way has no answer any more."""
        for order in self.all:
            order.copies = [copy for copy in order.copies if isinstance(copy.answer, Ack)]
        self.take_answers()


class Follower:
    """A subscriber that checks each event against the last one, and keeps every line it saw."""

    def __init__(self, position: Position, *, from_start: bool) -> None:
        self.position = position
        self.incarnation = ""
        self.seen: dict[Position, bytes] = {}
        self.mail: DmailEvent | None = None
        self.subscriber: Subscriber | None = None
        self._present: list[bytes] | None = [] if from_start else None

    def send(self, event: AnyEvent, block: bytes | None) -> bool:
        """What its `Subscriber` sends with."""
        match event:
            case Records():
                self._take_records(event, block or b"")
            case Reset():
                self._take_reset(event)
            case Live():
                assert Position.parse(event.head) == self.position
            case DmailEvent():
                self.mail = event
            case Lagged() | Gone():
                self.subscriber = None
        return True

    def _take_records(self, event: Records, block: bytes) -> None:
        generation, line = self.position
        found = block.splitlines(keepends=True)
        assert Position.parse(event.first) == self.position, f"{event} after {self.position}"
        assert Position.parse(event.next) == Position(generation, line + len(found))
        for number, data in enumerate(found, line):
            self.seen[Position(generation, number)] = data
        if self._present is not None:
            self._present += found
        self.position = Position.parse(event.next)

    def _take_reset(self, event: Reset) -> None:
        generation, line = self.position
        is_over = event.why == "foreign" and event.kept == 0
        assert is_over or event.generation == generation + 1, f"{event} after {self.position}"
        assert event.kept <= line or is_over
        if self._present is not None:
            del self._present[event.kept :]
            for number, data in enumerate(self._present):
                self.seen[Position(event.generation, number)] = data
        self.position = Position(event.generation, event.kept)


def is_rewrite(order: Order) -> bool:
    """True for an order that replaces the file; a prompt may."""
    kinds = (RevertTo, Clear, RestoreGeneration, CompactCommit, DeliverDmail)
    return isinstance(order.command, kinds)


def is_mail(order: Order) -> bool:
    """True for an order that sends a D-Mail: a line of the timeline."""
    return isinstance(order.command, SendDmail)


def is_prompt(order: Order) -> bool:
    """True for an order that is a line or a rewrite, as the session happens to be."""
    return isinstance(order.command, WriteSystemPrompt)
