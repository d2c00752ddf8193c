"""Bytes on a local socket: messages, or the end of the connection, however the bytes are cut."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from unittest.mock import patch

from fuzz.mutation import mutated
from fuzz.source import Source
from steno_protocol import limits, zmtp
from steno_protocol.zmtp import ForeignWire, Inbound, Outbound
from support.door import GREETING, READY_OF_DEALER

FRAME_BYTES = 600
BOUNDS = {
    "COMMAND_FRAME_BYTES_MAX": 400,
    "GATHERED_BYTES_MAX": 100,
    "MESSAGE_BYTES_MAX": 2000,
    "MESSAGE_FRAMES_MAX": 6,
    "PIECES_MAX": 4,
}
"""Bounds that a case of so few bytes can meet."""

BY_BYTES_MAX = 1000
"""So much of a stream is also given byte by byte."""

OWED_BYTES_MAX = 160
"""What an end owes for whatever it was told: a greeting, its own name, and one sign of life."""

SIZES = (0, 1, 17, 90, 255, 256, FRAME_BYTES)
ODD_SIZES = (0, 255, 400, 401, FRAME_BYTES + 1, 1 << 63, 2**64 - 1)
FLAGS = (b"\0", b"\1", b"\1", b"\4", b"\4", b"\2", b"\3", b"\6")
COMMANDS = (
    b"\x04PING\x00\x0aabc",
    b"\x04PING\x00\x0a" + b"x" * 300,
    b"\x04PING",
    b"\x04PONG",
    b"\x05READY\x0bSocket-Type\x00\x00\x00\x03REQ",
    b"\x05READY",
    b"\x05ERROR\x04nope",
    b"\x09SUBSCRIBE",
    b"",
)
"""What ends say of the connection itself, in bodies of frames."""

_LONG = 2
_SHORT_BYTES_MAX = 255

Messages = list[list[bytes]]


def check(data: bytes) -> bool:
    """Give a generated stream to an end of a connection, cut at will; True if a message came.

    Raises:
        AssertionError: it matters how it was cut, more is kept than may be, or what was put in at
            one end does not come out of the other.
    """
    with _small_bounds():
        return _check(Source(data))


@contextmanager
def _small_bounds() -> Iterator[None]:
    with ExitStack() as patches:
        for name, value in BOUNDS.items():
            patches.enter_context(patch.object(zmtp, name, value))
        patches.enter_context(patch.object(limits, "FRAME_BYTES_MAX", FRAME_BYTES))
        yield


def _check(source: Source) -> bool:
    messages = [_message(source) for _ in range(source.number(5))]
    put = _put(messages, source)
    assert _came([GREETING, READY_OF_DEALER, *_cut(put, source)]) == messages
    noise = _noise(source)
    stream = source.rest() if source.flip(8) else GREETING + READY_OF_DEALER + put + noise
    if source.flip():
        stream = mutated(stream, source)
    whole = _came([stream])
    assert _came(_cut(stream, source)) == whole, "it matters how it was cut"
    begin = stream[:BY_BYTES_MAX]
    by_bytes = [begin[at : at + 1] for at in range(len(begin))]
    assert _came(by_bytes) == _came([begin]), "it matters that it came by bytes"
    return bool(whole)


def _message(source: Source) -> list[bytes]:
    return [source.take(4).ljust(source.pick(SIZES), b".") for _ in range(1 + source.number(3))]


def _put(messages: Iterable[Sequence[bytes]], source: Source) -> bytes:
    """What goes when messages are put, in steps that the source decides on."""
    outbound, gone, ends = Outbound(), list[bytes](), list[int]()
    for message in messages:
        ends.append(outbound.put(message))
        while outbound and source.flip():
            gone.append(_go(outbound, source))
            assert outbound.messages == sum(end > outbound.gone for end in ends)
    while outbound:
        gone.append(_go(outbound, source))
    assert (outbound.messages, outbound.unsent) == (0, 0)
    assert outbound.gone == sum(map(len, gone))
    return b"".join(gone)


def _go(outbound: Outbound, source: Source) -> bytes:
    piece = outbound.next_piece()
    size = min(len(piece), 1 + source.number(256)) if source.flip() else len(piece)
    sent = bytes(piece[:size])
    outbound.went(size)
    return sent


def _noise(source: Source) -> bytes:
    """Frames behind the messages, as somebody else would send them, right or wrong."""
    frames: list[bytes] = []
    for _ in range(source.number(16)):
        flags = source.take(1) if source.flip(16) else source.pick(FLAGS)
        if flags in {b"\4", b"\6"}:
            body = source.pick(COMMANDS)
        else:
            body = source.take(4).ljust(source.pick(SIZES), b".")
        is_long = len(body) > _SHORT_BYTES_MAX or any(flag & _LONG for flag in flags)
        size = source.pick(ODD_SIZES) if source.flip(16) else len(body)
        if is_long:
            frames.append(bytes(flag | _LONG for flag in flags) + size.to_bytes(8, "big") + body)
        else:
            frames.append(flags + bytes((size % 256,)) + body)
    return b"".join(frames)


def _cut(data: bytes, source: Source) -> list[bytes]:
    places = {source.number(len(data) + 1) for _ in range(source.number(12))}
    return [data[begin:end] for begin, end in pairwise(sorted({0, *places, len(data)}))]


def _came(pieces: Iterable[bytes]) -> Messages | None:
    """The messages that came of some pieces; None if the connection ended by them."""
    inbound, came = Inbound(b"ROUTER"), list[list[bytes]]()
    try:
        # No piece is empty: that would be the end of the connection.
        for piece in filter(None, pieces):
            came += inbound.feed(piece)
            assert inbound.wanted > 0, "it asks the kernel for nothing"
            assert len(inbound.owed) <= OWED_BYTES_MAX, "it owes without end"
            _check_kept(inbound)
    except ForeignWire:
        return None
    for message in came:
        _check_size(message)
    return came


def _check_kept(inbound: Inbound) -> None:
    """What waits for its end is bounded, in bytes and in objects."""
    held = sum(map(len, inbound._held))
    assert held < FRAME_BYTES + len(GREETING), f"{held} bytes of a frame are kept"
    most = held // BOUNDS["PIECES_MAX"] + BOUNDS["PIECES_MAX"]
    assert len(inbound._held) <= most, f"{held} bytes are kept in {len(inbound._held)} pieces"
    _check_size(inbound._frames)


def _check_size(message: Sequence[bytes]) -> None:
    assert len(message) <= BOUNDS["MESSAGE_FRAMES_MAX"], f"{len(message)} frames are kept"
    size = sum(map(len, message))
    assert size < BOUNDS["MESSAGE_BYTES_MAX"] + FRAME_BYTES, f"{size} bytes of a message are kept"
