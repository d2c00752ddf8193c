"""Readers that continue from the file after the first block."""

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno._sansio.reading import LineReader
from steno_protocol import replies
from steno_protocol.blocks import read_block
from steno_protocol.positions import Position

LINES = st.lists(
    st.binary(max_size=9).map(lambda data: data.replace(b"\n", b"") + b"\n"), max_size=40
)
MINE, OTHER = "boot/1/2", "boot/1/3"


class Bytes(msgspec.Struct):
    """Bytes of a file, as the daemon sees them and as the reader that opened it."""

    data: bytes
    identity: str = MINE
    size: int = 0
    reads_left: int = 1000

    def read(self, size: int, offset: int) -> bytes:
        self.reads_left -= 1
        if self.reads_left < 0:
            raise OSError(errno.EIO, "broken")
        return self.data[offset : min(offset + size, self.size)]


class Answers(msgspec.Struct):
    """A daemon of one file, of which there is more at each question."""

    sizes: list[int]
    file: Bytes
    identity: str = MINE
    blocks: int = 0

    def answer(self, reader: LineReader) -> bool:
        command = reader.next_command()
        if command is None:
            return False
        self.file.size = self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]
        line = Position.parse(command.after or "0:0").line
        until = Position.parse(command.until).line if command.until else None
        block = read_block(self.file, line, command.offset, 16, until)
        if command.opened == self.identity:
            assert command.offset is not None
            block = msgspec.structs.replace(
                block, first=line, next=line, offset=command.offset, data=b""
            )
        self.blocks += bool(block.data)
        is_end = block.offset == self.file.size
        source = replies.Source(path="there", identity=self.identity, size=self.file.size)
        reply = replies.Lines(
            first=f"0:{block.first}",
            next=f"0:{block.next}",
            head=f"0:{block.next}" if is_end else None,
            offset=block.offset,
            source=None if is_end else source,
        )
        reader.take(reply, block.data)
        return True


def read_all(reader: LineReader, daemon: Answers, file: Bytes | None) -> list[bytes]:
    """Read block after block to the end, as a client does."""
    while True:
        if reader.has_file and reader.take_from_file(16):
            continue
        if not daemon.answer(reader):
            return [line for _, line in reader.lines]
        if reader.source is not None:
            reader.use(file)


@given(LINES, st.data(), st.integers(0, 30))
def test_every_line_comes_once_from_growing_and_unreadable_files(
    lines: list[bytes], data: st.DataObject, reads: int
) -> None:
    ends: list[int] = [len(b"".join(lines[:count])) for count in range(len(lines) + 1)]
    sizes = [*sorted(data.draw(st.lists(st.sampled_from(ends), max_size=4))), ends[-1]]
    least = lines[: ends.index(sizes[0])]
    whole = b"".join(lines)
    file = Bytes(whole, reads_left=reads)
    until = data.draw(st.none() | st.integers(0, len(lines)))
    reader = LineReader("demo", None, None if until is None else Position(0, until))

    found = read_all(reader, Answers(sizes, Bytes(whole, reads_left=10_000)), file)

    assert found == lines[: len(found)]
    assert [cursor.line for cursor, _ in reader.lines] == list(range(len(found)))
    assert len(found) >= len(least[:until])
    assert until is None or len(found) <= until


@pytest.mark.parametrize("identity", [OTHER, MINE])
def test_only_the_file_that_the_daemon_names_is_read(identity: str) -> None:
    lines = [b"%d\n" % number for number in range(100)]
    size = len(b"".join(lines))
    daemon = Answers([size], Bytes(b"".join(lines)), MINE)
    # Another file of the same name, as it lies there after a rewrite.
    file = Bytes(b"".join(lines) if identity == MINE else b"x" * size, identity)

    assert read_all(LineReader("demo", None), daemon, file) == lines
    assert (daemon.blocks == 1) == (identity == MINE)


def test_a_file_that_gives_nothing_is_not_asked_again() -> None:
    lines = [b"%d\n" % number for number in range(100)]
    daemon = Answers([len(b"".join(lines))], Bytes(b"".join(lines)))
    # Cut behind the first block: it ends like a file that has been read, and is none.
    file = Bytes(b"".join(lines)[:16])
    reader = LineReader("demo", None)
    assert read_all(reader, daemon, file) == lines
    assert 1000 - file.reads_left <= 3
