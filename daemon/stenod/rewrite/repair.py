"""Planning of a repair that keeps whole records.

A repair is a rewrite, so the damaged file stays as a past generation, and no byte is lost.
"""

from collections.abc import Iterable, Iterator

from steno_protocol import limits, timeline_entries
from steno_protocol.blocks import count_lines
from steno_protocol.checks import edits_of
from steno_protocol.commands import Repair
from steno_protocol.damage import Edit, Finding, kept_pieces
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.line_schemas import ContextSchema
from steno_protocol.positions import Position
from steno_protocol.record_salvage import Span
from steno_protocol.records import stamp_of
from stenod.core.lines import whole_lines
from stenod.core.machine import Machine
from stenod.core.replay import Replay
from stenod.recovery.key_lookup import look_up
from stenod.rewrite.plan import Plan
from stenod.store.log import Copy, Log, Piece


def plan_repair(log: Log, machine: Machine, command: Repair) -> Plan:
    """Plan the repair of the damage that `verify` found.

    Raises:
        Conflict: the file does not begin with the verified bytes.
        BadRequest: the verified bytes need no repair.
        TooLarge: more places are damaged than one repair changes.
    """
    edits = _checked(log, machine, command)
    pieces = _pieces(log, edits)
    replay = _replay(log, pieces)
    counters = replay.counters
    counters.n_checkpoints = max(counters.n_checkpoints, machine.checkpoint_floor)
    return Plan(
        kind=timeline_entries.MENDED,
        pieces=pieces,
        kept=_lines_before(log, edits[0].offset),
        head=Position(log.generation + 1, replay.lines),
        counters=counters,
        checkpoint_floor=machine.checkpoint_floor,
        details={"places": len(edits), "left_out": sum(edit.size for edit in edits)},
    )


def _checked(log: Log, machine: Machine, command: Repair) -> list[Edit]:
    """Return the edits of the repair, if the file still begins with the verified bytes."""
    scanner, edits = edits_of(
        _range(log, Copy(log.generation, 0, command.bytes)),
        ContextSchema(),
        lambda finding: _edits(log, finding),
    )
    verified = (command.generation, command.bytes, command.crc)
    if verified != (log.generation, scanner.size, scanner.crc):
        raise Conflict(
            "the session changed after it was verified: verify it again, read the findings, then"
            " repair it",
            session=machine.session,
            head=str(machine.head),
        )
    if not edits:
        raise BadRequest(
            f"there is nothing to repair in the first {command.bytes} bytes of generation"
            f" {command.generation}",
            session=machine.session,
        )
    return edits


def _edits(log: Log, finding: Finding) -> list[Edit]:
    """Return the edits for a finding, without making a command visible twice.

    If another program's half line swallowed a record of steno's, the command was not applied, and
    its client sent it again. The swallowed copy is cut as well, so that it is not there twice.
    """
    if finding.remedy != "split":
        return list(finding.edits)
    before, end = Edit(0, finding.offset), finding.offset + finding.size
    repeated = [
        Edit(piece.start, piece.end - piece.start)
        for piece in kept_pieces([before, *finding.edits], end)
        if isinstance(piece, Span) and _is_applied(log, piece)
    ]
    return [*finding.edits, *repeated]


def _is_applied(log: Log, span: Span) -> bool:
    start = max(span.start, span.end - limits.STAMP_BYTES_MAX)
    stamp = stamp_of(log.read(log.generation, start, span.end - start))
    return stamp is not None and look_up(log, "", stamp.key) is not None


def _pieces(log: Log, edits: list[Edit]) -> list[Piece]:
    generation, size = log.generation, log.length(log.generation)
    return [
        piece
        if isinstance(piece, bytes)
        else Copy(generation, piece.start, piece.end - piece.start)
        for piece in kept_pieces(edits, size)
    ]


def _replay(log: Log, pieces: Iterable[Piece]) -> Replay:
    """Replay the new file block by block before it is written."""
    replay, rest = Replay(), b""
    for data in _contents(log, pieces):
        held = rest + data
        cut = whole_lines(held)
        rest = held[cut:]
        if cut:
            replay.feed(held[:cut])
    return replay


def _contents(log: Log, pieces: Iterable[Piece]) -> Iterator[bytes]:
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        for data in [piece] if isinstance(piece, bytes) else _range(log, piece):
            gathered.append(data)
            size += len(data)
            # Damage may occur every few bytes, so small pieces are joined first.
            if size >= limits.BLOCK_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    yield b"".join(gathered)


def _range(log: Log, piece: Copy) -> Iterator[bytes]:
    offset, end = piece.offset, piece.offset + piece.size
    while offset < end:
        data = log.read(piece.generation, offset, min(limits.BLOCK_BYTES, end - offset))
        if not data:
            return
        offset += len(data)
        yield data


def _lines_before(log: Log, size: int) -> int:
    return sum(count_lines(data) for data in _range(log, Copy(log.generation, 0, size)))
