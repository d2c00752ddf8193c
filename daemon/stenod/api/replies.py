"""Replies and events on their way to the peers, one message a peer."""

from collections.abc import Callable, Sequence

from steno_protocol import limits
from steno_protocol.events import Event
from steno_protocol.messages import encode_answer, encode_body, encode_replies
from steno_protocol.replies import Reply
from stenod.api.clients import Peer, Sent
from stenod.runtime.statistics import Statistics


class Outbox:
    """Queues replies by peer; `flush` sends all of a peer's replies in one message.

    Args:
        statistics: counts the messages that were dropped.
        is_revoked: whether the key of a client on another machine is no longer admitted.

    Attributes:
        forget: called with a peer whose connection turned out to have ended.
    """

    def __init__(self, statistics: Statistics, is_revoked: Callable[[str], bool]) -> None:
        self.forget: Callable[[Peer], None] = lambda _: None
        self._statistics = statistics
        self._is_revoked = is_revoked
        self._event: Event | None = None
        self._encoded = b""
        self._waiting: dict[Peer, list[tuple[bytes, Reply]]] = {}

    def reply(self, peer: Peer, request_id: bytes, body: Reply) -> None:
        """Queue a reply that has no block."""
        self._waiting.setdefault(peer, []).append((request_id, body))

    def reply_block(self, peer: Peer, request_id: bytes, body: Reply, block: bytes) -> None:
        """Send a reply with its block at once, behind what is queued."""
        self.flush()
        self._send(peer, encode_answer(request_id, encode_body(body), block))

    def event(self, peer: Peer, request_id: bytes, body: Event, block: bytes | None) -> bool:
        """Send an event at once, behind what is queued; False if it was dropped."""
        if self._waiting:
            self.flush()
        if body is not self._event:
            # The next follower of the session gets the very same one.
            self._event, self._encoded = body, encode_body(body)
        return self._send(peer, encode_answer(request_id, self._encoded, block))

    def message(self, peer: Peer, frames: Sequence[bytes]) -> None:
        """Send a message as it is, behind what is queued."""
        self.flush()
        self._send(peer, frames)

    def probe(self, peers: Sequence[Peer]) -> None:
        """Send a message that says nothing, to learn whether the peers are still there."""
        for peer in peers:
            self._send(peer, encode_replies([]))

    def flush(self) -> None:
        """Send everything that is queued."""
        waiting, self._waiting = self._waiting, {}
        for peer, answers in waiting.items():
            for start in range(0, len(answers), limits.ANSWERS_TOGETHER_MAX):
                together = answers[start : start + limits.ANSWERS_TOGETHER_MAX]
                self._send(peer, encode_replies(together))

    def _send(self, peer: Peer, frames: Sequence[bytes]) -> bool:
        """Send a message to a peer; False if it was dropped."""
        if peer.user and peer.subscriptions and self._is_revoked(peer.user):
            # The key was revoked while it follows a session: it gets the error, and no later event.
            peer.turn_away()
            self.flush()
            return False
        # A REQ socket takes a reply only behind the empty frame that its request began with.
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
