"""Blocks of whole lines by line number or offset: every line once."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import blocks, limits
from steno_protocol.blocks import read_block, read_lines, seek, split_lines
from steno_protocol.errors import BadRequest


@dataclass(slots=True)
class Bytes:
    """A view of bytes in memory, which counts the reads."""

    data: bytes
    reads: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, size: int, offset: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + size]

    def release(self) -> None: ...


LINES = st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"") + b"\n"))


@given(LINES, st.integers(1, 40), st.booleans())
def test_blocks_one_after_another_are_the_whole_file(
    lines: list[bytes], bytes_max: int, by_offset: bool
) -> None:
    view = Bytes(b"".join(lines))
    line, offset, found = 0, 0, b""
    while True:
        block = read_block(view, line, offset if by_offset else None, bytes_max)
        assert (block.first, block.next) == (line, line + block.data.count(b"\n"))
        if not block.data:
            break
        found += block.data
        line, offset = block.next, block.offset
        assert offset == len(found)

    assert found == view.data
    assert line == len(lines)


@given(LINES, st.integers(0, 30))
def test_a_line_is_found_by_its_number(lines: list[bytes], number: int) -> None:
    view = Bytes(b"".join(lines))
    there = min(number, len(lines))

    assert seek(view, number) == (there, len(b"".join(lines[:there])))


@given(LINES, st.integers(0, 9), st.integers(0, 30), st.integers(1, 60))
def test_a_block_ends_before_the_line_that_it_is_to_end_at(
    lines: list[bytes], first: int, until: int, bytes_max: int
) -> None:
    block = read_block(Bytes(b"".join(lines)), first, None, bytes_max, until)

    assert block.next <= max(until, block.first)
    assert block.data == b"".join(lines[block.first : block.next])


@given(LINES, st.integers(0, 9), st.none() | st.integers(0, 30), st.integers(1, 60))
def test_lines_are_those_of_the_block(
    lines: list[bytes], first: int, until: int | None, bytes_max: int
) -> None:
    view = Bytes(b"".join(lines))
    line, offset = seek(view, first)
    block = read_block(view, line, offset, bytes_max, until)
    found, found_lines = read_lines(view, line, offset, bytes_max, until)

    assert found_lines == split_lines(block.data)
    assert (found.first, found.next, found.offset) == (block.first, block.next, block.offset)


def test_lines_before_an_end_are_read_once() -> None:
    view = Bytes(b"one\ntwo\nthree\n")

    assert read_lines(view, 1, 4, 100, until=2)[1] == [b"two\n"]
    assert view.reads == 1


def test_one_line_of_any_length_is_returned() -> None:
    view = Bytes(b"x" * 5000 + b"\n" + b"y\n")

    assert read_block(view, 0, None, 1).data == b"x" * 5000 + b"\n"


def test_an_offset_that_is_no_start_of_a_line_is_refused() -> None:
    for offset in (1, 3, 9):
        with pytest.raises(BadRequest, match="not the start of a line"):
            read_block(Bytes(b"one\ntwo\n"), 1, offset, 100)


def test_a_line_that_no_message_can_hold_is_passed_over_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "_LINE_BYTES_MAX", 50)
    monkeypatch.setattr(limits, "BLOCK_BYTES", 16)
    view = Bytes(b"one\n" + b"x" * 99 + b"\ntwo\n")

    block = read_block(view, 1, 4, 10)

    assert (block.first, block.next, block.data, block.skipped) == (1, 2, b"", 1)
    assert read_block(view, 2, block.offset, 10).data == b"two\n"
