"""Search for a checkpoint along the lineage of the present generation."""

import msgspec

from steno_protocol import limits, records
from steno_protocol.blocks import split_lines
from steno_protocol.errors import BadRequest, Conflict, NotFound
from steno_protocol.positions import Position
from stenod.core import timeline
from stenod.core.checkpoint_search import Search
from stenod.core.checkpoint_survival import Target
from stenod.core.machine import Machine
from stenod.core.replay import Replay
from stenod.core.seek_index import SeekIndex
from stenod.recovery.key_lookup import blocks
from stenod.store.log import Copy, Log


class Located(msgspec.Struct, frozen=True):
    """A line, mostly of a checkpoint, and the numbers before it.

    Attributes:
        generation: its generation.
        size: bytes before it.
        replay: the replay of the lines before it.
    """

    generation: int
    size: int
    replay: Replay

    @property
    def cursor(self) -> Position:
        """The position of the line."""
        return Position(self.generation, self.replay.lines)

    @property
    def before(self) -> Copy:
        """The bytes before it."""
        return Copy(self.generation, 0, self.size)


def locate(log: Log, machine: Machine, target: Target) -> Located:
    """Find a checkpoint.

    Args:
        log: the session's files.
        machine: the state of the session.
        target: the checkpoint.

    Raises:
        NotFound: the checkpoint does not exist; the message names existing ids, or what removed it.
        Conflict: another checkpoint has its id.
    """
    entries = timeline.decode(log.timeline())
    search = Search(
        machine.session, entries, machine.head, machine.counters.n_checkpoints, target,
        lambda generation: _line_in(log, generation, target.id),
    )  # fmt: skip
    search.check_session()
    for generation in search.generations():
        if generation != log.generation and generation not in log.generations():
            continue  # `gc` removed it, with the checkpoints in it
        index = machine.seek_index if generation == log.generation else SeekIndex()
        found = _find(log, generation, target.id, index)
        if found is not None:
            search.check_line(found.cursor)
            return found
    raise search.missing()


def locate_line(log: Log, machine: Machine, position: Position) -> Located:
    """Find a line of the present generation, with the numbers before it.

    Raises:
        Conflict: the position belongs to another generation.
        NotFound: the session ends before it.
    """
    head = machine.head
    if position.generation != head.generation:
        raise Conflict(
            f"the position {position} is not of the present generation {head.generation}: the"
            " session was rewritten since; read it again, and choose a position of now",
            session=machine.session,
            head=str(head),
        )
    replay, size = Replay(), 0
    for _, block in blocks(log, head.generation):
        if replay.lines == position.line:
            break
        lines = split_lines(block)[: position.line - replay.lines]
        taken = b"".join(lines)
        replay.feed(taken)
        size += len(taken)
    if replay.lines != position.line or position.line >= head.line:
        raise NotFound(
            f"there is no line {position}: the session ends at {head}",
            session=machine.session,
            head=str(head),
        )
    return Located(head.generation, size, replay)


def check_batch_end(log: Log, generation: int, size: int, session: str) -> None:
    """Refuse to cut a generation after `size` bytes if that splits a batch.

    Raises:
        BadRequest: the cut is inside a batch.
    """
    if size == 0:
        return
    stamp = records.stamp_of(_last_line(log, generation, size))
    if stamp is not None and stamp.index + 1 < stamp.size:
        raise BadRequest(
            f"the session would end inside the batch {stamp.key!r}, which is all or nothing:"
            " choose a checkpoint before or after it",
            session=session,
        )


def _last_line(log: Log, generation: int, size: int) -> bytes:
    """Return the last line before `size`, or at least its end with the stamp."""
    start = max(0, size - limits.FINGERPRINT_BYTES)
    return split_lines(log.read(generation, start, size - start))[-1]


def _line_in(log: Log, generation: int, checkpoint_id: int) -> int | None:
    if generation not in log.generations():
        return None
    found = _find(log, generation, checkpoint_id, SeekIndex())
    return None if found is None else found.cursor.line


def _find(log: Log, generation: int, checkpoint_id: int, seek_index: SeekIndex) -> Located | None:
    replay, begin = Replay(), 0
    known = seek_index.before_checkpoint(checkpoint_id)
    if known is not None:
        replay, begin = Replay(known.lines, known.counters()), known.offset
    for offset, block in blocks(log, generation, begin):
        start = replay.feed(block, before=checkpoint_id)
        if start is not None:
            # The cut frees its id, which is the next one unless earlier lines have a higher.
            counters = replay.counters
            counters.n_checkpoints = max(counters.n_checkpoints, checkpoint_id)
            return Located(generation, offset + start, replay)
    return None
