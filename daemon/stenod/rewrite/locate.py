"""Where a checkpoint lies: looked up along the lineage of the present generation."""

import msgspec

from steno_protocol import limits, records
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from stenod.core import timeline
from stenod.core.replay import Replay
from stenod.core.seek_index import SeekIndex
from stenod.recovery.key_lookup import blocks
from stenod.store.log import Copy, Log


class Located(msgspec.Struct, frozen=True):
    """The line of a checkpoint, and all that is before it.

    Attributes:
        generation: the generation it lies in.
        size: bytes before it.
        replay: what the lines before it say.
    """

    generation: int
    size: int
    replay: Replay

    @property
    def cursor(self) -> Position:
        """The position of the checkpoint's line."""
        return Position(self.generation, self.replay.lines)

    @property
    def before(self) -> Copy:
        """The bytes before it."""
        return Copy(self.generation, 0, self.size)


def locate(
    log: Log, checkpoint_id: int, count: int, session: str, milestones: SeekIndex | None = None
) -> Located:
    """Find a checkpoint.

    Args:
        log: the session's files.
        checkpoint_id: its id.
        count: how many ids the session has given out.
        session: its id, for messages.
        milestones: of the present generation, if any are known.

    Raises:
        NotFound: it does not exist; the message names those that do.
    """
    if not 0 <= checkpoint_id < count:
        valid = f"0 to {count - 1} exist" if count else "the session has none yet"
        raise NotFound(f"checkpoint {checkpoint_id} does not exist: {valid}", session=session)
    found = _find(log, checkpoint_id, milestones or SeekIndex())
    if found is None:
        raise NotFound(
            f"checkpoint {checkpoint_id} is not in the session although ids go up to {count - 1}:"
            " `steno timeline` shows which generation may hold it",
            session=session,
        )
    return found


def check_batch_end(log: Log, generation: int, size: int, session: str) -> None:
    """Refuse to end a session after `size` bytes of a generation if that is inside a batch.

    Raises:
        BadRequest: it is.
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
    """The end of the last line before `size`: all of it, or as much as shows its stamp."""
    start = max(0, size - limits.FINGERPRINT_BYTES)
    return split_lines(log.read(generation, start, size - start))[-1]


def _find(log: Log, checkpoint_id: int, milestones: SeekIndex) -> Located | None:
    entries = timeline.decode(log.timeline())
    for generation in timeline.lineage(entries, log.generation, checkpoint_id):
        if generation != log.generation and generation not in log.generations():
            continue  # `gc` gave it up, with the checkpoints in it
        replay, begin = Replay(), 0
        known = milestones.before_checkpoint(checkpoint_id)
        if generation == log.generation and known is not None:
            replay, begin = Replay(known.lines, known.counters()), known.offset
        for offset, block in blocks(log, generation, begin):
            start = replay.feed(block, before=checkpoint_id)
            if start is not None:
                # Its id is the next one once it is cut off, whatever ids the lines before it have.
                counters = replay.counters
                counters.n_checkpoints = max(counters.n_checkpoints, checkpoint_id)
                return Located(generation, offset + start, replay)
    return None
