"""A model of the journal in memory, with the faults that a cluster has.

stream = MemoryStream(seed=7, rates={Fault.LATE: 0.05})
journal = stream.join("host-1")
stream.partition("host-1")
stream.heal("host-1")
"""

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from errno import EMSGSIZE, ENOSPC

import anyio.lowlevel

from stenod_cluster import limits
from stenod_cluster.journal import (
    UNFENCED,
    Fenced,
    ForeignMessage,
    InDoubt,
    Journal,
    JournalLost,
    Kind,
    Marker,
    Message,
    Owner,
    Publication,
    host_of_notes,
    name_of_subject,
    subject_of_name,
)


class Fault(Enum):
    """What goes wrong with one call.

    Attributes:
        UNANSWERED: the message is stored, and the answer is lost.
        DROPPED: the message is lost, and nobody says so.
        LATE: the message is stored at some later time, if its fence still holds then.
        UNREACHED: no server is reached, and nothing is stored.
        STALE: `last` returns the message before the last one, if there is one.
    """

    UNANSWERED = auto()
    DROPPED = auto()
    LATE = auto()
    UNREACHED = auto()
    STALE = auto()


IN_DOUBT = (Fault.UNANSWERED, Fault.DROPPED, Fault.LATE)
UNPUBLISHED = (*IN_DOUBT, Fault.UNREACHED)


@dataclass
class MemoryStream:
    """The servers: all messages of all subjects.

    Attributes:
        seed: of the faults.
        rates: how often each fault comes, from 0 to 1.
        now: the clock of the servers.
        capacity: bytes of all bodies that they store.
        identity: of the stream; another one after it was made again.
        began: the sequence from which on it has it.
    """

    seed: int = 0
    rates: Mapping[Fault, float] = field(default_factory=dict[Fault, float])
    now: Callable[[], float] = lambda: 0.0
    capacity: int = 2**40
    identity: str = "stream-1"
    began: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._forced: dict[str, deque[Fault]] = defaultdict(deque)
        self._messages: dict[str, list[Message | int]] = {}
        self._late: list[Publication] = []
        self._sequence = 0
        self._parted: set[str] = set()
        self._hearers: list[tuple[str, Callable[[str, bytes], None]]] = []
        self._lock = threading.RLock()

    def join(self, host: str) -> "MemoryJournal":
        """The journal of a host."""
        return MemoryJournal(self, host)

    def partition(self, host: str) -> None:
        """Cut a host off."""
        self._parted.add(host)

    def heal(self, host: str) -> None:
        """Let a host reach the servers again."""
        self._parted.discard(host)

    def is_cut_off(self, host: str) -> bool:
        """Whether a host is cut off."""
        return host in self._parted

    def force(self, host: str, *faults: Fault) -> None:
        """Let the next calls of a host that a fault fits go wrong."""
        with self._lock:
            self._forced[host].extend(faults)

    def settle(self) -> None:
        """Store what is late, as far as its fences hold."""
        with self._lock:
            while self._late:
                self._store(self._late.pop(0))

    def publish_foreign(self, subject: str) -> int:
        """Store a message of another program. Returns its sequence."""
        with self._lock:
            self._sequence += 1
            self._messages.setdefault(subject, []).append(self._sequence)
            return self._sequence

    def remove_foreign(self, subject: str, sequence: int) -> None:
        """Remove a message of another program."""
        with self._lock:
            self._messages[subject].remove(sequence)

    # --- the journals -----------------------------------------------------------------------------

    def check_reached(self, host: str) -> None:
        """Raise JournalLost for a host that is cut off."""
        if host in self._parted:
            raise JournalLost(None, "no server is reached")

    def publish(self, host: str, publication: Publication) -> int | OSError:
        """Publish one message."""
        with self._lock:
            if host in self._parted:
                return JournalLost(None, "no server is reached")
            if publication.after == UNFENCED:
                return self._store(publication)
            self._let_late_arrive(publication.batch)
            match self._fault(host, UNPUBLISHED):
                case Fault.UNREACHED:
                    return JournalLost(None, "no server was reached")
                case Fault.DROPPED:
                    return InDoubt(None, "the message was lost")
                case Fault.LATE:
                    self._late.append(publication)
                    return InDoubt(None, "the message is late")
                case Fault.UNANSWERED:
                    self._store(publication)
                    return InDoubt(None, "the answer was lost")
                case _:
                    return self._store(publication)

    def last(self, host: str, subject: str, *, at_leader: bool = False) -> Message | None:
        """The last message, or the one before it."""
        with self._lock:
            self.check_reached(host)
            messages = self._messages.get(subject, [])
            is_newest = at_leader or name_of_subject(subject) is not None
            if not is_newest and self._fault(host, (Fault.STALE,)) is not None:
                messages = messages[:-1] or messages
            return _checked(subject, messages[-1]) if messages else None

    def read(self, host: str, subject: str, after: int, last: int) -> list[Message]:
        """The messages from behind `after` up to `last`."""
        with self._lock:
            self.check_reached(host)
            found = [
                _checked(subject, message)
                for message in self._messages.get(subject, [])
                if after < _number(message) <= last
            ]
        if after < last and (not found or found[-1].sequence != last):
            raise JournalLost(None, f"no replica has message {last}")
        return found

    def subjects(self, host: str) -> dict[str, int]:
        """The number of messages of each subject that has any."""
        with self._lock:
            self.check_reached(host)
            return {subject: len(found) for subject, found in self._messages.items() if found}

    def names(self, host: str = "", above: str | None = None, *, oldest: bool = False) -> list[str]:
        """The names, all or those below one."""
        there = [name_of_subject(each) for each in self.subjects(host)]
        prefix = "" if above is None else f"{above}/"
        found = [name for name in there if name is not None and name.startswith(prefix)]
        return sorted(found, key=self._first)[:1] if oldest else found

    def _first(self, name: str) -> int:
        return _number(self._messages[subject_of_name(name)][0])

    def counts(self, host: str = "") -> dict[str, int]:
        """The number of messages of each session."""
        return {
            each: count
            for each, count in self.subjects(host).items()
            if name_of_subject(each) is host_of_notes(each) is None
        }

    def identity_of(self, name: str) -> str:
        """The session that a name leads to, or led to before it was gone."""
        last = self.last("", subject_of_name(name))
        assert last is not None
        return last.label.identity

    def session(self, name: str) -> Message | None:
        """The last message of the session that a name leads to; None if it leads to none."""
        last = self.last("", subject_of_name(name))
        gone = last is None or last.kind is Kind.GONE
        return None if gone else self.last("", self.identity_of(name))

    def purge(self, host: str, subject: str, before: int, after: int = 0) -> None:
        """Remove the messages below a sequence, all or those behind another one."""
        with self._lock:
            self.check_reached(host)
            found = self._messages.get(subject, [])
            self._messages[subject] = [
                each for each in found if _number(each) >= before or _number(each) <= after
            ]

    def announce(self, host: str, topic: str, body: bytes) -> None:
        """Deliver to all hosts that are reached."""
        if host in self._parted:
            return
        for listener, hear in list(self._hearers):
            if listener not in self._parted:
                hear(topic, body)

    def listen(self, host: str, hear: Callable[[str, bytes], None]) -> None:
        """Deliver to `hear` what is announced from now on."""
        self._hearers.append((host, hear))

    def _let_late_arrive(self, batch: Sequence[Publication]) -> None:
        """What is late comes before the next message of its subjects, or not at all."""
        subjects = {each.subject for each in batch}
        late = [one for one in self._late if subjects & {each.subject for each in one.batch}]
        for publication in late:
            self._late.remove(publication)
            if self._random.random() < 0.5:
                self._store(publication)

    def _fault(self, host: str, fitting: Sequence[Fault]) -> Fault | None:
        forced = self._forced[host]
        if forced and forced[0] in fitting:
            return forced.popleft()
        for fault in fitting:
            if self._random.random() < self.rates.get(fault, 0.0):
                return fault
        return None

    def _store(self, publication: Publication) -> int | OSError:
        batch = publication.batch
        for each in batch:
            messages = self._messages.get(each.subject, [])
            newest = messages[-1] if messages else 0
            if each.after == UNFENCED:
                continue
            if _number(newest) > each.after:
                return _overtaken(each.subject, newest)
            if _number(newest) < each.after:
                return JournalLost(None, f"the servers have messages up to {_number(newest)} only")
        if self._size() + sum(len(each.body) for each in batch) > self.capacity:
            return OSError(ENOSPC, "the stream is full")
        for each in batch:
            self._sequence += 1
            message = Message(
                self._sequence, each.owner, each.kind, each.body, self.now(), each.move
            )
            self._messages.setdefault(each.subject, []).append(message)
        return self._sequence

    def _size(self) -> int:
        return sum(
            len(message.body)
            for messages in self._messages.values()
            for message in messages
            if isinstance(message, Message)
        )


class MemoryJournal(Journal):
    """The journal as one host sees it."""

    def __init__(self, stream: MemoryStream, host: str) -> None:
        self._stream = stream
        self._host = host
        self._is_closed = False

    def publish(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """Publish a message to each of several folders."""
        return [self._publish(publication) for publication in publications]

    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """The same on the event loop; other tasks run before it."""
        await anyio.lowlevel.checkpoint()
        return self.publish(publications)

    def marker(self) -> Marker:
        """Returns what tells the stream from others."""
        return Marker(self._stream.identity, self._stream.began)

    def confirm(self) -> None:
        """Raise JournalLost for a host that is cut off."""
        self._check_open()
        self._stream.check_reached(self._host)

    def last_of(
        self, subjects: Sequence[str], *, at_leader: bool = False
    ) -> list[Message | ForeignMessage | None]:
        """Returns the last message of each of several subjects, or an older one."""
        return [self._last_or_foreign(each, at_leader=at_leader) for each in subjects]

    def read(self, subject: str, after: int, last: int) -> Iterator[Message]:
        """Returns a subject's messages from behind `after` up to `last`."""
        self._check_open()
        yield from self._stream.read(self._host, subject, after, last)

    def names(self, above: str | None = None, *, oldest: bool = False) -> list[str]:
        """Returns the names with messages."""
        self._check_open()
        return self._stream.names(self._host, above, oldest=oldest)

    def counts(self) -> dict[str, int]:
        """Returns the number of messages of each session."""
        self._check_open()
        return self._stream.counts(self._host)

    def purge(self, subject: str, before: int, after: int = 0) -> None:
        """Remove a subject's messages with a sequence below `before`; see `Journal`."""
        self._check_open()
        self._stream.purge(self._host, subject, before, after)

    def announce(self, owner: Owner, topic: str, body: bytes) -> None:
        """Tell all hosts something."""
        if not self._is_closed:
            self._stream.announce(self._host, topic, body)

    def listen(self, hear: Callable[[str, bytes], None]) -> None:
        """Call `hear` with each announcement."""
        self._stream.listen(self._host, lambda topic, body: self._hear(hear, topic, body))

    def close(self) -> None:
        """Let every later call fail."""
        self._is_closed = True

    def _publish(self, publication: Publication) -> int | OSError:
        if self._is_closed:
            return JournalLost(None, "the journal is closed")
        if max(len(each.body) for each in publication.batch) > limits.JOURNAL_BODY_BYTES_MAX:
            return OSError(EMSGSIZE, "the message is too large for the servers")
        return self._stream.publish(self._host, publication)

    def _last_or_foreign(self, subject: str, *, at_leader: bool) -> Message | ForeignMessage | None:
        self._check_open()
        try:
            return self._stream.last(self._host, subject, at_leader=at_leader)
        except ForeignMessage as error:
            return error

    def _hear(self, hear: Callable[[str, bytes], None], topic: str, body: bytes) -> None:
        if not self._is_closed:
            hear(topic, body)

    def _check_open(self) -> None:
        if self._is_closed:
            raise JournalLost(None, "the journal is closed")


def _number(message: Message | int) -> int:
    return message if isinstance(message, int) else message.sequence


def _checked(subject: str, message: Message | int) -> Message:
    if isinstance(message, int):
        raise ForeignMessage(subject, message)
    return message


def _overtaken(subject: str, newest: Message | int) -> OSError:
    if isinstance(newest, int):
        return ForeignMessage(subject, newest)
    return Fenced(subject, newest)
