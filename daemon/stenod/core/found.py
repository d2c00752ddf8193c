"""Commands found again in lines: what the stamps in a file say was applied."""

from collections.abc import Iterator

from steno_protocol.context import Checkpoint, SystemPrompt, Usage, parse_line
from steno_protocol.positions import Position
from steno_protocol.records import Stamp, stamp_of
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core.keys import Applied
from stenod.core.lines import holds_object


def applied_in(lines: list[bytes], generation: int, first: int) -> Iterator[tuple[str, Applied]]:
    """Key and answer of every command all of whose lines are here, and whole.

    Args:
        lines: consecutive lines of one generation.
        generation: which one.
        first: number of the first of these lines.
    """
    begun: int | None = None
    expected: Stamp | None = None
    for index, line in enumerate(lines):
        stamp = stamp_of(line) if holds_object(line) else None
        if stamp is not None and stamp.index == 0:
            begun = index
        elif stamp != expected:
            begun = None
        if stamp is None or begun is None:
            begun, expected = None, None
            continue
        expected = Stamp(stamp.key, stamp.index + 1, stamp.size)
        if stamp.index + 1 == stamp.size:
            yield stamp.key, _applied(lines[begun], Position(generation, first + begun), stamp.size)
            begun, expected = None, None


def _applied(line: bytes, first: Position, count: int) -> Applied:
    match parse_line(line):
        case Checkpoint() as checkpoint:
            return Applied("checkpoint", first, count, checkpoint.id)
        case Usage():
            return Applied("update_token_count", first, count)
        case SystemPrompt():
            return Applied("write_system_prompt", first, count)
        case _ if isinstance(parse_wire_line(line), WireRecord):
            return Applied("append_wire", first, count)
        case _:
            return Applied("append", first, count)
