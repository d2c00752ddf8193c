"""Recovery points, trusted only when they are whole."""

from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.context import ContextCounters
from stenod.core.recovery_point import decode_recovery_point, encode_recovery_point

COUNTERS = ContextCounters(token_count=7, pending_chars=8, n_checkpoints=9, has_system_prompt=True)
MARK = encode_recovery_point(generation=1, inode=2, size=300, crc=4, lines=5, counters=COUNTERS)


def test_a_mark_comes_back_as_it_was() -> None:
    mark = decode_recovery_point(MARK)

    assert mark is not None
    assert (mark.generation, mark.inode, mark.bytes, mark.crc, mark.lines) == (1, 2, 300, 4, 5)
    assert mark.counters() == COUNTERS


def test_a_recovery_point_has_the_youngest_key_if_known() -> None:
    known = encode_recovery_point(
        generation=1, inode=2, size=3, crc=4, lines=5, counters=COUNTERS, youngest_key_ms=0
    )
    decoded = [decode_recovery_point(data) for data in (MARK, known)]

    assert [mark.youngest_key_ms for mark in decoded if mark is not None] == [None, 0]


def test_a_mark_that_is_cut_at_any_byte_is_none() -> None:
    for cut in range(len(MARK)):
        assert decode_recovery_point(MARK[:cut]) is None
        assert decode_recovery_point(MARK[:cut] + bytes(len(MARK) - cut)) is None


def test_a_mark_with_one_wrong_byte_is_none() -> None:
    for place, byte in enumerate(MARK):
        wrong = bytearray(MARK)
        wrong[place] = ord("0") if byte != ord("0") else ord("1")

        assert decode_recovery_point(bytes(wrong)) is None


@given(st.binary(max_size=40))
def test_other_bytes_are_no_mark(data: bytes) -> None:
    assert decode_recovery_point(data) is None
