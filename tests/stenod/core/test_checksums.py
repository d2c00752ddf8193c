"""Checksums of blocks: a changed byte is found in its block."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.checksums import BlockChecksums

BLOCK = 8


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(limits, "CHECKSUM_BLOCK_BYTES", BLOCK)
    yield
    patch.undo()


def of(*pieces: bytes) -> BlockChecksums:
    checksums = BlockChecksums()
    for piece in pieces:
        checksums.feed(piece)
    return checksums


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_each_block_has_its_own_crc(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    blocks = [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]

    assert of(*pieces).known == [zlib.crc32(block) for block in blocks]


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_changed_byte_is_found_in_its_block(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, len(data) - 1))
    changed = bytearray(data)
    changed[place] ^= 1

    found = list(of(data).differences([bytes(changed), b"appended since"]))

    start = place // BLOCK * BLOCK
    assert found == [(start, min(BLOCK, len(data) - start))]


def test_adjacent_changed_blocks_are_one_difference() -> None:
    data = bytes(5 * BLOCK)
    changed = data[:BLOCK] + b"x" * 2 * BLOCK + data[3 * BLOCK :]

    assert list(of(data).differences([changed])) == [(BLOCK, 2 * BLOCK)]


@given(st.binary(max_size=60), st.integers(0, 70), st.binary(max_size=30))
def test_kept_prefix_keeps_the_checksums_of_its_whole_blocks(
    data: bytes, size: int, new: bytes
) -> None:
    kept = of(data).whole_blocks(size)
    kept.feed(data[kept.size : size] + new)

    assert kept.known == of(data[:size] + new).known


def test_unknown_blocks_are_not_compared() -> None:
    checksums = BlockChecksums(BLOCK + 2)
    checksums.feed(b"x" * BLOCK)

    assert checksums.known == [None, None, zlib.crc32(b"xx")]
    assert list(checksums.differences([bytes(2 * BLOCK) + b"xy"])) == [(2 * BLOCK, 2)]
