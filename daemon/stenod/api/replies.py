"""Answers on their way out: gathered while a group is served, then one message a peer."""

from collections.abc import Callable, Sequence

from steno_protocol import limits
from steno_protocol.events import Event
from steno_protocol.messages import encode_answer, encode_body, encode_replies
from steno_protocol.replies import Reply
from stenod.api.clients import Peer

Send = Callable[[Peer, Sequence[bytes]], bool]
"""Sends frames to a peer; False when they were dropped."""


class Outbox:
    """Queues replies by peer; `flush` sends all of a peer's replies in one message.

    Args:
        send: sends one message.
        after_sends: to be called when messages were sent: the socket may have swallowed the news
            of an arrival meanwhile.
        after_events: as `after_sends`, but after the other ready tasks ran: one check
            for all the events of a commit.
    """

    def __init__(
        self, send: Send, after_sends: Callable[[], None], after_events: Callable[[], None]
    ) -> None:
        self._send = send
        self._after_sends = after_sends
        self._after_events = after_events
        self._event: Event | None = None
        self._encoded = b""
        self._waiting: dict[Peer, list[tuple[bytes, Reply]]] = {}

    def reply(self, peer: Peer, request_id: bytes, body: Reply) -> None:
        """Queue a reply that has no block."""
        self._waiting.setdefault(peer, []).append((request_id, body))

    def reply_block(self, peer: Peer, request_id: bytes, body: Reply, block: bytes) -> None:
        """Send a reply with its block at once, behind what is queued."""
        self._send_waiting()
        self._send(peer, encode_answer(request_id, encode_body(body), block))
        self._after_sends()

    def event(self, peer: Peer, request_id: bytes, body: Event, block: bytes | None) -> bool:
        """Send an event at once, behind what is queued; False if it was dropped."""
        if self._waiting:
            self._send_waiting()
        if body is not self._event:
            # The next follower of the session gets the very same one.
            self._event, self._encoded = body, encode_body(body)
        sent = self._send(peer, encode_answer(request_id, self._encoded, block))
        self._after_events()
        return sent

    def message(self, peer: Peer, frames: Sequence[bytes]) -> None:
        """Send a message as it is, behind what is queued."""
        self._send_waiting()
        self._send(peer, frames)
        self._after_sends()

    def probe(self, peers: Sequence[Peer]) -> None:
        """Send a message that says nothing, to learn whether the peers are still there."""
        for peer in peers:
            self._send(peer, encode_replies([]))
        self._after_sends()

    def flush(self) -> None:
        """Send everything that is queued."""
        if self._waiting:
            self._send_waiting()
            self._after_sends()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for peer, answers in waiting.items():
            for start in range(0, len(answers), limits.ANSWERS_TOGETHER_MAX):
                self._send(
                    peer, encode_replies(answers[start : start + limits.ANSWERS_TOGETHER_MAX])
                )
