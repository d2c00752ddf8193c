"""Compaction in the files: where a summary may stand, and the rewrite that puts it there."""

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
    """Where to cut the first `lines` lines of a generation; reads all of them."""
    conversation = Conversation()
    for number, (_, line) in enumerate(lines_of(blocks_of(view.read))):
        if number >= lines:
            break
        conversation.feed(number, line)
    return conversation.choose(preserve)


def plan_compaction(log: Log, machine: Machine, command: CompactCommit, summary: bytes) -> Plan:
    """Plan the rewrite that puts a summary in place of what it summarises.

    What came after the compaction began is kept whole and in its order; of what it preserved the
    control records are dropped, because their numbers speak of the messages that are gone.

    Raises:
        Conflict: another rewrite came between, or the reserved id was given out.
        BadRequest: the positions are not those of a compaction of this session.
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
    # A line of its own, because another record may stand before it at which a revert ends.
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
        details={"from": log.generation, "checkpoint_id": number, "summarised": kept.cut},
    )


def _lines_named(log: Log, machine: Machine, command: CompactCommit) -> tuple[int, int]:
    """The lines that a commit names, which have to be of the present generation."""
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    if {cut.generation, at.generation} != {log.generation}:
        raise Conflict(
            f"the session was rewritten while the summary of {command.cut} was being made: it is"
            f" at {machine.head} now, begin the compaction again",
            session=machine.session,
            head=str(machine.head),
        )
    if not 0 < cut.line <= at.line <= machine.head.line:
        raise BadRequest(
            f"cut {cut} and at {at} are not those of a compaction of a session that ends at"
            f" {machine.head}: give what compact_begin answered",
            session=machine.session,
        )
    return cut.line, at.line


class _Kept(msgspec.Struct):
    """What a compaction keeps, and what it has to know of the rest.

    Attributes:
        cut: the line that everything before is left out of.
        prompt: the line of the system prompt, if there is one.
        pieces: what follows the summary.
        lines: lines in them.
        chars: characters of text in them.
        newest_before: the largest checkpoint id of what the compaction found, -1 if none.
        newest_later: the largest one of what came since, -1 if none.
        oldest_later: the smallest one of what came since, None if none.
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
        """Keep a line, as one piece with the line before it if they touch."""
        self.lines += 1
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.offset + last.size == line.offset:
            self.pieces[-1] = Copy(line.generation, last.offset, last.size + line.size)
        else:
            self.pieces.append(line)

    def note(self, control: Control, line: Copy, *, is_later: bool) -> None:
        """Take in what a control record says, kept or not."""
        if isinstance(control, SystemPrompt) and not is_later:
            self.prompt = [line]
        elif isinstance(control, Checkpoint) and is_later:
            self.newest_later = max(self.newest_later, control.id)
            oldest = self.oldest_later
            self.oldest_later = control.id if oldest is None else min(oldest, control.id)
        elif isinstance(control, Checkpoint):
            self.newest_before = max(self.newest_before, control.id)


def _survey(log: Log, cut: int, at: int, session: str) -> _Kept:
    """What a compaction at line `cut`, begun when there were `at` lines, keeps.

    Raises:
        BadRequest: none was begun then, inside a batch.
    """
    conversation, last = Conversation(), b""
    lines = enumerate(line for _, line in lines_of(blocks(log, log.generation)))
    for number, last in islice(lines, at):
        conversation.feed(number, last)
    _check_batch(last, Position(log.generation, at), session)
    for number, line in lines:
        conversation.feed(number, line)
    # A result that came meanwhile may answer a call that was to be summarised.
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
            f"at {at} is inside the batch {stamp.key!r}, and no compaction begins there: give what"
            f" compact_begin answered, and not between {at.generation}:{begin} and"
            f" {at.generation}:{begin + stamp.size}",
            session=session,
        )


def _own_checkpoint(machine: Machine, command: CompactCommit, kept: _Kept) -> int:
    """The id of the compaction's own checkpoint: ids only rise in a file."""
    reserved = command.checkpoint_id
    least = max(kept.newest_before + 1, machine.checkpoint_floor)
    following = kept.oldest_later
    # Also behind an earlier compaction's, which was given up: what was promised is kept.
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
