"""Where a fork cuts a session: one instant, as a place in its context and a place in its wire file.

Everything here blocks; nothing is changed.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from steno_protocol import limits, records
from steno_protocol.blocks import seek
from steno_protocol.commands import Fork
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.happenings import Happening
from steno_protocol.lines import count_lines
from steno_protocol.positions import Position
from stenod.core import timeline
from stenod.core.replay import Replay
from stenod.core.turns import Turn, WireScan, scan_wire, user_turns
from stenod.lookup import blocks_of
from stenod.store.handles import FileView


class Captured(msgspec.Struct, frozen=True):
    """A session as it was at one moment, for as long as its reader wants.

    Attributes:
        session: its id, for messages.
        generation: its present generation then.
        context: that generation's durable bytes.
        wire: the durable bytes of its wire file, which are not younger.
        checkpoints: how many checkpoint ids it had given out.
        past: opens the file that a generation was left behind in.
        timeline: what had happened to it.
        incarnation: which of the sessions that had its id it was.
    """

    session: str
    generation: int
    context: FileView
    wire: FileView
    checkpoints: int
    past: Callable[[int], FileView]
    timeline: list[Happening]
    incarnation: str

    @contextmanager
    def view(self, generation: int) -> Generator[FileView]:
        """One generation, for a while.

        Raises:
            NotFound: there is no such generation.
        """
        if generation == self.generation:
            yield self.context
            return
        if generation > self.generation:
            raise NotFound(
                f"there is no generation {generation} yet: the present one is {self.generation}",
                session=self.session,
            )
        view = self.past(generation)
        try:
            yield view
        finally:
            view.release()


class Instant(msgspec.Struct, frozen=True):
    """One instant of a session.

    Attributes:
        at: the position of its context.
        size: bytes of that generation before it.
        wire_lines: lines of its wire file before it.
        wire_size: their bytes.
        next_id: the id of the next checkpoint, unless the lines before the cut tell of a higher.
    """

    at: Position
    size: int
    wire_lines: int
    wire_size: int
    next_id: int = 0


def cut(source: Captured, command: Fork) -> Instant:
    """Find the instant that a fork names.

    Raises:
        BadRequest: it names more than one, or one inside a batch; the message names the nearest.
        NotFound: there is no such position, checkpoint or turn; the message names those that are.
    """
    named = [command.at, command.checkpoint_id, command.turn, command.undo]
    if sum(name is not None for name in named) > 1:
        raise BadRequest(
            "a fork is at a position, before a checkpoint, after a turn or before the last turns:"
            " give one of at, checkpoint_id, turn and undo",
            session=source.session,
        )
    if command.at is not None:
        return _at_position(source, Position.parse(command.at))
    if command.checkpoint_id is not None:
        return _before_checkpoint(source, command.checkpoint_id)
    if command.turn is not None or command.undo is not None:
        return _at_turn(source, command)
    return _now(source, scan_wire(blocks_of(source.wire.read)))


def _now(source: Captured, wire: WireScan) -> Instant:
    size, lines = _end(source.context)
    return Instant(Position(source.generation, lines), size, wire.lines, wire.size)


def _end(view: FileView) -> tuple[int, int]:
    """Bytes and number of a view's whole lines."""
    size, lines = 0, 0
    for offset, block in blocks_of(view.read):
        size, lines = offset + len(block), lines + count_lines(block)
    return size, lines


def _at_position(source: Captured, at: Position) -> Instant:
    size = _size_before(source, at)
    wire = scan_wire(blocks_of(source.wire.read), at)
    if wire.later is not None:
        return Instant(at, size, wire.later[1], wire.later[0])
    is_now = at.generation == source.generation and _end(source.context)[1] == at.line
    if is_now or not wire.unjoined:
        return Instant(at, size, wire.lines, wire.size)
    return _by_turn(source, at, size, wire)


def _by_turn(source: Captured, at: Position, size: int, wire: WireScan) -> Instant:
    """Cut a wire file that does not say when its events were: before the turn that is not there."""
    with source.view(at.generation) as view:
        turns = sum(offset < size for offset, _ in user_turns(blocks_of(view.read)))
    if turns >= len(wire.turns):
        return Instant(at, size, wire.lines, wire.size)
    turn = wire.turns[turns]
    if turn.offset <= wire.joined:
        return Instant(at, size, wire.joined_lines, wire.joined)
    return Instant(at, size, turn.line, turn.offset)


def _size_before(source: Captured, at: Position) -> int:
    """Bytes before a position, which has to be there and between two batches."""
    with source.view(at.generation) as view:
        lines, size = seek(view, at.line)
        if lines < at.line:
            raise NotFound(
                f"the position {at} does not exist: generation {at.generation} has the positions"
                f" {at.generation}:0 to {at.generation}:{lines}",
                session=source.session,
            )
        _check_batch(source, view, at, size)
        return size


def _check_batch(source: Captured, view: FileView, at: Position, size: int) -> None:
    start = max(0, size - limits.STAMP_BYTES_MAX)
    stamp = records.stamp_of(view.read(size - start, start))
    if stamp is not None and stamp.index + 1 < stamp.size:
        begin = at.line - stamp.index - 1
        nearest = f"{at.generation}:{begin} and {at.generation}:{begin + stamp.size}"
        raise BadRequest(
            f"{at} is inside the batch {stamp.key!r}, which is all or nothing: the nearest"
            f" positions are {nearest}",
            session=source.session,
        )


def _before_checkpoint(source: Captured, checkpoint_id: int) -> Instant:
    count = source.checkpoints
    if 0 <= checkpoint_id < count:
        for generation in timeline.lineage(source.timeline, source.generation, checkpoint_id):
            found = _lines_before(source, generation, checkpoint_id)
            if found is not None:
                chosen = _at_position(source, Position(generation, found))
                # What is cut off gives its id free, and the first lines of a compaction tell of
                # none before it.
                return msgspec.structs.replace(chosen, next_id=checkpoint_id)
    valid = f"0 to {count - 1} exist" if count else "the session has none yet"
    raise NotFound(f"checkpoint {checkpoint_id} does not exist: {valid}", session=source.session)


def _lines_before(source: Captured, generation: int, checkpoint_id: int) -> int | None:
    replay = Replay()
    with source.view(generation) as view:
        for _, block in blocks_of(view.read):
            if replay.feed(block, before=checkpoint_id) is not None:
                return replay.lines
    return None


def _at_turn(source: Captured, command: Fork) -> Instant:
    wire = scan_wire(blocks_of(source.wire.read))
    last = len(wire.turns) - 1
    kept = command.turn if command.turn is not None else last - (command.undo or 0)
    if not -1 <= kept <= last:
        raise NotFound(_no_turn(command, len(wire.turns)), session=source.session)
    if kept == last:
        return _now(source, wire)
    turn = wire.turns[kept + 1]
    if turn.stamp is not None and turn.stamp.index > 0:
        begin = turn.line - turn.stamp.index
        raise BadRequest(
            f"turn {kept + 1} begins inside the batch {turn.stamp.key!r} of the wire file, which is"
            f" all or nothing: the nearest positions there are 0:{begin} and"
            f" 0:{begin + turn.stamp.size}; choose another turn, or a position of the context",
            session=source.session,
        )
    at, size = _context_before(source, turn, kept)
    return Instant(at, size, turn.line, turn.offset)


def _no_turn(command: Fork, count: int) -> str:
    if not count:
        return "the session has no turns yet: fork it at a position or a checkpoint"
    if command.turn is not None:
        return f"turn {command.turn} does not exist: 0 to {count - 1} do, and -1 is before them"
    return f"{command.undo} turns cannot be undone: the session has {count}"


def _context_before(source: Captured, turn: Turn, kept: int) -> tuple[Position, int]:
    """Where the context ended when a turn began: as its event says, else by counting turns.

    Counting is what is left for files that others wrote: it stops where a later event of ours
    says that the context ended, in the generation that it had then. A context with fewer turns is
    taken as a whole, since some turns leave nothing in it.
    """
    if turn.at is not None:
        return turn.at, _size_before(source, turn.at)
    generation = turn.before.generation if turn.before is not None else source.generation
    with source.view(generation) as view:
        size, lines = _end(view)
        if turn.before is not None:
            lines, size = seek(view, min(turn.before.line, lines))
        for number, (offset, line) in enumerate(user_turns(blocks_of(view.read))):
            if number == kept + 1 and offset < size:
                lines, size = line, offset
                break
    at = Position(generation, lines)
    return at, _size_before(source, at)
