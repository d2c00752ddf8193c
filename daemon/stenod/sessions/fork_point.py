"""Where a fork cuts a session: one instant, as a place in its context and a place in its wire file.

Everything here blocks; nothing is changed.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice

import msgspec

from steno_protocol import limits, records
from steno_protocol.blocks import seek
from steno_protocol.commands import Fork
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.lines import count_lines
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.replay import Replay
from stenod.core.turn_places import Unplaced, generations_of, place
from stenod.core.turns import Turn, UserMessage, WireScan, scan_wire, user_messages
from stenod.recovery.key_lookup import blocks_of
from stenod.store.handles import FileView

_POSITIONS_NAMED = 5
"""How many positions an error names at most: the newest, which an undo is after."""


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
    timeline: list[TimelineEntry]
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
        next_id: the id of the next checkpoint, unless the lines before the cut have a higher one.
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
            Or it is the begin of a turn that nothing places; the message names positions.
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
    turns = _turns_before(source, at, size, wire)
    if turns >= len(wire.turns):
        return Instant(at, size, wire.lines, wire.size)
    turn = wire.turns[turns]
    if turn.offset <= wire.joined:
        return Instant(at, size, wire.joined_lines, wire.joined)
    return Instant(at, size, turn.line, turn.offset)


def _turns_before(source: Captured, at: Position, size: int, wire: WireScan) -> int:
    """How many turns, from the first one on, are known to have begun before a position."""
    if source.generation == 0:
        with source.view(0) as view:
            return sum(message.offset < size for message in user_messages(blocks_of(view.read)))
    survey = _Survey(source, wire, at.generation)
    for number, generation in enumerate(survey.generations):
        if generation is None or generation > at.generation:
            return number
        if generation == at.generation:
            began = wire.turns[number].at or survey.begin_of(number)
            if not isinstance(began, Position) or began.line >= at.line:
                return number
    return len(wire.turns)


class _Survey:
    """The turns that began in one generation, and the messages of the user in it."""

    def __init__(self, source: Captured, wire: WireScan, generation: int) -> None:
        beginnings = timeline.beginnings(source.timeline, source.generation)
        self._turns = wire.turns
        self._generation = generation
        self.generations = generations_of(wire.turns, beginnings)
        around = beginnings[generation : generation + 2]
        self._is_recorded = all(each is not None and not each.is_inferred for each in around)
        first = beginnings[generation]
        least = 0 if first is None else first.lines
        with source.view(generation) as view:
            self._lines = _end(view)[1]
            self._messages: list[UserMessage] = [
                message for message in user_messages(blocks_of(view.read)) if message.line >= least
            ]
            between = [each.line for each in self._messages if not _batch_around(view, each.offset)]
        self.positions = [Position(generation, line) for line in (*between, self._lines)]
        """Where a fork may be meant at: before messages of the user, and the end."""

    def begin_of(self, number: int) -> Position | Unplaced:
        """Where the context ended when a turn of the generation began that has no `_at`."""
        own = [index for index, found in enumerate(self.generations) if found == self._generation]
        found = place(
            [self._turns[index] for index in own],
            own.index(number),
            self._messages,
            self._generation,
            is_recorded=self._is_recorded,
        )
        if isinstance(found, Unplaced):
            return found
        line = self._lines if found is None else found.line
        before = self._turns[number].before
        if before is not None and before.generation == self._generation:
            line = min(line, before.line)
        return Position(self._generation, line)


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
    stamp = _batch_around(view, size)
    if stamp is not None:
        begin = at.line - stamp.index - 1
        nearest = f"{at.generation}:{begin} and {at.generation}:{begin + stamp.size}"
        raise BadRequest(
            f"{at} is inside the batch {stamp.key!r}, which is all or nothing: the nearest"
            f" positions are {nearest}",
            session=source.session,
        )


def _batch_around(view: FileView, size: int) -> records.Stamp | None:
    """The stamp of the line that ends at an offset, if its batch goes on behind it."""
    start = max(0, size - limits.STAMP_BYTES_MAX)
    stamp = records.stamp_of(view.read(size - start, start))
    return stamp if stamp is not None and stamp.index + 1 < stamp.size else None


def _before_checkpoint(source: Captured, checkpoint_id: int) -> Instant:
    count = source.checkpoints
    if 0 <= checkpoint_id < count:
        for generation in timeline.lineage(source.timeline, source.generation, checkpoint_id):
            found = _lines_before(source, generation, checkpoint_id)
            if found is not None:
                chosen = _at_position(source, Position(generation, found))
                # The cut part frees its id, and the first lines of a compaction contain
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
    at, size = _context_before(source, wire, kept + 1)
    return Instant(at, size, turn.line, turn.offset)


def _no_turn(command: Fork, count: int) -> str:
    if not count:
        return "the session has no turns yet: fork it at a position or a checkpoint"
    if command.turn is not None:
        return f"turn {command.turn} does not exist: 0 to {count - 1} do, and -1 is before them"
    return f"{command.undo} turns cannot be undone: the session has {count}"


def _context_before(source: Captured, wire: WireScan, number: int) -> tuple[Position, int]:
    """Where the context ended when a turn began.

    Its event says so, or the turn is placed by its time and its text; in a session that was never
    rewritten turns are counted instead, as kimi-cli does.

    Raises:
        BadRequest: nothing says where.
    """
    turn = wire.turns[number]
    if turn.at is None and source.generation > 0:
        at = _placed(source, wire, number)
    else:
        at = turn.at or _counted(source, turn, number)
    return at, _size_before(source, at)


def _placed(source: Captured, wire: WireScan, number: int) -> Position:
    survey = _Survey(source, wire, source.generation)
    generation = survey.generations[number]
    if generation is None:
        why = "neither the time of its event nor the timeline says in which generation it began"
        raise _not_placed(source, number, why, survey.positions)
    if generation != source.generation:
        survey = _Survey(source, wire, generation)
    found = survey.begin_of(number)
    if isinstance(found, Unplaced):
        raise _not_placed(source, number, found.why, survey.positions)
    return found


def _not_placed(source: Captured, number: int, why: str, positions: list[Position]) -> BadRequest:
    some = list(map(str, positions[-_POSITIONS_NAMED:]))
    named = f"{', '.join(some[:-1])} or {some[-1]}" if len(some) > 1 else some[0]
    return BadRequest(
        f"nothing says where the context ended when turn {number} began, because its event has no"
        f" `_at` and {why}: fork at a position instead (`at`, or `steno fork --at`), such as"
        f" {named}, which are before messages of the user and at the end of that generation",
        session=source.session,
    )


def _counted(source: Captured, turn: Turn, number: int) -> Position:
    """Where a turn began in a session that was never rewritten, by counting.

    It stops where a later event of ours says that the context ended. A context with fewer turns is
    taken as a whole, since some turns leave nothing in it.
    """
    with source.view(0) as view:
        lines = _end(view)[1]
        if turn.before is not None:
            lines = min(turn.before.line, lines)
        messages = user_messages(blocks_of(view.read))
        own = next(islice(messages, number, None), None)
    return Position(0, lines if own is None else min(own.line, lines))
