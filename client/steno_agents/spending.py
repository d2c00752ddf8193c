"""The tokens of one session by day and model, added up as its records come; pure."""

from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from steno_agents.limits import RECENT_REQUESTS, SEEN_REQUESTS_MAX
from steno_agents.traces import Circumstances, Spent, Tokens, count_of
from steno_protocol.paths import UUID_CHARS, key_time_ms

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Counted(Protocol):
    """What tells the tokens in the records of one program."""

    stream: ClassVar[str]
    spending_marks: ClassVar[tuple[bytes, ...]]

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:
        """The model in a record."""
        ...

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The tokens of a request."""
        ...

    @classmethod
    def written_at(cls, record: dict[str, Any]) -> float | None:
        """The Unix time of a record."""
        ...


class OwnRecords:
    """The token counts in a context of steno itself, each of one request.

    Only their sums are known, and no model.
    """

    stream: ClassVar[str] = "steno"
    spending_marks: ClassVar[tuple[bytes, ...]] = (b'"_usage"',)

    @classmethod
    def circumstances(cls, record: dict[str, Any]) -> Circumstances:  # noqa: ARG003  # as others
        """Nothing: no record names a model."""
        return Circumstances()

    @classmethod
    def spent(cls, record: dict[str, Any]) -> Spent | None:
        """The count of a request; a fork and a rewrite keep its id."""
        if record.get("role") != "_usage":
            return None
        identity = record.get("_id")
        tokens = Tokens(unsplit=count_of(record, "token_count"))
        return Spent(tokens, identity if isinstance(identity, str) else None)

    @classmethod
    def written_at(cls, record: dict[str, Any]) -> float | None:
        """The time in the key of the command."""
        key = record.get("_id")
        at_ms = key_time_ms(key[:UUID_CHARS]) if isinstance(key, str) else None
        return None if at_ms is None else at_ms / 1000


class Cell(NamedTuple):
    """A day and a model; None is what no record names."""

    day: str | None
    model: str | None


class Sum(NamedTuple):
    """Requests and their tokens."""

    requests: int = 0
    tokens: Tokens = Tokens()

    def plus(self, requests: int, tokens: Tokens) -> "Sum":
        """Return the sum with more requests, or with fewer."""
        return Sum(self.requests + requests, self.tokens.plus(tokens, -1 if requests < 0 else 1))


class Seen:
    """The requests that were counted, and the account that counted each."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._last = 0

    def new_account(self) -> int:
        """Return a number for an account."""
        self._last += 1
        return self._last

    def owner(self, request: int) -> int | None:
        """Return the account that has counted a request; None if none has."""
        return self._owners.get(request)

    def note(self, request: int, account: int) -> None:
        """Note that an account has counted it; beyond a bound, copies count again."""
        if len(self._owners) < SEEN_REQUESTS_MAX or request in self._owners:
            self._owners[request] = account


class Account:
    """The tokens of one session.

    Args:
        counted: what tells the tokens in its records.
        seen: the requests of all sessions: a fork begins with a copy of another one's.

    Attributes:
        sums: requests and tokens by day and model.
    """

    def __init__(self, counted: type[Counted], seen: Seen) -> None:
        self.sums: dict[Cell, Sum] = {}
        self.counted: type[Counted] = counted
        self._seen = seen
        self._number = seen.new_account()
        self._numbers = {self._number}
        self._recent: OrderedDict[str, tuple[Cell, Tokens]] = OrderedDict()
        self._model: str | None = None
        self._at: float | None = None

    def restart(self) -> None:
        """Begin anew: the file of the session was rewritten."""
        self._number = self._seen.new_account()
        self._numbers.add(self._number)
        self.sums.clear()
        self._recent.clear()
        self._model = self._at = None

    def add(self, line: bytes, *, is_past: bool = False) -> None:
        """Read the next line.

        Args:
            line: a line of the session's file.
            is_past: it is of a past generation, whose lines the present one may have, too; without
                an id it is not counted.
        """
        if not any(mark in line for mark in self.counted.spending_marks):
            return
        try:
            record = _decode(line)
        except (msgspec.DecodeError, RecursionError):
            return
        self._model = self.counted.circumstances(record).model or self._model
        self._at = self.counted.written_at(record) or self._at
        spent = self.counted.spent(record)
        if spent is not None and (spent.identity is not None or not is_past):
            self._count(spent)

    def _count(self, spent: Spent) -> None:
        cell = Cell(day_of(self._at), spent.model or self._model)
        if spent.identity is not None and not self._is_new(spent, cell):
            return
        if spent.tokens.total:
            self._put(cell, 1, spent.tokens)

    def _is_new(self, spent: Spent, cell: Cell) -> bool:
        """Whether a request counts here; a part of it that was counted does so no more."""
        assert spent.identity is not None
        before = self._recent.pop(spent.identity, None)
        if before is not None:
            if before[1].total:
                self._put(before[0], -1, before[1])
        elif spent.is_unique:
            request = hash((self.counted.stream, spent.identity))
            owner = self._seen.owner(request)
            if owner is not None and (owner == self._number or owner not in self._numbers):
                return False
            self._seen.note(request, self._number)
        self._recent[spent.identity] = cell, spent.tokens
        if len(self._recent) > RECENT_REQUESTS:
            self._recent.popitem(last=False)
        return True

    def _put(self, cell: Cell, requests: int, tokens: Tokens) -> None:
        found = self.sums.get(cell, Sum()).plus(requests, tokens)
        if found.requests:
            self.sums[cell] = found
        else:
            del self.sums[cell]

    def on(self, day: str) -> Iterator[tuple[str | None, Sum]]:
        """Yield each model with its sum of a day."""
        for cell, found in self.sums.items():
            if cell.day == day:
                yield cell.model, found


def day_of(at: float | None) -> str | None:
    """Return the day of a Unix time in the zone of this machine; None beyond the calendar."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().date().isoformat()
    except (OverflowError, ValueError, OSError):
        return None
