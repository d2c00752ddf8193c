"""ZeroMQ's protocol: what one end puts in comes out of the other, and nothing else gets through."""

import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.zmtp import ForeignWire, Inbound, Outbound
from support.door import GREETING, READY_OF_DEALER

FOREIGN = [
    pytest.param(b"GET / HTTP/1.1\r\n", id="another protocol"),
    pytest.param(GREETING.replace(b"\x7f\x03", b"\x7f\x02"), id="an older version"),
    pytest.param(GREETING.replace(b"NULL\0", b"CURVE"), id="a mechanism with keys"),
    pytest.param(GREETING + b"\x00\x01x", id="a message before the handshake"),
    pytest.param(GREETING + b"\x04\x06\x05ERROR", id="an error instead of a handshake"),
    pytest.param(GREETING + READY_OF_DEALER.replace(b"DEALER", b"PUSHER"), id="another socket"),
    pytest.param(GREETING + b"\x04\x0a\x05READY\x05a\x00\x00", id="a name that is cut off"),
    pytest.param(GREETING + b"\x04\x06\x05READY", id="no kind of socket"),
    pytest.param(GREETING + b"\x06" + (1 << 20).to_bytes(8, "big"), id="a large command"),
    pytest.param(GREETING + b"\x02" + (1 << 20).to_bytes(8, "big"), id="a large frame too early"),
    pytest.param(
        GREETING + READY_OF_DEALER + b"\x06" + (1 << 20).to_bytes(8, "big"),
        id="a large command behind the handshake",
    ),
    pytest.param(GREETING + READY_OF_DEALER + b"\x80\x01x", id="a flag that nobody knows"),
    pytest.param(
        GREETING + READY_OF_DEALER + b"\x02" + (limits.FRAME_BYTES_MAX + 1).to_bytes(8, "big"),
        id="a frame that is too large",
    ),
]


def router() -> Inbound:
    """A daemon's end that has shaken hands."""
    inbound = Inbound(b"ROUTER")
    assert inbound.feed(GREETING + READY_OF_DEALER) == []
    assert inbound.is_ready
    inbound.owed.clear()
    return inbound


def drained(outbound: Outbound, steps: Iterable[int] = ()) -> bytes:
    """All that is to go, taken in steps of so many bytes as long as there are any."""
    gone: list[bytes] = []
    sizes = iter(steps)
    while outbound:
        piece = outbound.next_piece()
        size = min(next(sizes, len(piece)), len(piece))
        gone.append(bytes(piece[:size]))
        outbound.went(size)
    return b"".join(gone)


def pieces_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Bytes cut at some places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(places)]


def test_two_ends_shake_hands() -> None:
    client, daemon = Inbound(b"DEALER"), Inbound(b"ROUTER")
    for _ in ("greeting", "ready"):
        to_daemon, to_client = bytes(client.owed), bytes(daemon.owed)
        client.owed.clear()
        daemon.owed.clear()
        assert client.feed(to_client) == daemon.feed(to_daemon) == []
    assert (client.is_ready, daemon.is_ready) == (True, True)
    assert (client.owed, daemon.owed) == (b"", b"")


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=8),
    st.lists(st.integers(0, 5000), max_size=12),
    st.lists(st.integers(1, 400), max_size=12),
)
def test_messages_arrive_whole_however_they_are_cut_on_their_way(
    messages: list[list[bytes]], cuts: list[int], steps: list[int]
) -> None:
    outbound = Outbound()
    for message in messages:
        outbound.put(message)
    data = drained(outbound, steps)
    inbound = Inbound(b"ROUTER")
    came: list[list[bytes]] = []
    for piece in pieces_of(GREETING + READY_OF_DEALER + data, cuts):
        came += inbound.feed(piece)
    assert came == messages


@given(st.binary(max_size=200), st.lists(st.integers(0, 400), max_size=6), st.booleans())
def test_whatever_comes_is_a_message_or_foreign_however_it_is_cut(
    data: bytes, cuts: list[int], is_greeted: bool
) -> None:
    whole = GREETING + READY_OF_DEALER + data if is_greeted else data
    outcomes: list[object] = []
    for pieces in ([whole] if whole else [], pieces_of(whole, cuts)):
        inbound, came = Inbound(b"ROUTER"), list[list[bytes]]()
        try:
            for piece in pieces:
                came += inbound.feed(piece)
            outcomes.append(came)
        except ForeignWire:
            outcomes.append("foreign")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("data", FOREIGN)
def test_what_is_not_for_this_socket_is_refused_as_soon_as_it_can_be_told(data: bytes) -> None:
    with pytest.raises(ForeignWire):
        Inbound(b"ROUTER").feed(data)


def test_the_first_byte_tells_another_protocol() -> None:
    with pytest.raises(ForeignWire):
        Inbound(b"ROUTER").feed(b"\x16")


def test_who_speaks_a_newer_version_speaks_this_one_too() -> None:
    inbound = Inbound(b"ROUTER")
    inbound.feed(GREETING.replace(b"\x7f\x03", b"\x7f\x04") + READY_OF_DEALER)
    assert inbound.is_ready


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("ROUTER", "DEALER"),
        ("ROUTER", "REQ"),
        ("ROUTER", "ROUTER"),
        ("DEALER", "ROUTER"),
        ("DEALER", "DEALER"),
        ("DEALER", "REP"),
    ],
)
def test_all_kinds_of_sockets_that_may_be_at_the_other_end_are_let_in(own: str, other: str) -> None:
    inbound = Inbound(own.encode())
    body = b"\x05READY\x0bSocket-Type" + len(other).to_bytes(4, "big") + other.encode()
    inbound.feed(GREETING + bytes((4, len(body))) + body)
    assert inbound.is_ready


def test_a_large_frame_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"x" * limits.RECORD_BYTES_MAX
    outbound, inbound = Outbound(), router()
    outbound.put([b"head", body])
    data = drained(outbound)
    looked: list[int] = []
    place = Inbound._place
    monkeypatch.setattr(
        Inbound, "_place", lambda self, data, at: looked.append(at) or place(self, data, at)
    )
    step = 64 * limits.KIB
    came = [each for at in range(0, len(data), step) for each in inbound.feed(data[at : at + step])]
    assert came == [[b"head", body]]
    assert len(looked) < 8


def test_a_frame_in_tiny_pieces_takes_hardly_more_memory_than_its_bytes() -> None:
    inbound = router()
    size, step = 300_000, 3
    inbound.feed(b"\x02" + size.to_bytes(8, "big"))
    body = b"".join(b"%03d" % (at % 1000) for at in range(0, size, step))
    # The second one as the first.
    for head in (b"", b"\x02" + size.to_bytes(8, "big")):
        inbound.feed(head)
        tracemalloc.start()
        for at in range(0, size - step, step):
            # Each a piece of its own, as the kernel gives it.
            assert inbound.feed(b"%03d" % (at % 1000)) == []
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert size < kept < 2 * size
        assert inbound.feed(body[-step:]) == [[body]]


def test_how_much_is_wanted_is_told() -> None:
    inbound = router()
    assert inbound.feed(b"\x02" + (1000).to_bytes(8, "big") + b"x" * 10) == []
    assert inbound.wanted == 990
    assert inbound.feed(b"y" * 90) == []
    assert inbound.wanted == 900
    assert inbound.feed(b"z" * 900) == [[b"x" * 10 + b"y" * 90 + b"z" * 900]]
    assert inbound.wanted == 2


def test_a_message_that_never_ends_is_kept_up_to_what_tells_that_it_is_too_long() -> None:
    inbound = router()
    for _ in range(3):
        assert inbound.feed(b"\x01\x01x" * limits.MESSAGE_FRAMES_MAX) == []
    [message] = inbound.feed(b"\x00\x04last")
    assert message == [b"x"] * limits.MESSAGE_FRAMES_MAX
    assert inbound.feed(b"\x00\x04next") == [[b"next"]]


def test_a_message_of_large_frames_is_kept_up_to_what_tells_that_it_is_too_large() -> None:
    inbound = router()
    record = b"x" * limits.RECORD_BYTES_MAX
    frame = b"\x03" + len(record).to_bytes(8, "big") + record
    for _ in range(6):
        assert inbound.feed(frame) == []
    [message] = inbound.feed(b"\x00\x00")
    total = sum(map(len, message))
    most = limits.MESSAGE_BYTES_MAX
    assert limits.BATCH_BYTES_MAX < most <= total < most + len(record)
    # The next one begins anew.
    assert inbound.feed(frame + b"\x00\x04last") == [[record, b"last"]]


def test_a_sign_of_life_is_answered_once_for_all_that_were_asked_for_together() -> None:
    inbound = router()
    assert inbound.feed(b"\x04\x0a\x04PING\x00\x0aabc" * 500 + b"\x00\x01m") == [[b"m"]]
    assert inbound.owed == b"\x04\x08\x04PONGabc"


def test_a_sign_of_life_that_is_asked_for_with_the_handshake_is_given_behind_it() -> None:
    inbound = Inbound(b"ROUTER")
    inbound.feed(GREETING + READY_OF_DEALER)
    handshake = bytes(inbound.owed)
    inbound = Inbound(b"ROUTER")
    inbound.feed(GREETING + READY_OF_DEALER + b"\x04\x0a\x04PING\x00\x0aabc" * 2)
    assert inbound.owed == handshake + b"\x04\x08\x04PONGabc"


def test_of_what_a_sign_of_life_is_to_repeat_no_more_comes_back_than_may_be_asked_for() -> None:
    inbound = router()
    ping = b"\x04PING\x00\x0a" + b"x" * 300
    inbound.feed(b"\x06" + len(ping).to_bytes(8, "big") + ping)
    assert inbound.owed == b"\x04\x15\x04PONG" + b"x" * 16


def test_commands_that_nobody_knows_are_passed_over() -> None:
    assert router().feed(b"\x04\x0a\x09SUBSCRIBE\x00\x01m") == [[b"m"]]


def test_what_has_gone_is_told_by_message() -> None:
    outbound = Outbound()
    ends = [outbound.put([b"x" * size]) for size in (5, 300, 70_000)]
    assert outbound.messages == 3
    assert outbound.unsent == ends[-1]
    while outbound:
        outbound.next_piece()
        outbound.went(1)
        assert outbound.messages == sum(end > outbound.gone for end in ends)
        assert outbound.unsent == ends[-1] - outbound.gone
    assert outbound.messages == 0
    assert outbound.gone == ends[-1]


def test_small_messages_go_together_and_large_frames_are_not_copied() -> None:
    outbound = Outbound()
    large = b"x" * (2 * limits.GATHERED_BYTES_MAX)
    for message in ([b"a"], [b"b", b"c"], [b"head", large], [b"d"]):
        outbound.put(message)
    pieces: list[bytes | memoryview] = []
    while outbound:
        pieces.append(outbound.next_piece())
        if pieces[-1] is large:
            outbound.went(5)
            rest = outbound.next_piece()
            assert isinstance(rest, memoryview)
            assert rest.obj is large
            outbound.went(len(rest))
            continue
        outbound.went(len(pieces[-1]))
    assert any(piece is large for piece in pieces)
    assert len(pieces) == 3
    assert bytes(pieces[0]).startswith(b"\x00\x01a\x01\x01b\x00\x01c\x01\x04head")


def test_a_message_that_cannot_be_put_leaves_nothing_behind() -> None:
    outbound = Outbound()
    with pytest.raises(TypeError):
        outbound.put([b"begin", None])  # type: ignore[list-item]
    assert not outbound
    assert outbound.messages == 0
