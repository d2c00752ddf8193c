"""A reader of a session's lines, block by block, without I/O.

The first block comes from the daemon, with the path of the file. If the reader can open that file,
and the daemon then confirms its identity and its readable size, the rest comes from the file.
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from steno._sansio.pending import Pending
from steno._sansio.requests import PositionLike, position_text
from steno.values import Record, decode_object
from steno_protocol import limits
from steno_protocol.blocks import Bytes, read_lines, split_lines
from steno_protocol.commands import Read
from steno_protocol.errors import BadRequest, Corrupt, NotFound
from steno_protocol.positions import Position, new_position
from steno_protocol.replies import Lines, Source


class OpenedFile(Bytes, Protocol):
    """A file that the reader has opened by itself.

    Attributes:
        identity: identifies the file.
        size: its readable bytes; 0 until the daemon has sent it.
    """

    identity: str
    size: int


class LineQueue:
    """Lines in order, to be taken one by one with their cursors or a block at a time without."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Position, deque[bytes]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[tuple[Position, bytes]]:
        for first, lines in self._blocks:
            for number, line in enumerate(lines, first.line):
                yield Position(first.generation, number), line

    def add(self, first: Position, lines: list[bytes]) -> None:
        """Lines that follow one another, the first of them at `first`."""
        if lines:
            self._blocks.append((first, deque(lines)))

    def popleft(self) -> tuple[Position, bytes]:
        """The next line and its cursor."""
        first, lines = self._blocks.popleft()
        line = lines.popleft()
        if lines:
            self._blocks.appendleft((Position(first.generation, first.line + 1), lines))
        return first, line

    def pop_block(self) -> tuple[Position, deque[bytes]]:
        """The next lines that follow one another, and the cursor of the first of them."""
        return self._blocks.popleft()

    def put_back(self, first: Position, lines: deque[bytes]) -> None:
        """Return the rest of a popped block."""
        if lines:
            self._blocks.appendleft((first, lines))


class LineReader:
    """The lines between two positions of one generation, in order.

    Attributes:
        lines: received lines that were not taken: cursor and bytes, newline included.
        damaged: how many lines were skipped so far.
        ahead: the request for the next block, when it was sent ahead of its use.
        source: the file that a block came from, until it was opened or could not be.
    """

    def __init__(
        self, session: str, after: PositionLike | None, until: PositionLike | None = None
    ) -> None:
        self.lines: LineQueue = LineQueue()
        self.damaged: int = 0
        self.ahead: Pending | None = None
        self.source: Source | None = None
        self._file: OpenedFile | None = None
        self._may_open = True
        self._session = session
        self._after = None if after is None else position_text(after)
        self._until = None if until is None else position_text(until)
        self._offset: int | None = None
        self._bytes_max = limits.BLOCK_BYTES
        self._is_done = False

    @property
    def generation(self) -> int:
        """The generation that is read; known after the first block."""
        return 0 if self._after is None else Position.parse(self._after).generation

    @property
    def end(self) -> Position | None:
        """The position behind the last line, also a skipped one; None before the first block."""
        return None if self._after is None else Position.parse(self._after)

    def next_command(self) -> Read | None:
        """The command that requests the next block, or None at the end."""
        if self._is_done:
            return None
        return Read(
            session=self._session,
            after=self._after,
            until=self._until,
            offset=self._offset,
            bytes_max=self._bytes_max,
            opened=self._file.identity if self._file is not None else None,
        )

    def take(self, reply: Lines, block: bytes) -> None:
        """Take in the answer to `next_command`."""
        lines = split_lines(block)
        end = Position.parse(reply.next)
        # Counted from the end: lines that were skipped come before the block.
        first = end.line - len(lines)
        self.lines.add(Position(end.generation, first), lines)
        self.damaged += reply.skipped
        stands_still = reply.next == self._after and not lines
        self._after = reply.next
        self._offset = reply.offset
        # The first lines arrive soon; a long read sends fewer requests.
        self._bytes_max = min(2 * self._bytes_max, limits.READ_AHEAD_BYTES_MAX)
        self._believe(reply.source)
        is_end = reply.next in (reply.head, self._until)
        self._is_done = is_end or (stands_still and not self.has_file)

    def use(self, file: OpenedFile | None) -> None:
        """Take the opened file of the daemon's path, or None if it could not be opened."""
        self.source = None
        self._file = file
        self._may_open = file is not None

    @property
    def has_file(self) -> bool:
        """True while the next lines may be read from the file."""
        return (
            self._file is not None and self._offset is not None and self._offset < self._file.size
        )

    def take_from_file(self, bytes_max: int) -> bool:
        """Take in the next lines of the file; blocks.

        Returns:
            False when it had no line, so that only the daemon can report the reason.
        """
        file, offset = self._file, self._offset
        assert file is not None
        assert offset is not None
        assert self._after is not None
        after = Position.parse(self._after)
        until = Position.parse(self._until).line if self._until is not None else None
        try:
            block, lines = read_lines(file, after.line, offset, bytes_max, until)
        except (OSError, BadRequest):
            self.use(None)
            return False
        if block.next == after.line:
            self.use(None)
            return False
        self.lines.add(Position(after.generation, block.first), lines)
        self.damaged += block.skipped
        self._after = str(Position(after.generation, block.next))
        self._offset = block.offset
        self._is_done = self._after == self._until
        return True

    def _believe(self, source: Source | None) -> None:
        """Compare the daemon's statement about the file with the opened one."""
        if self._file is None:
            self.source = source if self._may_open else None
        elif source is not None and source.identity == self._file.identity:
            self._file.size = source.size
        else:
            self._file = None

    def records(self, *, strict: bool) -> Iterator[Record]:
        """Yield the records of the received lines.

        Raises:
            Corrupt: `strict`, and the next line is no JSON object.
        """
        while self.lines:
            (generation, number), lines = self.lines.pop_block()
            try:
                while lines:
                    line = lines.popleft()
                    cursor = new_position(Position, (generation, number))
                    number += 1
                    value = decode_object(line)
                    if value is not None:
                        yield Record(cursor, value, line)
                    elif line.strip():
                        self._pass_over(cursor, strict=strict)
            finally:
                self.lines.put_back(Position(generation, number), lines)

    def _pass_over(self, cursor: Position, *, strict: bool) -> None:
        if strict:
            raise Corrupt(
                f"the line at {cursor} is no JSON object: read on behind it, or without strict,"
                " which skips such lines",
                session=self._session,
            )
        self.damaged += 1


def check_reached(session: str, position: Position, end: Position) -> None:
    """Raise NotFound when the lines up to `position` ended before it, at `end`."""
    if end < position:
        raise NotFound(
            f"there is no position {position}: generation {end.generation} ends at {end}; name"
            " that, or one before it",
            session=session,
        )
