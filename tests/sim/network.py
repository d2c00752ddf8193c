"""Connections between simulated clients and the one daemon: seeded, bounded, cut at any moment."""

from collections import deque
from collections.abc import Sequence

from steno._sansio.exchange import Exchange
from steno_protocol import PROTOCOL_VERSION
from steno_protocol.commands import Hello
from steno_protocol.messages import decode_answers, encode_request
from steno_protocol.replies import Welcome

UNDER_WAY_MAX = 24
"""Messages that a connection takes in one direction: the high-water mark of its socket."""

HELLO_ID = b"hello"

Message = list[bytes]


class Connection:
    """One connection of one client, from its greeting on until it is cut.

    Attributes:
        identity: its name at the daemon's socket.
        up: messages that the daemon has not taken yet.
        down: messages that the client has not taken yet.
        dropped: messages to the client for which there was no room.
    """

    def __init__(
        self, identity: bytes, exchange: Exchange, name: str, under_way_max: int = UNDER_WAY_MAX
    ) -> None:
        self.identity = identity
        self.up: deque[Message] = deque()
        self.down: deque[Message] = deque()
        self.dropped = 0
        self._exchange = exchange
        self._under_way_max = under_way_max
        self._is_greeted = False
        hello = Hello(protocol=PROTOCOL_VERSION, name=name)
        self.up.append(encode_request(HELLO_ID, hello, ()))

    def send_up(self, frames: Sequence[bytes]) -> bool:
        """Send for the client; False if the queue is full."""
        if len(self.up) >= self._under_way_max:
            return False
        self.up.append([bytes(frame) for frame in frames])
        return True

    def send_down(self, frames: Sequence[bytes]) -> bool:
        """Send for the daemon; False if the queue is full."""
        if len(self.down) >= self._under_way_max:
            self.dropped += 1
            return False
        self.down.append([bytes(frame) for frame in frames])
        return True

    def take_down(self, now_s: float) -> None:
        """Let the client take the next message."""
        frames = self.down.popleft()
        if self._is_greeted:
            self._exchange.receive(frames, now_s)
        else:
            for answer in decode_answers(frames):
                assert isinstance(answer.body, Welcome), f"greeted with {answer.body}"
                self._is_greeted = True
                self._exchange.connected(answer.body, now_s)
        self.flush()

    def flush(self) -> None:
        """Send the client's messages, as far as there is room."""
        if self._is_greeted:
            self._exchange.flush(self.send_up)
