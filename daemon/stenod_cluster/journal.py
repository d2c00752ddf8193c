"""The journal interface: one ordered subject of messages for each folder of the session tree.

A message is durable on a majority of the servers when `publish` returns its sequence. `NatsJournal`
implements it, and the tests have a model of it in memory. All methods have a deadline of their own.
They block, and may be called from any thread but that of the daemon's event loop, which carries
them; there `publish_on_loop` is awaited.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from errno import EBADMSG
from typing import Final, Protocol

import msgspec

from steno_protocol import paths
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
        GONE: the folder was removed; what follows begins with an empty one. If a command moved it,
            the body is its new path in the session tree, which may be one in the trash.
    """

    OWN = "own"
    PART = "part"
    CHANGE = "change"
    SNAPSHOT = "snapshot"
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


class Message(msgspec.Struct, frozen=True):
    """A message of the journal.

    Attributes:
        sequence: its number, which grows from message to message of a folder, with gaps.
        owner: who published it.
        kind: what it is.
        body: its content.
        at: Unix time in seconds at which the servers took it.
        move: the key of the command that moves the folder from here or to here; empty for others.
    """

    sequence: int
    owner: Owner
    kind: Kind
    body: bytes
    at: float
    move: str = ""

    @property
    def goal(self) -> str:
        """Where a command moved the folder, as a path in the session tree; empty if none did."""
        return self.body.decode(errors="surrogateescape") if self.kind is Kind.GONE else ""

    @property
    def is_deletion(self) -> bool:
        """Whether a command moved the folder to the trash."""
        return self.goal.startswith(f"{paths.TRASH}/")


class Publication(msgspec.Struct, frozen=True):
    """A message to publish.

    Attributes:
        folder: the path of the folder in the session tree, such as `a/b`.
        after: the sequence of the folder's last message, 0 if there is none: the fence.
        owner: who publishes it.
        kind: what it is.
        body: its content, at most `limits.JOURNAL_BODY_BYTES_MAX` bytes.
        move: as that of a message.
        is_growth: it adds records, and is refused before the stream has no room for anything else.
    """

    folder: str
    after: int
    owner: Owner
    kind: Kind
    body: bytes
    move: str = ""
    is_growth: bool = False


class Fenced(DiskRefused):
    """The folder has a newer message, so what was published is not in the journal.

    The newer message is another owner's, or an earlier one of the same owner that was in doubt.

    Attributes:
        newer: that message.
    """

    is_final = True

    def __init__(self, folder: str, newer: Message) -> None:
        super().__init__(f"{newer.owner.endpoint} owns {folder!r} now")
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
    " stream again"
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
    """The folder's subject has a message of another program; nothing was published.

    Attributes:
        sequence: its number.
    """

    def __init__(self, folder: str, sequence: int) -> None:
        super().__init__(
            EBADMSG,
            f"message {sequence} of {folder!r} in the journal is not steno's: find the program that"
            " publishes it, take its right to publish to steno.> away, and remove the message with"
            f" `nats stream rmm`, number {sequence}",
        )
        self.sequence = sequence

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender."""
        return StorageFailed(str(self.strerror), session=session)


class Peer(msgspec.Struct, frozen=True):
    """Another daemon that was heard.

    Attributes:
        owner: its identity.
        heard_s: seconds since it was last heard.
    """

    owner: Owner
    heard_s: float


class Journal(Protocol):
    """The messages of all folders, and the daemons that publish them."""

    def publish(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """Publish a message to each of several folders, all at the same time.

        A message that gets no answer is sent again under the same id until the deadline.

        Returns:
            For each the sequence under which a majority has it on disk, else `Fenced`, `InDoubt`,
            `JournalLost`, or an OSError that says what the operator has to do.
        """
        ...

    async def publish_on_loop(self, publications: Sequence[Publication]) -> list[int | OSError]:
        """As `publish`, on the event loop."""
        ...

    def stream_of(self, folder: str) -> str:
        """Returns the identity of the stream that has a folder: sequences of others mean nothing.

        Raises:
            JournalLost: no server was reached yet.
        """
        ...

    def note_taken(self, folder: str, host: str, owner: Owner) -> None:
        """Leave a note for a host that a daemon is about to take one of its folders over.

        An announcement may be lost; the host finds the note when it looks next. The daemon that
        leaves it may still fail to take the folder.

        Raises:
            JournalLost: nobody says that a majority has it.
        """
        ...

    def taken_from(self, host: str) -> list[Message]:
        """Returns the new notes for a host, whose bodies are folders, and whose owners took them.

        Those from before this process are left out: it did not own a folder then.

        Raises:
            JournalLost: no majority of the servers says that there are no others.
        """
        ...

    def confirm(self, folder: str) -> None:
        """Check that a majority of the servers that store a folder can hear each other.

        Raises:
            JournalLost: it cannot, or nobody says so.
        """
        ...

    def last(self, folder: str) -> Message | None:
        """Returns a folder's last message; None if it has none.

        It may be an older one than the last: only `publish` decides.

        Raises:
            JournalLost: no server answered.
            ForeignMessage: another program published it.
        """
        ...

    def last_of(self, folders: Sequence[str]) -> list[Message | ForeignMessage | None]:
        """Returns the last message of each of several folders, as `last`.

        A message of another program is returned as its error: it concerns its own folder alone.
        """
        ...

    def read(self, folder: str, after: int, last: int) -> Iterator[Message]:
        """Returns a folder's messages from behind `after` up to `last`, in order, all of them.

        Raises:
            JournalLost: not all of them came before the deadline.
        """
        ...

    def folders(self, above: str | None = None) -> dict[str, int]:
        """Returns the folders with messages, with the number of their messages.

        Args:
            above: only folders below this one.

        Raises:
            JournalLost: no server answered.
        """
        ...

    def purge(self, folder: str, before: int) -> None:
        """Remove a folder's messages with a sequence below `before`.

        Raises:
            OSError: some or none were removed.
        """
        ...

    def announce(self, owner: Owner, topic: str, body: bytes) -> None:
        """Tell all daemons something, in a plain message that may be lost; never waits."""
        ...

    def listen(self, hear: Callable[[str, bytes], None]) -> None:
        """Call `hear` with topic and body of each announcement, those of this daemon included.

        It is called on the event loop, and must not block.
        """
        ...

    def close(self) -> None:
        """Close the connection; waiting callers get `JournalLost` or `InDoubt`."""
        ...
