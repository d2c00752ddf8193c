"""Connected clients: names, subscriptions, and flow control of unread bytes."""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, Protocol

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.errors import Busy, StenoError
from steno_protocol.events import Lagged
from steno_protocol.replies import ClientEntry
from stenod.feed.feed import Feed, Subscriber
from stenod.runtime.executor import Spawn


class InFlightFrame(Protocol):
    """A frame that the socket holds without a copy."""

    @property
    def done(self) -> bool:
        """Whether the socket has passed it to the kernel, or dropped it."""
        ...


class Link(Protocol):
    """The connection of a peer."""

    @property
    def stands(self) -> bool:
        """Whether it is open."""
        ...


class SendBudget:
    """The bytes in flight to all peers together.

    Above `UNREAD_BYTES_MAX` each peer may have an equal share of it in flight, so that clients that
    do not read do not delay replies to others.
    """

    def __init__(self) -> None:
        self._peers: set[InFlightFrames] = set()
        self._bytes = 0

    def add(self, peer: "InFlightFrames", size: int) -> None:
        """Count bytes that are sent to a peer."""
        self._peers.add(peer)
        self._bytes += size

    def release(self, peer: "InFlightFrames", size: int) -> None:
        """Count bytes that a peer has received; it is removed once nothing is in flight to it."""
        self._bytes -= size
        if not peer.has_bytes_in_flight:
            self._peers.discard(peer)

    def room_for(self, most: int) -> int:
        """Return the allowed size of a block that is read now, at most `most` bytes."""
        room = limits.UNREAD_BYTES_MAX - self._bytes
        if room < most:
            self._forget_taken()
            room = limits.UNREAD_BYTES_MAX - self._bytes
        return min(most, max(room, limits.CROWDED_BLOCK_BYTES))

    def part_of(self, most: int) -> int:
        """Return the bytes that one peer may have in flight now, at most `most`."""
        if self._bytes < limits.UNREAD_BYTES_MAX:
            return most
        self._forget_taken()
        if self._bytes < limits.UNREAD_BYTES_MAX:
            return most
        return min(most, limits.UNREAD_BYTES_MAX // len(self._peers))

    def _forget_taken(self) -> None:
        # This runs only under pressure: clients that read everything cause no check.
        for peer in tuple(self._peers):
            peer.forget_taken()


class InFlightFrames:
    """The frames in flight to a peer, the oldest first.

    A tracked frame is sent without a copy, and the socket reports its release; copied frames count
    as sent with the next tracked frame.

    Args:
        budget: the bytes in flight to all peers.
    """

    def __init__(self, budget: SendBudget | None = None) -> None:
        self._send_budget = budget or SendBudget()
        self._in_flight: deque[tuple[InFlightFrame, int]] = deque()
        self._bytes = 0
        self._copied = 0
        self._expected = 0

    def is_lent(self, size: int) -> bool:
        """Whether a frame of this size is tracked: a large one, or the one after many copies."""
        return size >= limits.TRACKED_FRAME_BYTES or self._copied >= limits.UNTRACKED_BYTES_MAX

    def copied(self, size: int) -> None:
        """Count a frame that was sent as a copy."""
        self._copied += size
        self._bytes += size

    def add(self, in_flight_frame: InFlightFrame, size: int) -> None:
        """Count a tracked frame."""
        self._in_flight.append((in_flight_frame, size + self._copied))
        self._send_budget.add(self, size + self._copied)
        self._copied = 0
        self._bytes += size
        self.forget_taken()

    @property
    def bytes(self) -> int:
        """The largest possible number of bytes in flight."""
        self.forget_taken()
        return self._bytes

    @property
    def has_bytes_in_flight(self) -> bool:
        """Whether tracked frames are in flight as of the last check, or are expected soon."""
        return bool(self._in_flight) or self._expected > 0

    @contextmanager
    def expected(self, size: int) -> Generator[None]:
        """Count bytes that are being read for the peer as in flight, until the block ends."""
        self._expected += size
        self._bytes += size
        self._send_budget.add(self, size)
        try:
            yield
        finally:
            self._expected -= size
            self._bytes -= size
            self._send_budget.release(self, size)

    def room_for(self, most: int) -> int:
        """Return the allowed size of a block for the peer, at most `most` bytes."""
        return self._send_budget.room_for(most)

    def exceeds(self, most: int) -> bool:
        """Whether the bytes in flight exceed the peer's share, which is at most `most` bytes."""
        return self.bytes >= self._send_budget.part_of(most)

    def forget_taken(self) -> None:
        """Remove the frames that were released."""
        while self._in_flight and self._in_flight[0][0].done:
            self._forget_oldest()

    def forget_all(self) -> None:
        """Remove all frames: the peer is gone, and the socket drops them."""
        while self._in_flight:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, size = self._in_flight.popleft()
        self._bytes -= size
        self._send_budget.release(self, size)


class Subscription(msgspec.Struct):
    """One subscription of a peer: its feed, and the function that sends its errors."""

    session: str
    feed: Feed
    subscriber: Subscriber
    refuse: Callable[[StenoError], None]
    file: Literal["context", "wire"] = "context"

    def resume(self) -> None:
        """Resume the events: the peer reads again."""
        self.feed.resume(self.subscriber)

    def lag(self, why: str) -> None:
        """Send `lagged`, which asks the peer to subscribe again."""
        self.subscriber.send(Lagged(next=str(self.subscriber.position), why=why), None)


class Peer(msgspec.Struct, eq=False):
    """One connection.

    Attributes:
        identity: the socket's name for it.
        since_s: monotonic time of its first message.
        user: the public key of a client on another machine; None for one on this machine.
        link: its connection; None if it is unknown.
        name: the client's name from `hello`.
        pid: the client's process id from `hello`.
        requests: the number of its requests.
        dropped: messages that were dropped, because it was too slow or gone.
        is_req: its last message began with an empty frame, as a REQ socket's do.
        looking: ids of its requests that are reading files.
        subscriptions: its subscriptions by name.
        reading: held while a block is read for it: a few at a time.
        in_flight: the frames in flight to it.
    """

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
            Busy: too many bytes are in flight.
        """
        if self.in_flight.exceeds(limits.PEER_LOANS_BYTES_MAX):
            raise Busy(
                f"{self.in_flight.bytes} bytes wait until this connection reads them: receive them,"
                " then send the request again"
            )

    @property
    def takes_events(self) -> bool:
        """Whether its subscriptions may send; False while too many bytes are in flight."""
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
        """End all subscriptions."""
        for name in list(self.subscriptions):
            self.unsubscribe(name)

    def turn_away(self, error: StenoError) -> None:
        """End all subscriptions with an error as their last event."""
        ended = list(self.subscriptions.values())
        self.unsubscribe_all()
        for subscription in ended:
            subscription.refuse(error)

    def entry(self, now_s: float) -> ClientEntry:
        """Return the entry of this peer in the reply to `clients`."""
        return ClientEntry(
            name=self.name,
            pid=self.pid,
            connected_s=round(now_s - self.since_s, 3),
            requests=self.requests,
            dropped=self.dropped,
            subscriptions=sorted({item.session for item in self.subscriptions.values()}),
        )


class Crowded:
    """Peers with paused subscriptions, which wait until earlier events are read.

    Args:
        spawn: starts the task that resumes them.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._peers: set[Peer] = set()

    def takes_events(self, peer: Peer) -> bool:
        """Whether events may be sent to a peer; if not, its subscriptions are resumed later."""
        if peer.takes_events:
            return True
        if not self._peers:
            self._spawn(self._resume_readers)
        self._peers.add(peer)
        return False

    async def _resume_readers(self) -> None:
        while self._peers:
            await anyio.sleep(limits.PEER_CHECK_S)
            for peer in [peer for peer in self._peers if peer.takes_events]:
                self._peers.discard(peer)
                for subscription in tuple(peer.subscriptions.values()):
                    subscription.resume()
            self._peers = {peer for peer in self._peers if peer.subscriptions}
