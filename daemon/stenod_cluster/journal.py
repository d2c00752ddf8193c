"""The journal interface: an ordered subject of messages for each session, and one for each name.

The subject of a session is its identity, which never changes. A name is a path in the session tree,
which may be one in the trash; the last message of its subject says which session it leads to, if
any. So a session is created, renamed, deleted and restored by messages about names alone.

A message is durable on a majority of the servers when `publish` returns its sequence. `NatsJournal`
implements it, and the tests have a model of it in memory. All methods have a deadline of their own.
They block, and may be called from any thread but that of the daemon's event loop, which carries
them; there `publish_on_loop` is awaited.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from errno import EBADMSG
from typing import Final, NamedTuple, Protocol

import msgspec

from steno_protocol.errors import ErrorCode, Held, OutcomeUnknown, StenoError, StorageFailed
from stenod.store.disk import DiskRefused


class Kind(StrEnum):
    """What a message is.

    Attributes:
        OWN: its owner takes the folder over; the body is empty.
        PART: the beginning of a change that the next message continues.
        CHANGE: a change, or the last part of one.
        SNAPSHOT: the beginning of a copy of the whole folder, which `PART` and `CHANGE` messages
            continue: what is before it is not needed once the copy is whole.
        FORK: the first message of a fork: the messages of its source, up to one of them, come
            before it; the body is a label with the source and that message.
        NAME: a name leads to a session; the body is its label.
        GONE: a name leads to nothing any more; the body is its last label.
    """

    OWN = "own"
    PART = "part"
    CHANGE = "change"
    SNAPSHOT = "snapshot"
    FORK = "fork"
    NAME = "name"
    GONE = "gone"


class Owner(msgspec.Struct, frozen=True):
    """A daemon that owns folders.

    Attributes:
        host: the identity of its root, which lasts.
        incarnation: the identity of its process.
        endpoint: where its clients reach it.
    """

    host: str
    incarnation: str
    endpoint: str


class Label(NamedTuple):
    """What a message about a name says.

    Attributes:
        identity: the session.
        other: the name that the session had before, or that it has instead; empty if there is none.
    """

    identity: str
    other: str

    def body(self) -> bytes:
        """The body of the message."""
        return f"{self.identity} {self.other}".encode(errors="surrogateescape")


class Message(msgspec.Struct, frozen=True):
    """A message of the journal.

    Attributes:
        sequence: its number, which grows from message to message, with gaps within a subject.
        owner: who published it.
        kind: what it is.
        body: its content.
        at: Unix time in seconds at which the servers took it.
        move: the key of the command that changed the name; empty for others.
    """

    sequence: int
    owner: Owner
    kind: Kind
    body: bytes
    at: float
    move: str = ""

    @property
    def label(self) -> Label:
        """What a message about a name says."""
        identity, _, other = self.body.decode(errors="surrogateescape").partition(" ")
        return Label(identity, other)


UNFENCED: Final = -1
"""Where a message may come behind any other."""


class Publication(msgspec.Struct, frozen=True):
    """A message to publish.

    Attributes:
        subject: the identity of a session, a name as `subject_of_name` gives it, or the notes for a
            host as `subject_of_notes` does.
        after: the sequence of the subject's last message, 0 if there is none: the fence. Notes have
            none, but `UNFENCED`.
        owner: who publishes it.
        kind: what it is.
        body: its content, at most `limits.JOURNAL_BODY_BYTES_MAX` bytes.
        move: as that of a message.
        is_growth: it adds records, and is refused before the stream has no room for anything else.
        also: messages on other subjects that are stored right before this one, or none of them is.
            Each has a fence of its own. They have the sequences right before that of this one.
    """

    subject: str
    after: int
    owner: Owner
    kind: Kind
    body: bytes
    move: str = ""
    is_growth: bool = False
    also: "tuple[Publication, ...]" = ()

    @property
    def batch(self) -> "tuple[Publication, ...]":
        """All messages that are stored together, in order."""
        return (*self.also, self)


_NAME: Final = "@"
_NOTES: Final = "!"


HELD: Final = ".held"
"""The first segment of the names of holds; no session's name begins like this."""

ENDED: Final = 2**63 - 1
"""The position from which on a session that ended needs its messages."""


def subject_of_name(path: str) -> str:
    """Return the subject of a name, which no identity is like."""
    return f"{_NAME}{path}"


def name_of_subject(subject: str) -> str | None:
    """Return the name that a subject is of; None for others."""
    return subject[1:] if subject.startswith(_NAME) else None


def subject_of_notes(host: str) -> str:
    """Return the subject of the notes for a host, which no identity is like."""
    return f"{_NOTES}{host}"


def host_of_notes(subject: str) -> str | None:
    """Return the host for which a subject has notes; None for others."""
    return subject[1:] if subject.startswith(_NOTES) else None


class Fenced(DiskRefused):
    """A subject has a newer message, so what was published is not in the journal.

    The newer message is another owner's, or an earlier one of the same owner that was in doubt.

    Attributes:
        subject: that one.
        newer: that message.
    """

    is_final = True

    def __init__(self, subject: str, newer: Message) -> None:
        shown = name_of_subject(subject) or subject
        super().__init__(f"{newer.owner.endpoint} owns {shown!r} now")
        self.subject = subject
        self.newer = newer

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender, whose client goes to the owner."""
        return held(session, self.newer.owner)


class InDoubt(DiskRefused):
    """The servers did not answer before the deadline; what was published may be in the journal."""

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender, who cannot know what came of the command."""
        return OutcomeUnknown(
            f"the journal did not answer in time: {self.strerror}; what came of the command is"
            " looked up when the session is next used (`steno cluster status` shows the servers)",
            session=session,
            code=ErrorCode.STORAGE_FAILED,
        )

    def withdrawn(self, session: str) -> StenoError:
        """Return the error for the sender once the doubt is settled: the bytes are taken back."""
        return JournalLost(None, self.strerror).refusal(session)


class JournalLost(DiskRefused):
    """No server was reached, or none can answer; nothing was published."""

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender."""
        return StorageFailed(
            f"the journal cannot be reached: {self.strerror}; nothing of the command was kept,"
            " start a majority of its servers (`steno cluster status` shows them) and send it"
            " again",
            session=session,
        )


REMEDY: Final = (
    "restore the servers' data if it can be had, else run `steno cluster join --again` on each"
    " host, first where the newest sessions are, which brings the sessions of its root into the"
    " stream again, then `steno restart` on each"
)
"""What an operator does about a stream that lacks acknowledged messages."""


class ForeignStream(JournalLost):
    """The stream is missing, or another one than this root used; nothing is acknowledged in it."""

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender."""
        return StorageFailed(f"{self.strerror}; nothing of the command was kept", session=session)


def held(session: str, owner: Owner) -> Held:
    """Return the error for a session that another daemon owns."""
    return Held(
        f"the daemon at {owner.endpoint} owns the session: send the command there; clients do so"
        " by themselves, and `steno cluster status` shows the owners",
        session=session,
        endpoint=owner.endpoint,
    )


class ForeignMessage(DiskRefused):
    """A subject has a message of another program; nothing was published.

    Attributes:
        sequence: its number.
    """

    def __init__(self, subject: str, sequence: int) -> None:
        shown = name_of_subject(subject) or subject
        super().__init__(
            EBADMSG,
            f"message {sequence} of {shown!r} in the journal is not steno's: find the program"
            " that publishes it, take its right to publish to steno.> away, and remove it with"
            f" `nats stream rmm`, number {sequence}",
        )
        self.sequence = sequence

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender."""
        return StorageFailed(str(self.strerror), session=session)


AGAIN: Final = "-again"
"""The end of the identity of a stream that hosts join again after a loss."""


class Marker(NamedTuple):
    """What tells a stream from another one.

    Attributes:
        stream: the identity of the stream: sequences of others mean nothing.
        began: the sequence from which on it has that. An earlier message is from an old copy, and
            later ones of its session may be lost.
    """

    stream: str
    began: int


class Journal(Protocol):
    """The messages of all sessions and names: eight methods of an engine, and what they give."""

    @abstractmethod
    def publish(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """Publish several messages, all at the same time; each may be the last one of a batch.

        A message that gets no answer is sent again until the deadline.

        Returns:
            For each the sequence under which a majority has it on disk, with those of its batch
            right before it, else `Fenced`, `InDoubt`, `JournalLost`, or an OSError that says what
            the operator has to do.
        """
        ...

    @abstractmethod
    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """As `publish`, on the event loop."""
        ...

    @abstractmethod
    def marker(self) -> Marker:
        """Returns what tells the stream from others.

        Raises:
            JournalLost: no server was reached yet.
        """
        ...

    @abstractmethod
    def confirm(self) -> None:
        """Check that a majority of the servers can hear each other, in the stream of `marker`.

        Raises:
            JournalLost: it cannot, or nobody says so.
            ForeignStream: the stream was made again.
        """
        ...

    @abstractmethod
    def last_of(
        self, subjects: Sequence[str], *, at_leader: bool = False
    ) -> list[Message | ForeignMessage | None]:
        """Returns the last message of each of several subjects; None if one has none.

        A message of another program is returned as its error: it concerns its own subject alone.

        Args:
            subjects: those of sessions, names or notes.
            at_leader: no message may be older than the last one; otherwise only `publish` decides.

        Raises:
            JournalLost: no server answered.
        """
        ...

    @abstractmethod
    def read(self, subject: str, after: int, last: int) -> Iterator[Message]:
        """Returns a subject's messages from behind `after` up to `last`, in order, all of them.

        Raises:
            JournalLost: not all of them came before the deadline.
        """
        ...

    @abstractmethod
    def names(self, above: str | None = None, *, oldest: bool = False) -> list[str]:
        """Returns the names with messages, also those that lead to nothing any more.

        Args:
            above: only names below this one, which is needed with `oldest`.
            oldest: only the name whose first message is the oldest, which is quicker.

        Raises:
            JournalLost: no server answered.
        """
        ...

    @abstractmethod
    def purge(self, subject: str, before: int, after: int = 0) -> None:
        """Remove a subject's messages with a sequence below `before`.

        Args:
            subject: that of a session, a name or notes.
            before: the first one that stays; one that the subject has if `after` is given.
            after: these and those before it stay. The newest are removed first, so that what is
                left behind `after` is a beginning whenever it ends.

        Raises:
            OSError: some or none were removed.
        """
        ...

    # --- what these give --------------------------------------------------------------------------

    def stream(self) -> str:
        """Returns the identity of the stream; raises as `marker`."""
        return self.marker().stream

    def began(self) -> int:
        """Returns the sequence from which on the stream has its identity; raises as `marker`."""
        return self.marker().began

    def is_again(self) -> bool:
        """Whether hosts join or joined the stream again after a loss; raises as `marker`."""
        return self.stream().endswith(AGAIN)

    def last(self, subject: str, *, at_leader: bool = False) -> Message | None:
        """Returns a subject's last message, of a session perhaps an older one; None without one.

        Args:
            subject: that of a session, a name or notes.
            at_leader: that of a session may not be an older one, either.

        Raises:
            JournalLost: no server answered.
            ForeignMessage: another program published it.
        """
        is_newest = at_leader or name_of_subject(subject) is not None
        [found] = self.last_of([subject], at_leader=is_newest)
        if isinstance(found, ForeignMessage):
            raise found
        return found

    def note_taken(self, name: str, host: str, owner: Owner, kind: Kind) -> None:
        """Leave a note for a host of which a daemon takes a session over.

        An announcement may be lost; the host finds the note when it looks next.

        Args:
            name: the session.
            host: the host.
            owner: the daemon.
            kind: `OWN` if it is about to own the session, and may still fail to; `CHANGE` if it
                has the files, and is about to change them.

        Raises:
            JournalLost: nobody says that a majority has it.
            OSError: as `publish`.
        """
        body = name.encode(errors="surrogateescape")
        try:
            published(self, Publication(subject_of_notes(host), UNFENCED, owner, kind, body))
        except InDoubt as error:
            # A second note does no harm.
            raise JournalLost(None, error.strerror) from None

    def taken_from(self, host: str, after: int) -> list[Message]:
        """Returns the new notes for a host, whose bodies are names, and whose owners take them.

        Args:
            host: the host.
            after: the last note that was handled before.

        Raises:
            JournalLost: no majority of the servers says that there are no others.
        """
        subject = subject_of_notes(host)
        last = self.last(subject, at_leader=True)
        is_new = last is not None and last.sequence > after
        found = list(self.read(subject, after, last.sequence)) if last and is_new else []
        self.confirm()
        return found


class Announcements(Protocol):
    """What daemons tell each other beside the journal, and which decides nothing."""

    def announce(self, owner: Owner, topic: str, body: bytes) -> None:
        """Tell all daemons something, in a plain message that may be lost; never waits."""
        ...

    def listen(self, hear: Callable[[str, bytes], None]) -> None:
        """Call `hear` with topic and body of each announcement, those of this daemon included.

        It is called on the event loop, and must not block.
        """
        ...


def published(journal: Journal, publication: Publication) -> int:
    """Publish one message or batch; returns its sequence.

    Raises:
        OSError: its outcome, as `Journal.publish` returns it.
    """
    (outcome,) = journal.publish([publication])
    if isinstance(outcome, int):
        return outcome
    raise outcome
