"""The connected clients: names, subscriptions, and the bytes that each has not read."""

import enum
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.errors import Busy, StenoError, Unauthorized
from steno_protocol.events import Lagged
from steno_protocol.replies import ClientEntry
from stenod.feed.feed import Feed, Subscriber
from stenod.runtime.executor import Spawn

KEYS_REMEDY: Final = "`steno keys` on the daemon's machine grants it"


class InFlightFrame(Protocol):
    """A frame that is lent to a socket."""

    @property
    def done(self) -> bool:
        """True once the socket has handed it to the kernel, or dropped it."""
        ...


class Link(Protocol):
    """The connection that a peer came by."""

    @property
    def stands(self) -> bool:
        """False once it has ended."""
        ...


class Sent(enum.Enum):
    """What became of a message."""

    OK = "ok"
    FULL = "full"
    """The peer does not read; the message was dropped."""

    GONE = "gone"
    """The peer is not connected any longer."""


class Socket(Protocol):
    """The socket that a peer is connected to."""

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: "InFlightFrames") -> Sent:
        """Queue one message for a peer, or drop it; never waits."""
        ...

    def sender(self) -> str:
        """The sender of the message that is being handled, for the log."""
        ...

    def link(self) -> Link | None:
        """The connection of the message that is being handled; None if it is unknown."""
        ...


class SendBudget:
    """What is on its way to all peers together.

    With `UNTAKEN_BYTES_MAX` the memory for it is used up: each peer may then leave an equal part of
    that untaken, so that deaf clients do not delay replies to others.
    """

    def __init__(self) -> None:
        self._debtors: set[InFlightFrames] = set()
        self._bytes = 0

    def lent(self, debtor: "InFlightFrames", size: int) -> None:
        """A peer was lent so many bytes."""
        self._debtors.add(debtor)
        self._bytes += size

    def taken(self, debtor: "InFlightFrames", size: int) -> None:
        """A peer took so many bytes; it is forgotten once nothing is on its way to it."""
        self._bytes -= size
        if not debtor.is_owing:
            self._debtors.discard(debtor)

    def room_for(self, most: int) -> int:
        """How large a block may be that is read just now, `most` bytes at most."""
        room = limits.UNTAKEN_BYTES_MAX - self._bytes
        if room < most:
            self._forget_taken()
            room = limits.UNTAKEN_BYTES_MAX - self._bytes
        return min(most, max(room, limits.CROWDED_BLOCK_BYTES))

    def part_of(self, most: int) -> int:
        """How many bytes one peer may leave untaken just now, `most` at most."""
        if self._bytes < limits.UNTAKEN_BYTES_MAX:
            return most
        self._forget_taken()
        if self._bytes < limits.UNTAKEN_BYTES_MAX:
            return most
        return min(most, limits.UNTAKEN_BYTES_MAX // len(self._debtors))

    def _forget_taken(self) -> None:
        # A client that reads everything is never checked.
        for debtor in tuple(self._debtors):
            debtor.forget_taken()


class InFlightFrames:
    """What is on its way to a peer, the oldest first.

    Frames that are lent to the socket report when they were sent; copied ones count as sent
    with the next one that is lent.

    Args:
        untaken: what is on its way to all peers.
    """

    def __init__(self, untaken: SendBudget | None = None) -> None:
        self._send_budget = untaken or SendBudget()
        self._in_flight: deque[tuple[InFlightFrame, int]] = deque()
        self._bytes = 0
        self._copied = 0
        self._expected = 0

    def is_lent(self, size: int) -> bool:
        """Whether a frame of so many bytes is lent: a large one, or one whose sending shows that
        earlier ones were sent."""
        return size >= limits.LENT_FRAME_BYTES or self._copied >= limits.PEER_PROOF_BYTES

    def copied(self, size: int) -> None:
        """A frame of so many bytes was sent as a copy."""
        self._copied += size
        self._bytes += size

    def add(self, in_flight_frame: InFlightFrame, size: int) -> None:
        """A frame of so many bytes is lent."""
        self._in_flight.append((in_flight_frame, size + self._copied))
        self._send_budget.lent(self, size + self._copied)
        self._copied = 0
        self._bytes += size
        self.forget_taken()

    @property
    def bytes(self) -> int:
        """The most that is on its way at this moment."""
        self.forget_taken()
        return self._bytes

    @property
    def is_owing(self) -> bool:
        """Whether anything was lent and not taken, as far as was looked, or is to be lent soon."""
        return bool(self._in_flight) or self._expected > 0

    @contextmanager
    def expected(self, size: int) -> Generator[None]:
        """So many bytes are being read for it in the block: they count as if they were lent."""
        self._expected += size
        self._bytes += size
        self._send_budget.lent(self, size)
        try:
            yield
        finally:
            self._expected -= size
            self._bytes -= size
            self._send_budget.taken(self, size)

    def room_for(self, most: int) -> int:
        """How large a block may be that is read for it just now, `most` bytes at most."""
        return self._send_budget.room_for(most)

    def exceeds(self, most: int) -> bool:
        """Whether more than the peer's part, `most` bytes at most, is on its way."""
        return self.bytes >= self._send_budget.part_of(most)

    def forget_taken(self) -> None:
        """Look which frames were taken."""
        while self._in_flight and self._in_flight[0][0].done:
            self._forget_oldest()

    def forget_all(self) -> None:
        """The peer is gone, and what is on its way to it is dropped."""
        while self._in_flight:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, size = self._in_flight.popleft()
        self._bytes -= size
        self._send_budget.taken(self, size)


class Subscription(msgspec.Struct):
    """One subscription of a peer: its feed, and the way to send its errors."""

    session: str
    feed: Feed
    subscriber: Subscriber
    refuse: Callable[[StenoError], None]
    file: Literal["context", "wire"] = "context"

    def resume(self) -> None:
        """The peer takes events again."""
        self.feed.resume(self.subscriber)

    def lag(self, why: str) -> None:
        """Ask the peer to subscribe again."""
        self.subscriber.send(Lagged(next=str(self.subscriber.position), why=why), None)


class Peer(msgspec.Struct, eq=False):
    """One connection.

    Attributes:
        socket: where it is connected.
        identity: what that socket calls it.
        since_s: monotonic time of its first message.
        user: the public key of a client on another machine; None for one on this machine.
        link: its connection; None if it is unknown.
        dropped: messages that it was too slow, or gone, to get.
        is_req: its last message began with an empty frame, as those of a REQ socket do.
        looking: ids of its requests for which files are being looked at.
        reading: held while a block is read for it: a few at a time.
        loans: what is on its way to it.
    """

    socket: Socket
    identity: bytes
    since_s: float
    user: str | None = None
    link: Link | None = None
    name: str | None = None
    pid: int | None = None
    requests: int = 0
    dropped: int = 0
    is_req: bool = False
    looking: set[bytes] = msgspec.field(default_factory=set[bytes])
    subscriptions: dict[str, Subscription] = msgspec.field(default_factory=dict[str, Subscription])
    reading: anyio.Semaphore = msgspec.field(
        default_factory=lambda: anyio.Semaphore(limits.PEER_BLOCKS_READ_MAX, fast_acquire=True)
    )
    in_flight: InFlightFrames = msgspec.field(default_factory=InFlightFrames)

    def check_takes(self) -> None:
        """Refuse further reads of a peer that does not read the replies.

        Raises:
            Busy: too much is on its way.
        """
        if self.in_flight.exceeds(limits.PEER_LOANS_BYTES_MAX):
            raise Busy(
                f"{self.in_flight.bytes} bytes wait until this connection takes them: receive them,"
                " then ask again"
            )

    @property
    def takes_events(self) -> bool:
        """False while so much is on its way that its subscriptions have to wait."""
        return not self.in_flight.exceeds(limits.PEER_EVENTS_BYTES_MAX)

    def follows(self, session: str) -> bool:
        """Whether it has a subscription to the context of a session."""
        return any(
            each.session == session and each.file == "context"
            for each in self.subscriptions.values()
        )

    def unsubscribe(self, name: str) -> bool:
        """End one subscription; False if there is none of this name."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return False
        subscription.feed.remove(subscription.subscriber)
        return True

    def forget(self, name: str, subscriber: Subscriber) -> None:
        """Remove an ended subscription, but not a newer one of the same name."""
        found = self.subscriptions.get(name)
        if found is not None and found.subscriber is subscriber:
            del self.subscriptions[name]

    def unsubscribe_all(self) -> None:
        """End all subscriptions: the peer is gone."""
        for name in list(self.subscriptions):
            self.unsubscribe(name)

    def turn_away(self) -> None:
        """End all subscriptions with an error as their last event: its key was revoked."""
        error = Unauthorized(
            f"the key {self.user} is let in no longer, also to follow: {KEYS_REMEDY}"
        )
        ended = list(self.subscriptions.values())
        self.unsubscribe_all()
        for subscription in ended:
            subscription.refuse(error)

    def entry(self, now_s: float) -> ClientEntry:
        """The entry of this peer in the reply to `clients`."""
        return ClientEntry(
            name=self.name,
            pid=self.pid,
            connected_s=round(now_s - self.since_s, 3),
            requests=self.requests,
            dropped=self.dropped,
            subscriptions=sorted({item.session for item in self.subscriptions.values()}),
        )


class Crowded:
    """The peers with subscriptions that wait until earlier events are read.

    Args:
        spawn: starts the task that looks after them, while there are any.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._peers: set[Peer] = set()

    def takes_events(self, peer: Peer) -> bool:
        """Whether a peer takes an event; its subscriptions are resumed later if it does not."""
        if peer.takes_events:
            return True
        if not self._peers:
            self._spawn(self._look)
        self._peers.add(peer)
        return False

    async def _look(self) -> None:
        while self._peers:
            await anyio.sleep(limits.PEER_LOOK_S)
            for peer in [peer for peer in self._peers if peer.takes_events]:
                self._peers.discard(peer)
                for subscription in tuple(peer.subscriptions.values()):
                    subscription.resume()
            self._peers = {peer for peer in self._peers if peer.subscriptions}
