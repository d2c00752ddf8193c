"""The instant at which a fork cuts context and wire file.

Everything here blocks and changes nothing.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from steno_protocol import limits, records
from steno_protocol.blocks import count_lines, seek
from steno_protocol.commands import Fork
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.checkpoint_search import Search, target_of
from stenod.core.checkpoint_survival import Target
from stenod.core.replay import Replay
from stenod.core.turn_places import Unplaced, generations_of, place
from stenod.core.turns import Turn, UserMessage, WireScan, scan_wire, user_messages
from stenod.recovery.key_lookup import blocks_of
from stenod.sessions.streams import StreamPart
from stenod.store.handles import FileView

_POSITIONS_NAMED = 5
"""Positions that an error names: the newest ones, since an undo concerns the last turns."""


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot of a session.

    Attributes:
        session: its id, for messages.
        generation: its present generation.
        context: the durable bytes of that generation.
        wire: the durable bytes of its wire file, no newer than the context.
        streams: the durable parts of its streams, no newer than the context.
        next_id: the id of its next checkpoint.
        reuses_ids: ids that a revert removed are assigned again.
        past: opens a past generation.
        timeline: its timeline.
        incarnation: its incarnation.
    """

    session: str
    generation: int
    context: FileView
    wire: FileView
    next_id: int
    past: Callable[[int], FileView]
    timeline: list[TimelineEntry]
    incarnation: str
    streams: Sequence[StreamPart] = ()
    reuses_ids: bool = False

    @contextmanager
    def view(self, generation: int) -> Generator[FileView]:
        """Open one generation until the block ends.

        Raises:
            NotFound: the generation does not exist.
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
        at: the position in the context.
        size: bytes of that generation before it.
        wire_lines: lines of the wire file before it.
        wire_size: their bytes.
        next_id: the id of the next checkpoint where ids are assigned again, unless the lines before
            the cut have a higher one.
    """

    at: Position
    size: int
    wire_lines: int
    wire_size: int
    next_id: int = 0


def cut(source: Snapshot, command: Fork) -> Instant:
    """Find the instant that a fork names.

    Raises:
        BadRequest: the command names several instants or one inside a batch; the message names the
            nearest ones. Or the position of the named turn is unknown; the message names positions.
        NotFound: the position, checkpoint or turn does not exist; the message names existing ones.
        Conflict: another checkpoint has the id.
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
        return _before_checkpoint(source, target_of(command))
    if command.turn is not None or command.undo is not None:
        return _at_turn(source, command)
    return _now(source, scan_wire(blocks_of(source.wire.read)))


def _now(source: Snapshot, wire: WireScan) -> Instant:
    size, lines = _end(source.context)
    return Instant(Position(source.generation, lines), size, wire.lines, wire.size)


def _end(view: FileView) -> tuple[int, int]:
    """Return bytes and number of a view's whole lines."""
    size, lines = 0, 0
    for offset, block in blocks_of(view.read):
        size, lines = offset + len(block), lines + count_lines(block)
    return size, lines


def _at_position(source: Snapshot, at: Position) -> Instant:
    size = _size_before(source, at)
    wire = scan_wire(blocks_of(source.wire.read), at)
    if wire.later is not None:
        return Instant(at, size, wire.later[1], wire.later[0])
    is_now = at.generation == source.generation and _end(source.context)[1] == at.line
    if is_now or not wire.unjoined:
        return Instant(at, size, wire.lines, wire.size)
    return _by_turn(source, at, size, wire)


def _by_turn(source: Snapshot, at: Position, size: int, wire: WireScan) -> Instant:
    """Cut a wire file without `_at`, before the first turn that had not begun."""
    turns = _turns_before(source, at, size, wire)
    if turns >= len(wire.turns):
        return Instant(at, size, wire.lines, wire.size)
    turn = wire.turns[turns]
    if turn.offset <= wire.joined:
        return Instant(at, size, wire.joined_lines, wire.joined)
    return Instant(at, size, turn.line, turn.offset)


def _turns_before(source: Snapshot, at: Position, size: int, wire: WireScan) -> int:
    """Count the turns, from the first one on, that are known to have begun before a position."""
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
    """The turns that began in one generation, and its user messages."""

    def __init__(self, source: Snapshot, wire: WireScan, generation: int) -> None:
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
        """Positions to suggest for a fork: before user messages, and the end."""

    def begin_of(self, number: int) -> Position | Unplaced:
        """Return the head of the context at the beginning of a turn without `_at`."""
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


def _size_before(source: Snapshot, at: Position) -> int:
    """Return the bytes before a position, which has to exist and not split a batch."""
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


def _check_batch(source: Snapshot, view: FileView, at: Position, size: int) -> None:
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
    """Return the stamp of the line that ends at an offset, if its batch continues behind it."""
    start = max(0, size - limits.STAMP_BYTES_MAX)
    stamp = records.stamp_of(view.read(size - start, start))
    return stamp if stamp is not None and stamp.index + 1 < stamp.size else None


def _before_checkpoint(source: Snapshot, target: Target) -> Instant:
    search = Search(
        source.session, source.timeline, Position(source.generation, _end(source.context)[1]),
        source.next_id, target, lambda generation: _line_in(source, generation, target.id),
    )  # fmt: skip
    search.check_session()
    for generation in search.generations():
        found = _lines_before(source, generation, target.id)
        if found is not None:
            search.check_line(Position(generation, found))
            chosen = _at_position(source, Position(generation, found))
            # The cut frees this id; the lines before the first checkpoint of a compacted file
            # contain no lower one.
            return msgspec.structs.replace(chosen, next_id=target.id)
    raise search.missing()


def _line_in(source: Snapshot, generation: int, checkpoint_id: int) -> int | None:
    try:
        return _lines_before(source, generation, checkpoint_id)
    except NotFound:
        return None


def _lines_before(source: Snapshot, generation: int, checkpoint_id: int) -> int | None:
    replay = Replay()
    with source.view(generation) as view:
        for _, block in blocks_of(view.read):
            if replay.feed(block, before=checkpoint_id) is not None:
                return replay.lines
    return None


def _at_turn(source: Snapshot, command: Fork) -> Instant:
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


def _context_before(source: Snapshot, wire: WireScan, number: int) -> tuple[Position, int]:
    """Return position and size of the context at the beginning of a turn.

    The position is in the turn's event, or is determined by the event's time and text. In a session
    that was never rewritten turns are counted instead, as kimi-cli does.

    Raises:
        BadRequest: the position is unknown.
    """
    turn = wire.turns[number]
    if turn.at is None and source.generation > 0:
        at = _placed(source, wire, number)
    else:
        at = turn.at or _counted(source, turn, number)
    return at, _size_before(source, at)


def _placed(source: Snapshot, wire: WireScan, number: int) -> Position:
    survey = _Survey(source, wire, source.generation)
    generation = survey.generations[number]
    if generation is None:
        why = "neither the time of its event nor the timeline shows in which generation it began"
        raise _not_placed(source, number, why, survey.positions)
    if generation != source.generation:
        survey = _Survey(source, wire, generation)
    found = survey.begin_of(number)
    if isinstance(found, Unplaced):
        raise _not_placed(source, number, found.why, survey.positions)
    return found


def _not_placed(source: Snapshot, number: int, why: str, positions: list[Position]) -> BadRequest:
    some = list(map(str, positions[-_POSITIONS_NAMED:]))
    named = f"{', '.join(some[:-1])} or {some[-1]}" if len(some) > 1 else some[0]
    return BadRequest(
        f"the position at which turn {number} began is unknown, because its event has no `_at` and"
        f" {why}: fork at a position instead (`at`, or `steno fork --at`), such as {named}, which"
        " are before user messages and at the end of that generation",
        session=source.session,
    )


def _counted(source: Snapshot, turn: Turn, number: int) -> Position:
    """Return the beginning of a turn in a session that was never rewritten, by counting turns.

    The position is at most the `_at` of the next event that has one. If the context has fewer turns
    the result is its end, since some turns leave no message.
    """
    with source.view(0) as view:
        lines = _end(view)[1]
        if turn.before is not None:
            lines = min(turn.before.line, lines)
        messages = user_messages(blocks_of(view.read))
        own = next(islice(messages, number, None), None)
    return Position(0, lines if own is None else min(own.line, lines))
