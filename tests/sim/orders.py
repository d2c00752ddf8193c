"""The commands that simulated clients ask for, and the known outcome of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from msgspec.structs import replace

from steno._sansio.pending import Pending
from steno_protocol import commands
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Conflict,
    Exists,
    Expired,
    Held,
    NotFound,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    StorageFailed,
)
from steno_protocol.paths import key_time_ms
from steno_protocol.replies import Ack
from support.writing import Sent

Change = commands.Mutation | commands.Delete | commands.Fork | commands.Rename | commands.Undelete

REWRITES = (
    commands.RevertTo,
    commands.Clear,
    commands.RestoreGeneration,
    commands.CompactCommit,
    commands.DeliverDmail,
)
"""Commands that always replace the context file; a system prompt may."""

REFUSALS = (Conflict, NotFound, BadRequest, Exists)
"""Errors of a writer that will not change when the command is sent again."""


class Fate(Enum):
    """The outcome of an order, as its client knows it."""

    OPEN = auto()
    """It may have been applied or not."""
    WRITTEN = auto()
    """It was acknowledged as written: a power cut may take it."""
    DONE = auto()
    REFUSED = auto()
    GONE = auto()
    """Its session was deleted, and its outcome with it."""


@dataclass(eq=False, slots=True)
class Order:
    """One command that a client wants applied exactly once.

    Attributes:
        command: as it is first sent.
        records: the record frames that belong to it.
        gives_up: the client drops it at the first definite failure.
        tries: how often it was sent.
        replies: every reply, oldest first.
        error: the last error.
        copies: its copies in the mailbox of a writer.
        pending: its call, under way from an agent to the daemon.
        after: the same agent's last durable order in the session's other file when it drew this.
        lines: its lines in the files, once it was acknowledged beside another program.
        is_lost: another program destroyed its lines.
        is_unknown: the daemon that lives now answered `unknown`.
    """

    command: Change
    records: Sequence[bytes]
    gives_up: bool = False
    fate: Fate = Fate.OPEN
    tries: int = 0
    replies: list[Any] = field(default_factory=list[Any])
    error: StenoError | None = None
    copies: list[Sent] = field(default_factory=list[Sent])
    pending: Pending | None = None
    after: "Order | None" = None
    lines: list[bytes] = field(default_factory=list[bytes])
    is_lost: bool = False
    is_unknown: bool = False

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return self.command.key

    @property
    def session(self) -> str:
        """The session that it changes."""
        return self.command.session

    @property
    def acks(self) -> list[Ack]:
        """The acks that say `synced`."""
        return [each for each in self.replies if isinstance(each, Ack) and _is_synced(each)]

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was acknowledged, be it only as written."""
        return self.fate in (Fate.DONE, Fate.WRITTEN)

    @property
    def is_under_way(self) -> bool:
        """Whether a copy of it has no reply yet."""
        return bool(self.copies) or self.pending is not None

    @property
    def is_event(self) -> bool:
        """Whether it belongs to the wire file."""
        return isinstance(self.command, commands.AppendWire)

    @property
    def is_stream(self) -> bool:
        """Whether it belongs to a stream."""
        return isinstance(self.command, commands.AppendStream)

    @property
    def is_mail(self) -> bool:
        """Whether it sends a D-Mail: a line of the timeline."""
        return isinstance(self.command, commands.SendDmail)

    def repeated(self, *, repeat: bool) -> commands.Mutation:
        """The command as it is sent again."""
        assert isinstance(self.command, commands.Mutation)
        return replace(self.command, repeat=repeat)

    def next_copy(self) -> commands.Mutation:
        """The command as its client sends it now.

        It has `repeat` only where the daemon needs it: a key of another shape than steno's own does
        without, and the daemon knows what it answered `unknown` itself.
        """
        has_time = key_time_ms(self.key) is not None
        is_known = self.is_unknown and self.fate is Fate.OPEN
        return self.repeated(repeat=self.tries > 0 and has_time and not is_known)

    def acknowledge(self, reply: Any) -> None:
        """Take a reply."""
        self.replies.append(reply)
        if not isinstance(reply, Ack) or _is_synced(reply):
            self.fate = Fate.DONE
        elif self.fate is Fate.OPEN:
            self.fate = Fate.WRITTEN

    def is_refused_by(self, error: StenoError) -> bool:
        """Whether a writer's error ends the order."""
        is_failure = isinstance(error, (StorageFailed, Expired))
        return isinstance(error, REFUSALS) or (is_failure and self.gives_up)

    def take_answers(self) -> None:
        """Read the answers once all copies have one; an ack of any of them is what counts."""
        answers = [copy.answer for copy in self.copies if copy.answer is not None]
        if not answers or len(answers) < len(self.copies):
            return
        self.copies = []
        for answer in answers:
            if isinstance(answer, Ack):
                self.acknowledge(answer)
        for answer in answers:
            if isinstance(answer, StenoError) and len(answers) == 1:
                self._take_error(answer)

    def _take_error(self, error: StenoError) -> None:
        if isinstance(error, (OutcomeUnknown, Busy, ShuttingDown, Held)):
            # Its client sends it again, to the owner of the session if that is another daemon.
            self.is_unknown |= isinstance(error, OutcomeUnknown)
            return
        assert isinstance(error, (*REFUSALS, StorageFailed, Expired)), f"{self.key}: {error!r}"
        assert self.fate is not Fate.DONE, f"{self.key} was acked, and now {error!r}"
        if self.is_refused_by(error):
            self.fate = Fate.REFUSED


def waiting(orders: Iterable[Order]) -> list[Order]:
    """The orders of unknown outcome that are not under way: a client would send them again."""
    return [each for each in orders if each.fate is Fate.OPEN and not each.is_under_way]


def done(orders: Iterable[Order]) -> list[Order]:
    """The durable orders that are not under way."""
    return [each for each in orders if each.fate is Fate.DONE and not each.is_under_way]


def lose_answers(orders: Iterable[Order]) -> None:
    """The daemon is gone: acks that it gave count, and nothing else is answered any more."""
    for order in orders:
        order.is_unknown = False
        order.copies = [copy for copy in order.copies if isinstance(copy.answer, Ack)]
        order.take_answers()


def _is_synced(ack: Ack) -> bool:
    return ack.durability == "synced"
