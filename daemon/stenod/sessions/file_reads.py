"""Reads of session files, as lines or as a file reference."""

from functools import cache

import msgspec

import steno_system as system
from steno_protocol import paths
from steno_protocol.blocks import read_block, seek_last
from steno_protocol.commands import Read, ReadStream
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.replies import Lines, Source
from stenod.store.handles import FileView


class Readable(msgspec.Struct, frozen=True):
    """The readable part of one generation of a file.

    Attributes:
        view: its bytes; the reader releases it.
        generation: the generation.
        head: its head, if that is known without counting lines.
        path: the path of the file when the view was created.
        is_present: the generation is the present one.
    """

    view: FileView
    generation: int
    head: Position | None
    path: str
    is_present: bool = True

    def answer(self, command: Read, *, is_local: bool) -> tuple[Lines, bytes]:
        """Return the reply and its block; blocks.

        Args:
            command: the command.
            is_local: the reader is on this machine, and may get the path of the file.

        Raises:
            BadRequest: `until` is in another generation, or `offset` is not the start of a line.
        """
        source = self._source() if is_local else None
        line = 0 if command.after is None else Position.parse(command.after).line
        until = _last_line(command, self.generation)
        offset, wanted = command.offset, command.bytes_max
        if isinstance(command, ReadStream) and command.last is not None and self.head is not None:
            line = max(0, self.head.line - command.last)
            count = self.head.line - line
            offset = seek_last(self.view, self.view.size, count) if line else 0
        if source is not None and command.opened == source.identity:
            # A reader that has opened the file itself gets the offset without lines.
            until, wanted = line, 1
        block = read_block(self.view, line, offset, wanted, until)
        is_end = block.offset == self.view.size
        head = self.head
        if head is None and is_end:
            head = Position(self.generation, block.next)
        body = Lines(
            first=str(Position(self.generation, block.first)),
            next=str(Position(self.generation, block.next)),
            head=str(head) if head is not None else None,
            offset=block.offset,
            skipped=block.skipped,
            source=None if is_end else source,
            present=self.is_present,
        )
        return body, block.data

    def _source(self) -> Source | None:
        stat = self.view.stat()
        identity = paths.file_identity(boot_id(), stat.device, stat.inode)
        if identity is None:
            return None
        return Source(path=self.path, identity=identity, size=self.view.size)


@cache
def boot_id() -> str:
    """Return an identifier of this machine and its boot; empty if it cannot be read."""
    return system.boot_id()


def _last_line(command: Read, generation: int) -> int | None:
    """Return the number of the line to end before, None for the end of the generation."""
    if command.until is None:
        return None
    until = Position.parse(command.until)
    if until.generation != generation:
        raise BadRequest(
            f"until {until} is not in generation {generation}, which is read: read each generation"
            " by itself",
            session=command.session,
        )
    return until.line
