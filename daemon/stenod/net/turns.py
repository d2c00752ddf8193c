"""Turns: while several peers send, the one that takes most of the daemon's time waits in between.

libzmq hands out one message of each peer in turn and cannot keep back those of one peer. So the
messages of a peer that has taken much time lately, a *heavy* one, are received like all others, and
held. They are served in turns: a turn begins with a few of them and lasts until their peer has the
answers to all its commands. The next turn begins after a pause in proportion to it.

A peer that takes no more than its share, as one that waits for each reply, is *light*. While no
light peer sends, heavy ones are served as fast as they send. Peers in between neither wait nor are
waited for: so equal clients are never served in turns, however many they are.
"""

from collections import Counter, deque
from collections.abc import Sequence, Sized
from typing import Generic, TypeVar

from steno_protocol import limits

FrameT = TypeVar("FrameT", bound=Sized)
"""A frame as the socket receives it, which is not copied before its message is served."""


class Turns(Generic[FrameT]):
    """The heavy peers of a socket, and their messages that wait for a turn.

    Times are those of a monotonic clock, in seconds.

    Attributes:
        until_s: heavy peers wait until then; 0 while none has to wait.
        owner: the peer whose last answer ends the present turn.
        used: for each peer that took much time lately: how much, and when this was counted.
        held: the messages that wait, in order: their peer and their frames.
    """

    def __init__(self) -> None:
        self.until_s = 0.0
        self.owner: bytes | None = None
        self.used: dict[bytes, tuple[float, float]] = {}
        self.held: deque[tuple[bytes, Sequence[FrameT]]] = deque()
        self._held_bytes = 0
        self._held_messages: Counter[bytes] = Counter()
        self._began_s: float | None = None
        self._light_until_s = 0.0

    def charge(self, identity: bytes, seconds: float, now: float) -> None:
        """Count the time that a peer's messages took."""
        used = self._used_by(identity, now) + seconds
        self.used[identity] = (min(used, limits.HEAVY_REMEMBERED_S), now)
        for each in [each for each in self.used if not self._used_by(each, now)]:
            del self.used[each]

    def is_heavy(self, identity: bytes, now: float) -> bool:
        """Whether a peer has taken more than its share, or still waits for what it sent."""
        return (
            identity == self.owner
            or identity in self._held_messages
            or self._used_by(identity, now) > limits.HEAVY_FROM_S
        )

    def is_turn(self, identity: bytes, now: float) -> bool:
        """Whether a message of a peer is served in a turn, since a light peer sends, too."""
        if self.is_heavy(identity, now):
            return now < self._light_until_s
        self.note_message(identity, now)
        return False

    def note_message(self, identity: bytes, now: float) -> None:
        """Note a message of a peer that is not heavy.

        Heavy ones wait for it only if it took no more than its share: else some of many equal
        clients would wait for the others.
        """
        if not self._used_by(identity, now):
            self._light_until_s = now + limits.SHARED_S

    def hold(self, identity: bytes, frames: Sequence[FrameT]) -> bool:
        """Keep a message for a later turn; returns False when too much waits already."""
        size = sum(map(len, frames))
        is_full = (
            self._held_messages[identity] >= limits.MAILBOX_COMMANDS_MAX
            or self._held_bytes + size > limits.HELD_BYTES_MAX
        )
        if not is_full:
            self.held.append((identity, frames))
            self._held_bytes += size
            self._held_messages[identity] += 1
        return not is_full

    def take(self) -> tuple[bytes, Sequence[FrameT]]:
        """Return the next message that waits: its peer and its frames."""
        identity, frames = self.held.popleft()
        self._held_bytes -= sum(map(len, frames))
        self._held_messages[identity] -= 1
        if not self._held_messages[identity]:
            del self._held_messages[identity]
        return identity, frames

    def begin(self, identity: bytes, now: float) -> None:
        """Begin a turn with a message of a heavy peer, or serve one more message in it."""
        if self._began_s is None:
            self._began_s = now
        self.owner = identity
        self.until_s = now + limits.TURN_S_MAX

    def go_on(self) -> None:
        """Let the turn go on: its last message was a part, whose answer follows the last part."""
        self.owner = None
        self.until_s = 0.0

    def end(self, now: float) -> None:
        """End the turn, since its owner has its answers, and begin the pause."""
        assert self._began_s is not None, "a turn has an owner once it has begun"
        # A peer that ended between the parts of its message leaves a turn that began long ago.
        took_s = min(now - self._began_s, limits.TURN_COUNTED_S_MAX)
        self.until_s = now + took_s * limits.PAUSE_TURNS_MIN
        self.owner = self._began_s = None

    def end_pause(self) -> None:
        """Let the next turn begin."""
        self.until_s = 0.0
        self.owner = self._began_s = None

    def _used_by(self, identity: bytes, now: float) -> float:
        used, at_s = self.used.get(identity, (0.0, now))
        return max(0.0, used - (now - at_s) * limits.LIGHT_SHARE_MAX)
