"""ZeroMQ's protocol on a local stream: bytes come in and messages go out, and the other way round.

ZMTP 3.1 (RFCs 23 and 37 of ZeroMQ) with its mechanism NULL, as far as a DEALER and a ROUTER need
it: what stands here speaks with libzmq at the other end. It opens no socket and waits for nothing;
who has the socket moves the bytes.

A connection begins with 64 bytes each way, the greeting; then each end says by a command which kind
of socket it is, and is ready. Each frame has a byte of flags, its size in one byte or in eight, and
its body; all frames of a message but the last say that more follow.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from steno_protocol import limits
from steno_protocol.limits import (
    COMMAND_FRAME_BYTES_MAX,
    GATHERED_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_FRAMES_MAX,
    PIECES_MAX,
)

_SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\1\x7f"
_VERSION: Final = b"\3\1"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
_GREETING: Final = (_SIGNATURE + _VERSION + _MECHANISM).ljust(64, b"\0")
_MAJOR: Final = 10

_MORE: Final = 0x01
_LONG: Final = 0x02
_COMMAND: Final = 0x04
_RESERVED: Final = 0xFF ^ (_MORE | _LONG | _COMMAND)

_SHORT_HEAD: Final = 2
_LONG_HEAD: Final = 9
_SHORT_BYTES_MAX: Final = 0xFF

_READY: Final = b"\5READY"
_PING: Final = b"\4PING"
_PONG: Final = b"\4PONG"
_TTL_BYTES: Final = 2
_CONTEXT_BYTES_MAX: Final = 16

_MATES: Final = {
    b"DEALER": (b"ROUTER", b"DEALER", b"REP"),
    b"ROUTER": (b"ROUTER", b"DEALER", b"REQ"),
}
"""Which kinds of socket may be at the other end of which."""


class ForeignWire(Exception):
    """What came is not ZMTP, or not what may come here: the connection is of no use any more."""


class Inbound:
    """What comes in by one connection.

    Args:
        kind: of socket that this end is, `DEALER` or `ROUTER`.

    Attributes:
        owed: bytes that this end has to send, at first the greeting; whoever sends them empties it.
        is_ready: the other end has said which kind of socket it is: messages may go and come.
        wanted: bytes without which the next ones that are fed complete nothing.
        taken: frames that were taken in since the beginning.
    """

    def __init__(self, kind: bytes) -> None:
        self._kind = kind
        self.owed = bytearray(_GREETING)
        self.is_ready = False
        self.wanted = len(_GREETING)
        self.taken = 0
        self._is_greeted = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._gathered = 0
        self._frames: list[bytes] = []
        self._frames_bytes = 0

    @property
    def unfinished(self) -> int:
        """Bytes that are kept of a message whose end did not come yet."""
        return self._held_bytes + self._frames_bytes

    @property
    def is_midway(self) -> bool:
        """Part of a message came, and not yet the rest of it."""
        return bool(self._held or self._frames)

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take in what came, and return the messages that it completes.

        A message that is larger than any that can be served is cut: enough of it is kept to tell.

        Raises:
            ForeignWire: nothing that comes after this can be understood; what came with it is lost.
        """
        if self._held:
            self._held.append(data)
            self._held_bytes += len(data)
            if len(data) < self.wanted:
                self.wanted -= len(data)
                self._gather()
                return []
            data = b"".join(self._held)
            self._held.clear()
            self._held_bytes = self._gathered = 0
        messages: list[list[bytes]] = []
        end = self._take(data, messages)
        if end < len(data):
            self._held.append(data[end:])
            self._held_bytes = len(data) - end
        return messages

    def _gather(self) -> None:
        """Put small pieces together: each costs as much beside its bytes as fifty of them."""
        if len(self._held) - self._gathered >= PIECES_MAX:
            self._held[self._gathered :] = [b"".join(self._held[self._gathered :])]
            self._gathered += 1

    def _take(self, data: bytes, messages: list[list[bytes]]) -> int:
        """Take whole frames; returns where the rest begins."""
        at = 0 if self._is_greeted else self._greet(data)
        while self._is_greeted and (place := self._place(data, at)) is not None:
            self.taken += 1
            flags, (begin, at) = data[at], place
            body = data[begin:at]
            if flags & _COMMAND:
                self._obey(body)
            elif not self.is_ready:
                raise ForeignWire("a message comes before the handshake is over")
            elif flags & _MORE:
                self._keep(body)
            else:
                messages.append(self._end_message(body))
        return at

    def _place(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the body of the frame that begins at `at` is; None while it is not all there."""
        size = len(data)
        begin = at + _SHORT_HEAD
        if begin > size:
            self.wanted = begin - size
            return None
        flags = data[at]
        if flags & _LONG:
            begin = at + _LONG_HEAD
            if begin > size:
                self.wanted = begin - size
                return None
            end = begin + int.from_bytes(data[at + 1 : begin], "big")
        else:
            end = begin + data[at + 1]
        if flags & _RESERVED or end - begin > self._most_of(flags):
            raise ForeignWire("a frame is too large, or none")
        if end > size:
            self.wanted = end - size
            return None
        return begin, end

    def _most_of(self, flags: int) -> int:
        """How many bytes the body of a frame may have."""
        if flags & _COMMAND or not self.is_ready:
            return COMMAND_FRAME_BYTES_MAX
        return limits.FRAME_BYTES_MAX

    def _greet(self, data: bytes) -> int:
        # As soon as it can be told: who speaks something else may wait for an answer to it.
        if data[:1] != _SIGNATURE[:1]:
            raise ForeignWire("it does not begin as ZMTP does")
        self.wanted = len(_GREETING) - len(data)
        if self.wanted > 0:
            return 0
        begin = _MAJOR + len(_VERSION)
        mechanism = data[begin : begin + len(_MECHANISM)]
        if data[_MAJOR] < _VERSION[0] or mechanism != _MECHANISM:
            raise ForeignWire("it speaks an older ZMTP, or wants a key")
        self._is_greeted = True
        kind = _property(b"Socket-Type", self._kind) + _property(b"Identity", b"")
        self.owed += _frame(_READY + kind, _COMMAND)
        return len(_GREETING)

    def _obey(self, command: bytes) -> None:
        if command.startswith(_READY):
            kind = _properties(command[len(_READY) :]).get(b"socket-type", b"")
            if kind not in _MATES[self._kind]:
                raise ForeignWire("another kind of socket is needed here")
            self.is_ready = True
        elif command.startswith(_PING):
            # One goes back for all that come together: who asks without end is not to fill memory.
            if _PONG not in self.owed:
                context = command[len(_PING) + _TTL_BYTES :][:_CONTEXT_BYTES_MAX]
                self.owed += _frame(_PONG + context, _COMMAND)
        elif not self.is_ready:
            raise ForeignWire("the handshake failed at the other end")

    def _keep(self, frame: bytes) -> None:
        kept = self._frames
        if len(kept) < MESSAGE_FRAMES_MAX and self._frames_bytes < MESSAGE_BYTES_MAX:
            kept.append(frame)
            self._frames_bytes += len(frame)

    def _end_message(self, last: bytes) -> list[bytes]:
        if not self._frames:
            return [last]
        self._keep(last)
        frames, self._frames, self._frames_bytes = self._frames, [], 0
        return frames


class Outbound:
    """What goes out by one connection, and has not gone yet."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self._ends: deque[int] = deque()
        self._put = 0
        self._gone = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def put(self, frames: Sequence[bytes]) -> int:
        """Add a message; returns where it ends: it has gone once `gone` is as much."""
        follow = len(frames)
        parts: list[bytes] = []
        for frame in frames:
            follow -= 1
            size = len(frame)
            if size <= _SHORT_BYTES_MAX:
                parts.append(b"%c%c" % (follow > 0, size))
            else:
                parts.append(b"%c%b" % (_LONG | (follow > 0), size.to_bytes(8, "big")))
            parts.append(frame)
        self._add(parts)
        self._ends.append(self._put)
        return self._put

    def put_raw(self, data: bytes) -> None:
        """Add bytes that are no message, between two of them."""
        self._add([data])

    @property
    def gone(self) -> int:
        """Bytes that have gone since the beginning."""
        return self._gone

    @property
    def unsent(self) -> int:
        """Bytes that have not gone yet."""
        return self._put - self._gone

    @property
    def messages(self) -> int:
        """Messages that have not gone yet, or not as a whole."""
        return len(self._ends)

    def next_piece(self) -> bytes | memoryview:
        """Bytes to send next, of which as many as possible are to go; there have to be some."""
        pieces = self._pieces
        if len(pieces) > 1 and len(pieces[0]) + len(pieces[1]) <= GATHERED_BYTES_MAX:
            gathered = [pieces.popleft()]
            size = len(gathered[0])
            while pieces and size + len(pieces[0]) <= GATHERED_BYTES_MAX:
                size += len(pieces[0])
                gathered.append(pieces.popleft())
            pieces.appendleft(b"".join(gathered))
        return pieces[0]

    def went(self, count: int) -> None:
        """So many bytes of the next piece have gone."""
        pieces = self._pieces
        if count == len(pieces[0]):
            pieces.popleft()
        else:
            pieces[0] = memoryview(pieces[0])[count:]
        self._gone += count
        ends = self._ends
        while ends and ends[0] <= self._gone:
            ends.popleft()

    def _add(self, parts: list[bytes]) -> None:
        """Add pieces: what is small is copied together, what is large is not copied at all."""
        size = sum(map(len, parts))
        if size <= GATHERED_BYTES_MAX:
            self._pieces.append(b"".join(parts))
        else:
            self._pieces.extend(part for part in parts if part)
        self._put += size


def _frame(body: bytes, flags: int) -> bytes:
    return bytes((flags, len(body))) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def _properties(data: bytes) -> dict[bytes, bytes]:
    """What the other end says of itself; names are told in small letters."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        begin = at + 1 + data[at] + 4
        end = begin + int.from_bytes(data[begin - 4 : begin], "big")
        if end > len(data):
            raise ForeignWire("what it says of itself is cut off")
        found[data[at + 1 : begin - 4].lower()] = data[begin:end]
        at = end
    return found
