"""Applied commands, recovered from the stamps of lines."""

from collections.abc import Iterator

from steno_protocol.context import Checkpoint, SystemPrompt, Usage, parse_line
from steno_protocol.positions import Position
from steno_protocol.records import Stamp, stamp_of
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core.keys import Applied, fingerprint_of_arguments, fingerprint_of_lines
from stenod.core.lines import holds_object


def applied_in(
    lines: list[bytes], generation: int, first: int, *, is_stream: bool = False
) -> Iterator[tuple[str, Applied]]:
    """Yield key and answer of every command whose lines are all present and whole.

    Args:
        lines: consecutive lines of one generation.
        generation: the generation.
        first: number of the first line.
        is_stream: the lines are a stream's, whose records may look like any other file's.
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
            place = Position(generation, first + begun)
            found = lines[begun : index + 1]
            yield stamp.key, _appended(found, place) if is_stream else _applied(found, place)
            begun, expected = None, None


def _appended(lines: list[bytes], first: Position) -> Applied:
    asked = fingerprint_of_lines(lines, are_events=False)
    return Applied("append_stream", first, len(lines), contents=asked)


def _applied(lines: list[bytes], first: Position) -> Applied:
    count = len(lines)
    match parse_line(lines[0]):
        case Checkpoint(id=number):
            asked = fingerprint_of_arguments(count - 1)
            return Applied("checkpoint", first, count, number, contents=asked)
        case Usage(token_count=tokens):
            asked = fingerprint_of_arguments(tokens)
            return Applied("update_token_count", first, count, contents=asked)
        case SystemPrompt(content=prompt):
            asked = fingerprint_of_arguments(prompt)
            return Applied("write_system_prompt", first, count, contents=asked)
        case _:
            is_event = isinstance(parse_wire_line(lines[0]), WireRecord)
            asked = fingerprint_of_lines(lines, are_events=is_event)
            name = "append_wire" if is_event else "append"
            return Applied(name, first, count, contents=asked)
