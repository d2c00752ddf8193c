"""Messages in parts: order, loss and bounds."""

import pytest

from steno_protocol import limits
from steno_protocol.errors import Busy, TooLarge
from steno_protocol.messages import Part, decode_requests, part_of, split_message
from stenod.api.assembly import Assemblies
from support.framing import command_frames

RECORD = b'{"role":"user","content":"%b"}' % (b"x" * (3 * limits.PART_BYTES))
MESSAGE = command_frames(b"r1", "append", RECORD, session="demo", key="k1")


def parts(message: list[bytes] = MESSAGE) -> list[tuple[Part, bytes]]:
    """The parts of a message, decoded."""
    found: list[tuple[Part, bytes]] = []
    for frames in split_message(message):
        part = part_of(frames)
        assert part is not None
        assert max(map(len, frames)) <= limits.PART_BYTES
        found.append((part, frames[1]))
    return found


def test_parts_are_the_message() -> None:
    assemblies = Assemblies()
    *firsts, last = [assemblies.add("peer", *each) for each in parts()]
    assert firsts == [None] * 3
    assert isinstance(last, list)
    assert decode_requests(last) == decode_requests(MESSAGE)
    assert assemblies.size == 0


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_message_with_a_lost_part_is_asked_for_again(lost: int) -> None:
    assemblies = Assemblies()
    sent = parts()
    del sent[lost]
    assert isinstance([assemblies.add("peer", *each) for each in sent][-1], Busy)
    assert assemblies.size == 0
    assert isinstance([assemblies.add("peer", *each) for each in parts()][-1], list)


def test_peers_do_not_mix_and_a_gone_peer_is_forgotten() -> None:
    assemblies = Assemblies()
    for each in parts():
        answers = [assemblies.add(peer, *each) for peer in ("one", "other")]
    assert answers[0] == answers[1] != []
    assemblies.add("one", *parts()[0])
    assemblies.forget("one")
    assert assemblies.size == 0


def test_unfinished_messages_take_bounded_memory() -> None:
    assemblies = Assemblies()
    data = bytes(limits.PART_BYTES)
    most = limits.ASSEMBLIES_BYTES_MAX // limits.PART_BYTES
    for peer in range(2 * most):
        assert assemblies.add(peer, Part("r", 0), data) is None
        assert assemblies.size <= limits.ASSEMBLIES_BYTES_MAX
    assert assemblies.size == most * limits.PART_BYTES
    assert assemblies.add(399, Part("r", len(data)), data) is None
    assert isinstance(assemblies.add(0, *parts()[-1]), Busy)


def test_message_over_the_limit_is_refused_as_too_large() -> None:
    assemblies = Assemblies()
    data = bytes(limits.PART_BYTES)
    for offset in range(0, limits.ASSEMBLED_BYTES_MAX + len(data), len(data)):
        assert assemblies.add("peer", Part("r", offset), data) is None
        assert assemblies.size <= limits.ASSEMBLED_BYTES_MAX
    last = Part("r", limits.ASSEMBLED_BYTES_MAX, parts()[-1][0].requests)
    assert isinstance(assemblies.add("peer", last, data), TooLarge)
