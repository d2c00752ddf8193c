"""Compaction: the choice of the cut, and the plan of the rewrite."""

from itertools import islice

import msgspec

from steno_protocol import records, timeline_entries
from steno_protocol.commands import CompactCommit
from steno_protocol.context import (
    CHARS_PER_TOKEN,
    Checkpoint,
    ContextCounters,
    SystemPrompt,
)
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.positions import Position
from stenod.core.compaction import Conversation, Cut
from stenod.core.lines import lines_of
from stenod.core.machine import Machine
from stenod.core.replay import Control, control_of
from stenod.recovery.key_lookup import blocks, blocks_of
from stenod.rewrite.plan import Plan
from stenod.store.log import Copy, Log, View


def choose_cut(view: View, preserve: int, lines: int) -> Cut | None:
    """Choose the cut in the first `lines` lines of a generation; reads all of them."""
    conversation = Conversation()
    for number, (_, line) in enumerate(lines_of(blocks_of(view.read))):
        if number >= lines:
            break
        conversation.feed(number, line)
    return conversation.choose(preserve)


def plan_compaction(log: Log, machine: Machine, command: CompactCommit, summary: bytes) -> Plan:
    """Plan the rewrite that replaces the summarised lines with a summary.

    Lines that were appended after the compaction began are kept whole and in order. The control
    records among the preserved lines are dropped, because they count the summarised messages.

    Raises:
        Conflict: another rewrite came between, or the reserved id was assigned.
        BadRequest: the positions do not belong to a compaction of this session.
    """
    cut, at = _lines_named(log, machine, command)
    kept = _survey(log, cut, at, machine.session)
    checked = records.check_message(summary)
    number = _own_checkpoint(machine, command, kept)
    tokens = command.summary_tokens
    if tokens is None:
        tokens = checked.text_chars // CHARS_PER_TOKEN
    tokens += kept.chars // CHARS_PER_TOKEN
    begin = [records.checkpoint_record(number), checked.data]
    # A line of its own, because a checkpoint may precede it, and a revert cuts there.
    usage = machine.written(command, [records.usage_record(tokens)])
    return Plan(
        kind=timeline_entries.COMPACTED,
        pieces=[*kept.prompt, machine.written(command, begin), *kept.pieces, usage],
        kept=0,
        head=Position(log.generation + 1, len(kept.prompt) + len(begin) + kept.lines + 1),
        counters=ContextCounters(
            token_count=tokens,
            n_checkpoints=max(number, kept.newest_later) + 1,
            has_system_prompt=machine.counters.has_system_prompt,
        ),
        details={
            "from": log.generation,
            "checkpoint_id": number,
            "summarised": kept.cut,
            "checkpoint_line": len(kept.prompt),
        },
    )


def _lines_named(log: Log, machine: Machine, command: CompactCommit) -> tuple[int, int]:
    """Return the lines `cut` and `at` of a commit, which have to be in the present generation."""
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    if {cut.generation, at.generation} != {log.generation}:
        raise Conflict(
            f"the session was rewritten while the summary of {command.cut} was being written: its"
            f" head is {machine.head} now, begin the compaction again",
            session=machine.session,
            head=str(machine.head),
        )
    if not 0 < cut.line <= at.line <= machine.head.line:
        raise BadRequest(
            f"cut {cut} and at {at} do not belong to a compaction of a session with the head"
            f" {machine.head}: use the values of the reply to compact_begin",
            session=machine.session,
        )
    return cut.line, at.line


class _Kept(msgspec.Struct):
    """The lines that a compaction keeps.

    Attributes:
        cut: the first line that may be kept.
        prompt: the line of the system prompt, if there is one.
        pieces: the pieces after the summary.
        lines: lines in them.
        chars: characters of text in them.
        newest_before: the largest checkpoint id before the compaction began, -1 without one.
        newest_later: the largest id since, -1 without one.
        oldest_later: the smallest id since, None without one.
    """

    cut: int
    prompt: list[Copy] = msgspec.field(default_factory=list[Copy])
    pieces: list[Copy] = msgspec.field(default_factory=list[Copy])
    lines: int = 0
    chars: int = 0
    newest_before: int = -1
    newest_later: int = -1
    oldest_later: int | None = None

    def keep(self, line: Copy) -> None:
        """Keep a line, and merge it with the previous piece if they touch."""
        self.lines += 1
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.offset + last.size == line.offset:
            self.pieces[-1] = Copy(line.generation, last.offset, last.size + line.size)
        else:
            self.pieces.append(line)

    def note(self, control: Control, line: Copy, *, is_later: bool) -> None:
        """Note a control record, whether its line is kept or not."""
        if isinstance(control, SystemPrompt) and not is_later:
            self.prompt = [line]
        elif isinstance(control, Checkpoint) and is_later:
            self.newest_later = max(self.newest_later, control.id)
            oldest = self.oldest_later
            self.oldest_later = control.id if oldest is None else min(oldest, control.id)
        elif isinstance(control, Checkpoint):
            self.newest_before = max(self.newest_before, control.id)


def _survey(log: Log, cut: int, at: int, session: str) -> _Kept:
    """Return the lines that a compaction at line `cut` keeps, which began at line `at`.

    Raises:
        BadRequest: line `at` is inside a batch, where no compaction begins.
    """
    conversation, last = Conversation(), b""
    lines = enumerate(line for _, line in lines_of(blocks(log, log.generation)))
    for number, last in islice(lines, at):
        conversation.feed(number, last)
    _check_batch(last, Position(log.generation, at), session)
    for number, line in lines:
        conversation.feed(number, line)
    # A result that came meanwhile may answer a call before the cut.
    cut = conversation.whole(cut)
    kept = _Kept(cut, chars=conversation.chars_from(cut))
    for number, (offset, line) in enumerate(lines_of(blocks(log, log.generation))):
        place = Copy(log.generation, offset, len(line))
        control = control_of(line)
        if control is not None:
            kept.note(control, place, is_later=number >= at)
        if number >= at or (number >= cut and control is None):
            kept.keep(place)
    return kept


def _check_batch(last: bytes, at: Position, session: str) -> None:
    """Refuse a position that is inside a batch; `last` is the line before it."""
    stamp = records.stamp_of(last)
    if stamp is not None and stamp.index + 1 < stamp.size:
        begin = at.line - stamp.index - 1
        raise BadRequest(
            f"at {at} is inside the batch {stamp.key!r} from {at.generation}:{begin} to"
            f" {at.generation}:{begin + stamp.size}, where no compaction begins: use the values of"
            " the reply to compact_begin",
            session=session,
        )


def _own_checkpoint(machine: Machine, command: CompactCommit, kept: _Kept) -> int:
    """Return the id of the compaction's own checkpoint; ids rise in a file."""
    reserved = command.checkpoint_id
    least = max(kept.newest_before + 1, machine.checkpoint_floor)
    following = kept.oldest_later
    # The reserved id is used even if an abandoned compaction has reserved a lower one.
    if least <= reserved < (machine.next_checkpoint_id if following is None else following):
        return reserved
    if following is None:
        return machine.counters.n_checkpoints
    raise Conflict(
        f"checkpoint {reserved}, which compact_begin reserved, was set by another program since:"
        " begin the compaction again",
        session=machine.session,
        head=str(machine.head),
    )
