"""Planning of rewrites from the command and the session's files.

A plan has the pieces of the new file and the numbers at its end; the log executes it.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec

from steno_protocol import checkpoint_ids, limits, records, timeline_entries
from steno_protocol.blocks import split_lines
from steno_protocol.commands import (
    Clear,
    CompactCommit,
    DeliverDmail,
    Repair,
    RestoreGeneration,
    RevertTo,
    WriteSystemPrompt,
)
from steno_protocol.context import ContextCounters, Damaged, SystemPrompt, parse_tolerantly
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.checkpoint_search import target_of
from stenod.core.keys import fingerprint_of_command
from stenod.core.lines import examine_tail, lines_of
from stenod.core.machine import Machine, Rewrite, RewriteCommand
from stenod.core.replay import Replay, control_of
from stenod.recovery.key_lookup import blocks
from stenod.rewrite.compaction import plan_compaction
from stenod.rewrite.delivery import plan_delivery
from stenod.rewrite.locate import Located, check_batch_end, locate, locate_line
from stenod.rewrite.plan import Plan
from stenod.rewrite.repair import plan_repair
from stenod.store.log import Copy, Log, Piece


def plan(log: Log, machine: Machine, decision: Rewrite) -> Plan:
    """Plan a rewrite of a session; all of its lines are durable.

    Raises:
        NotFound: the checkpoint or generation does not exist; the message names existing ones, or
            what removed it.
        BadRequest: the rewrite would split a batch, or names no target or two.
        Conflict: another rewrite overtook a compaction, the file is not the verified one,
            another checkpoint has the id, or a position is of another generation.
    """
    chosen = _plan(log, machine, decision)
    if not machine.reuses_ids:
        chosen = _with_next_id(chosen, machine.next_checkpoint_id)
    # Without this detail the lines of the past generation would have to be counted.
    details = {**chosen.details, "old_lines": machine.head.line}
    expired = expired_mail(machine, chosen)
    if expired is not None:
        details["expired_mail"] = expired.id
    return msgspec.structs.replace(chosen, details=details)


def _with_next_id(chosen: Plan, number: int) -> Plan:
    """Let the ids of a plan go on from a number, so that none is assigned twice."""
    counters = chosen.counters
    counters.n_checkpoints = max(counters.n_checkpoints, number)
    details = {**chosen.details, "next_id": number}
    return msgspec.structs.replace(chosen, checkpoint_floor=number, details=details)


def expired_mail(machine: Machine, chosen: Plan) -> Mail | None:
    """Return the pending D-Mail if the plan removes its checkpoint, so that it expires."""
    mail = machine.mail
    if mail is None or chosen.kind == timeline_entries.DELIVERED:
        return None
    entry = TimelineEntry(kind=chosen.kind, generation=0, details=chosen.details)
    return None if dmail.outlives(mail, entry) else mail


def _plan(log: Log, machine: Machine, decision: Rewrite) -> Plan:
    command = decision.command
    match command:
        case RevertTo():
            return _revert(log, machine, command)
        case Clear():
            head = Position(log.generation + 1, 0)
            return Plan(timeline_entries.CLEARED, [], 0, head, ContextCounters())
        case WriteSystemPrompt():
            return _put_prompt_first(log, machine, command)
        case RestoreGeneration():
            return _restore(log, machine, command.generation)
        case CompactCommit():
            return plan_compaction(log, machine, command, decision.record)
        case DeliverDmail():
            return plan_delivery(log, machine, command)
        case Repair():
            return plan_repair(log, machine, command)
        case _:
            assert_never(command)


def intent(log: Log, chosen: Plan, command: RewriteCommand, now: float) -> TimelineEntry:
    """Return the timeline entry of a plan, which is written before the plan is executed."""
    reason = None if isinstance(command, WriteSystemPrompt | DeliverDmail) else command.why
    size = log.length(log.generation)
    old = timeline.fingerprint(size, _tail(log, Copy(log.generation, 0, size)))
    return TimelineEntry(
        kind=chosen.kind,
        generation=chosen.head.generation,
        kept=chosen.kept,
        at=now,
        by=command.by,
        claim=command.claim,
        why=reason,
        key=command.key,
        details={
            **chosen.details,
            "lines": chosen.head.line,
            "old": old,
            "new": _new_fingerprint(log, chosen.pieces),
        },
    )


def _revert(log: Log, machine: Machine, command: RevertTo) -> Plan:
    found, next_id, named = _reverted(log, machine, command)
    generation, size, replay = found.generation, found.size, found.replay
    check_batch_end(log, generation, size, machine.session)
    whole = _Kept([Copy(generation, 0, size)], replay.lines, replay.lines)
    kept = _without_damaged(log, generation, size) if command.drop_damaged else whole
    is_present = generation == log.generation
    return Plan(
        kind=timeline_entries.REVERTED,
        pieces=kept.pieces,
        kept=kept.first_lines if is_present else 0,
        head=Position(log.generation + 1, kept.lines),
        counters=replay.counters,
        checkpoint_floor=next_id,
        details={"checkpoint_id": next_id, "from": generation, **named},
    )


def _reverted(log: Log, machine: Machine, command: RevertTo) -> tuple[Located, int, dict[str, str]]:
    """Return the first dropped line, the smallest dropped checkpoint id, and more details."""
    if (command.checkpoint_id is None) == (command.position is None):
        raise BadRequest(
            "a revert drops a checkpoint or the line at a position, and what follows: give one of"
            " checkpoint_id and position",
            session=machine.session,
        )
    if command.position is not None:
        found = locate_line(log, machine, Position.parse(command.position))
        # Ids rise along a file: all that are dropped are at least the next one there.
        return found, found.replay.counters.n_checkpoints, {"position": command.position}
    target = target_of(command)
    return locate(log, machine, target), target.id, {}


class _Kept(msgspec.Struct):
    """The lines that a revert keeps: pieces, lines before the first gap, and all lines."""

    pieces: list[Piece]
    first_lines: int = 0
    lines: int = 0


def _without_damaged(log: Log, generation: int, size: int) -> _Kept:
    """Keep the lines before `size` that are blank or that kimi-cli reads."""
    kept, begin, end = _Kept([]), 0, 0
    for line in _lines_before(log, generation, size):
        if isinstance(parse_tolerantly(line), Damaged):
            if begin < end:
                kept.pieces.append(Copy(generation, begin, end - begin))
            begin = end + len(line)
        else:
            kept.lines += 1
            # Nothing was cut out yet, so the line keeps its number.
            kept.first_lines += not kept.pieces and begin == 0
        end += len(line)
    if begin < end:
        kept.pieces.append(Copy(generation, begin, end - begin))
    return kept


def _lines_before(log: Log, generation: int, size: int) -> Iterator[bytes]:
    for offset, block in blocks(log, generation):
        yield from split_lines(block[: max(0, size - offset)])
        if offset + len(block) >= size:
            return


def _put_prompt_first(log: Log, machine: Machine, command: WriteSystemPrompt) -> Plan:
    """Put the new prompt before all other lines and drop old ones, since readers use the last."""
    line = machine.written(command, [records.system_prompt_record(command.prompt)])
    kept, begin, replaced = list[Piece](), 0, 0
    # Without an old prompt no line has to be read.
    for offset, size in _prompts(log) if machine.counters.has_system_prompt else ():
        kept += _between(log, begin, offset)
        begin, replaced = offset + size, replaced + 1
    kept += _between(log, begin, log.length(log.generation))
    counters = machine.counters.copy()
    counters.has_system_prompt = True
    return Plan(
        kind=timeline_entries.PROMPTED,
        pieces=[line, *kept],
        kept=0,
        head=Position(log.generation + 1, machine.head.line + 1 - replaced),
        counters=counters,
        checkpoint_floor=machine.checkpoint_floor,
        details={"contents": fingerprint_of_command(command)},
    )


def _prompts(log: Log) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each line that sets the system prompt."""
    for offset, line in lines_of(blocks(log, log.generation)):
        if isinstance(control_of(line), SystemPrompt):
            yield offset, len(line)


def _between(log: Log, begin: int, end: int) -> list[Piece]:
    return [Copy(log.generation, begin, end - begin)] if begin < end else []


def _restore(log: Log, machine: Machine, generation: int) -> Plan:
    past = [number for number in log.generations() if number != log.generation]
    if generation not in past:
        known = ", ".join(map(str, past)) or "none yet"
        raise NotFound(
            f"generation {generation} is not a past generation: there are {known}",
            session=machine.session,
        )
    size, replay = 0, Replay()
    for block in _sound_blocks(log, generation):
        size += len(block)
        replay.feed(block)
    counters = replay.counters
    floor = checkpoint_ids.checkpoint_floor(timeline.decode(log.timeline()), generation)
    counters.n_checkpoints = max(counters.n_checkpoints, floor)
    return Plan(
        kind=timeline_entries.RESTORED,
        pieces=[Copy(generation, 0, size)],
        kept=0,
        head=Position(log.generation + 1, replay.lines),
        counters=counters,
        checkpoint_floor=floor,
        details={"from": generation},
    )


def _sound_blocks(log: Log, generation: int) -> Iterator[bytes]:
    """Yield a generation's lines without a tail that the next opening would repair.

    Another program may have left the file with a half or damaged last line.
    """
    held = b""
    for _, block in blocks(log, generation):
        if held:
            yield held
        held = block
    yield held[: examine_tail(held, marked=False).keep]


def _new_fingerprint(log: Log, pieces: Sequence[Piece]) -> timeline.Fingerprint:
    size = sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)
    tail = b""
    for piece in reversed(pieces):
        tail = (piece if isinstance(piece, bytes) else _tail(log, piece)) + tail
        if len(tail) >= limits.FINGERPRINT_BYTES:
            break
    return timeline.fingerprint(size, tail)


def _tail(log: Log, piece: Copy) -> bytes:
    size = min(piece.size, limits.FINGERPRINT_BYTES)
    return log.read(piece.generation, piece.offset + piece.size - size, size)
