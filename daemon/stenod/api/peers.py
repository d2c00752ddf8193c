"""The connected peers: subscriptions, replies and bytes in flight.

A frame that is sent as a copy leaves no trace. A *tracked* frame is sent without a copy, and libzmq
releases it once the kernel has it: its release shows that this frame and all frames before it were
sent.
"""

import enum
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.errors import Busy, StenoError, Unauthorized
from steno_protocol.events import Event, Lagged
from steno_protocol.messages import encode_answer, encode_body, encode_replies
from steno_protocol.replies import ClientEntry, Reply
from stenod.feed.feed import Feed, Subscriber
from stenod.runtime.executor import Spawn
from stenod.runtime.statistics import Statistics

KEYS_REMEDY: Final = "use a key made by `steno keys new` on the daemon's machine"


class InFlightFrame(Protocol):
    """A tracked frame that a socket sends."""

    @property
    def done(self) -> bool:
        """True once the socket has passed the frame to the kernel, or dropped it."""
        ...


class Link(Protocol):
    """The connection of a peer."""

    @property
    def is_open(self) -> bool:
        """False once the connection has ended."""
        ...


class Sent(enum.Enum):
    """The outcome of sending a message."""

    OK = "ok"
    FULL = "full"
    """The peer's queue is full because it does not read; the message was dropped."""

    GONE = "gone"
    """The peer is no longer connected."""


class Socket(Protocol):
    """The socket that a peer is connected to."""

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: "InFlightFrames") -> Sent:
        """Queue one message for a peer, or drop it; never waits."""
        ...

    def sender(self) -> str:
        """Returns the sender of the message that is being handled, for the log."""
        ...

    def link(self) -> Link | None:
        """Returns the connection of the message that is being handled; None if unknown."""
        ...


class SendBudget:
    """The bytes in flight to all peers together.

    From `UNREAD_BYTES_MAX` bytes on each peer gets an equal share of that limit, so that clients
    that do not read cannot delay replies to clients that do.
    """

    def __init__(self) -> None:
        self._users: set[InFlightFrames] = set()
        self._bytes = 0

    def reserve(self, user: "InFlightFrames", size: int) -> None:
        """Count `size` bytes as in flight to a peer."""
        self._users.add(user)
        self._bytes += size

    def release(self, user: "InFlightFrames", size: int) -> None:
        """Count `size` bytes as sent; a peer with nothing in flight gets no share any more."""
        self._bytes -= size
        if not user.has_unsent:
            self._users.discard(user)

    def block_size(self, most: int) -> int:
        """Returns the largest block that may be read now: `most` bytes, or less under load."""
        room = limits.UNREAD_BYTES_MAX - self._bytes
        if room < most:
            self._release_sent()
            room = limits.UNREAD_BYTES_MAX - self._bytes
        return min(most, max(room, limits.CROWDED_BLOCK_BYTES))

    def share(self, most: int) -> int:
        """Returns the bytes that one peer may have in flight now: `most`, or less under load."""
        if self._bytes < limits.UNREAD_BYTES_MAX:
            return most
        self._release_sent()
        if self._bytes < limits.UNREAD_BYTES_MAX:
            return most
        return min(most, limits.UNREAD_BYTES_MAX // len(self._users))

    def _release_sent(self) -> None:
        # Frames are checked only on demand, and a client that reads everything demands no check.
        for user in tuple(self._users):
            user.release_sent()


class InFlightFrames:
    """The frames in flight to one peer, oldest first.

    Tracked frames report when they were sent. Copied frames count as sent together with the next
    tracked one.

    Args:
        send_budget: the bytes in flight to all peers.
    """

    def __init__(self, send_budget: SendBudget | None = None) -> None:
        self._send_budget = send_budget or SendBudget()
        self._in_flight: deque[tuple[InFlightFrame, int]] = deque()
        self._bytes = 0
        self._copied = 0
        self._reserved = 0

    def is_tracked(self, size: int) -> bool:
        """True for a frame to send without a copy: a large one, or one after many copied ones."""
        return size >= limits.TRACKED_FRAME_BYTES or self._copied >= limits.UNTRACKED_BYTES_MAX

    def add_copied(self, size: int) -> None:
        """Count a frame that was sent as a copy."""
        self._copied += size
        self._bytes += size

    def add_tracked(self, in_flight_frame: InFlightFrame, size: int) -> None:
        """Count a tracked frame, and the copied frames before it."""
        self._in_flight.append((in_flight_frame, size + self._copied))
        self._send_budget.reserve(self, size + self._copied)
        self._copied = 0
        self._bytes += size
        self.release_sent()

    @property
    def bytes(self) -> int:
        """The most bytes that can be in flight at this moment."""
        self.release_sent()
        return self._bytes

    @property
    def has_unsent(self) -> bool:
        """True while a tracked frame was not seen to be sent, or a block is being read."""
        return bool(self._in_flight) or self._reserved > 0

    @contextmanager
    def reserved(self, size: int) -> Generator[None]:
        """Count `size` bytes as in flight while the `with` block reads them for the peer."""
        self._reserved += size
        self._bytes += size
        self._send_budget.reserve(self, size)
        try:
            yield
        finally:
            self._reserved -= size
            self._bytes -= size
            self._send_budget.release(self, size)

    def block_size(self, most: int) -> int:
        """Returns the largest block that may be read for the peer now, `most` bytes at most."""
        return self._send_budget.block_size(most)

    def exceeds(self, most: int) -> bool:
        """True when `most` bytes, or the peer's share if that is less, are in flight."""
        return self.bytes >= self._send_budget.share(most)

    def release_sent(self) -> None:
        """Stop counting the frames that were sent."""
        while self._in_flight and self._in_flight[0][0].done:
            self._release_oldest()

    def release_all(self) -> None:
        """Stop counting all frames: the peer is gone, and its socket drops them."""
        while self._in_flight:
            self._release_oldest()

    def _release_oldest(self) -> None:
        _, size = self._in_flight.popleft()
        self._bytes -= size
        self._send_budget.release(self, size)


class Subscription(msgspec.Struct):
    """One subscription of a peer.

    Attributes:
        session: the id of the session that the peer follows.
        feed: the feed of the session's file.
        subscriber: the subscription's position and credit in that feed.
        send_error: sends an error as the subscription's last event.
        file: the session's file that the peer follows.
    """

    session: str
    feed: Feed
    subscriber: Subscriber
    send_error: Callable[[StenoError], None]
    file: str = "context"

    def resume(self) -> None:
        """Send events again: the peer reads."""
        self.feed.resume(self.subscriber)

    def lag(self, why: str) -> None:
        """Ask the peer to subscribe again."""
        self.subscriber.send(Lagged(next=str(self.subscriber.position), why=why), None)


class Peer(msgspec.Struct, eq=False):
    """One connection.

    Attributes:
        socket: the socket that the peer is connected to.
        identity: the socket's name for the peer.
        since_s: monotonic time of its first message.
        number: the number of the connection since the daemon's start.
        user: the public key of a client on another machine; None for a client on this machine.
        link: its connection; None if unknown.
        is_reader: it may only read, as of its last request.
        key_name: the name of its key, as of its last request.
        name: the name that the client gave in its `hello`.
        pid: the process id that the client gave in its `hello`.
        requests: requests that it sent.
        dropped: messages to it that were dropped, because its queue was full or it was gone.
        is_req: True when its last message began with an empty frame, as a REQ socket's do.
        slow_requests: the copies of each of its requests that is served beside the event loop.
        commands: its commands for a writer that have no answer yet.
        subscriptions: its subscriptions by their names.
        reading: limits the blocks that are read for it at a time.
        in_flight: the frames in flight to it.
        full_since_s: event loop's time at which a read found too many bytes in flight to it; None
            since a read found room.
    """

    socket: Socket
    identity: bytes
    since_s: float
    number: int = 0
    user: str | None = None
    link: Link | None = None
    is_reader: bool = False
    key_name: str | None = None
    name: str | None = None
    pid: int | None = None
    requests: int = 0
    dropped: int = 0
    is_req: bool = False
    slow_requests: dict[bytes, int] = msgspec.field(default_factory=dict[bytes, int])
    commands: int = 0
    subscriptions: dict[str, Subscription] = msgspec.field(default_factory=dict[str, Subscription])
    reading: anyio.Semaphore = msgspec.field(
        default_factory=lambda: anyio.Semaphore(limits.PEER_BLOCKS_READ_MAX, fast_acquire=True)
    )
    in_flight: InFlightFrames = msgspec.field(default_factory=InFlightFrames)
    full_since_s: float | None = None

    @property
    def is_full(self) -> bool:
        """True while so many bytes are in flight to it that no block may be read for it."""
        return self.in_flight.exceeds(limits.PEER_LOANS_BYTES_MAX)

    async def wait_for_room(self) -> None:
        """Return when a block may be read for the peer.

        A reply counts as in flight for some milliseconds after the peer has received it, and the
        peer may ask for the next block then. All reads of a peer that receives nothing are refused
        together.

        Raises:
            Busy: it has received too little for `PEER_ROOM_WAIT_S`.
        """
        while self.is_full:
            now_s = anyio.current_time()
            if self.full_since_s is None:
                self.full_since_s = now_s
            if now_s - self.full_since_s >= limits.PEER_ROOM_WAIT_S:
                raise self._not_received()
            await anyio.sleep(limits.PEER_CHECK_S)
        self.full_since_s = None

    def check_backpressure(self) -> None:
        """Refuse a command with a large reply for a peer that does not receive its replies.

        Raises:
            Busy: too many bytes are in flight to it.
        """
        if self.is_full:
            raise self._not_received()

    def _not_received(self) -> Busy:
        return Busy(
            f"{self.in_flight.bytes} bytes of replies wait in this connection: receive them, then"
            " ask again"
        )

    @property
    def accepts_events(self) -> bool:
        """False while so many bytes are in flight that its subscriptions have to pause."""
        return not self.in_flight.exceeds(limits.PEER_EVENTS_BYTES_MAX)

    def follows(self, session: str) -> bool:
        """True when it has a subscription to the context of a session."""
        return any(
            each.session == session and each.file == "context"
            for each in self.subscriptions.values()
        )

    def unsubscribe(self, name: str) -> bool:
        """End one subscription; returns False if there is none of this name."""
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

    def revoke(self) -> None:
        """End all subscriptions with an error as their last event: the peer's key was revoked."""
        error = Unauthorized(
            f"the key {self.user} is no longer admitted, also not to subscribe: {KEYS_REMEDY}"
        )
        ended = list(self.subscriptions.values())
        self.unsubscribe_all()
        for subscription in ended:
            subscription.send_error(error)

    def entry(self, now_s: float) -> ClientEntry:
        """Returns the peer's entry in the reply to `clients`."""
        return ClientEntry(
            name=self.name,
            key=self.key_name,
            pid=self.pid,
            connected_s=round(now_s - self.since_s, 3),
            requests=self.requests,
            dropped=self.dropped,
            subscriptions=sorted({item.session for item in self.subscriptions.values()}),
            connection=self.number,
        )


class PausedPeers:
    """The peers whose subscriptions pause until they have read earlier events.

    Args:
        spawn: starts the task that polls these peers, while there are any.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._peers: set[Peer] = set()

    def accepts_events(self, peer: Peer) -> bool:
        """Returns whether a peer can be sent an event; if not, it is resumed later."""
        if peer.accepts_events:
            return True
        if not self._peers:
            self._spawn(self._poll)
        self._peers.add(peer)
        return False

    async def _poll(self) -> None:
        while self._peers:
            await anyio.sleep(limits.PEER_CHECK_S)
            for peer in [peer for peer in self._peers if peer.accepts_events]:
                self._peers.discard(peer)
                for subscription in tuple(peer.subscriptions.values()):
                    subscription.resume()
            self._peers = {peer for peer in self._peers if peer.subscriptions}


class Outbox:
    """The replies that wait to be sent; `flush` sends all replies to a peer in one message.

    Args:
        statistics: counts the messages that were dropped.
        is_revoked: returns whether the key of a client on another machine is no longer admitted.

    Attributes:
        forget: called with a peer when a send shows that its connection has ended.
    """

    def __init__(self, statistics: Statistics, is_revoked: Callable[[str], bool]) -> None:
        self.forget: Callable[[Peer], None] = lambda _: None
        self._statistics = statistics
        self._is_revoked = is_revoked
        self._event: Event | None = None
        self._encoded = b""
        self._waiting: dict[Peer, list[tuple[bytes, Reply]]] = {}

    def reply(self, peer: Peer, request_id: bytes, body: Reply) -> None:
        """Queue a reply without a block."""
        self._waiting.setdefault(peer, []).append((request_id, body))

    def reply_block(self, peer: Peer, request_id: bytes, body: Reply, block: bytes) -> None:
        """Send the queued replies, then a reply with its block."""
        self.flush()
        self._send(peer, encode_answer(request_id, encode_body(body), block))

    def event(self, peer: Peer, request_id: bytes, body: Event, block: bytes | None) -> bool:
        """Send the queued replies, then an event; returns False if the event was dropped."""
        if self._waiting:
            self.flush()
        if body is not self._event:
            # The followers of a session get the same event object, so it is encoded once.
            self._event, self._encoded = body, encode_body(body)
        return self._send(peer, encode_answer(request_id, self._encoded, block))

    def message(self, peer: Peer, frames: Sequence[bytes]) -> None:
        """Send the queued replies, then a message that is already encoded."""
        self.flush()
        self._send(peer, frames)

    def probe(self, peers: Sequence[Peer]) -> None:
        """Send an empty message to each peer, to learn whether it is still connected."""
        for peer in peers:
            self._send(peer, encode_replies([]))

    def flush(self) -> None:
        """Send the queued replies."""
        waiting, self._waiting = self._waiting, {}
        for peer, answers in waiting.items():
            for start in range(0, len(answers), limits.ANSWERS_TOGETHER_MAX):
                together = answers[start : start + limits.ANSWERS_TOGETHER_MAX]
                self._send(peer, encode_replies(together))

    def _send(self, peer: Peer, frames: Sequence[bytes]) -> bool:
        """Send a message to a peer; returns False if it was dropped."""
        if peer.user and peer.subscriptions and self._is_revoked(peer.user):
            # The key was revoked while the peer follows a session: the error is its last event.
            peer.revoke()
            self.flush()
            return False
        # A REQ socket accepts a reply only behind the empty frame that its request began with.
        addressed = [b"", *frames] if peer.is_req else frames
        sent = peer.socket.send(peer.identity, addressed, peer.in_flight)
        if sent is Sent.OK:
            return True
        peer.dropped += 1
        if sent is Sent.FULL:
            self._statistics.dropped += 1
        else:
            self.forget(peer)
        return False
