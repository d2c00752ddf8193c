"""A session's files after a simulation, read as any JSON program would read them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

Lines = Sequence[bytes]


def record_of(line: bytes, *, has_foreign: bool = False) -> dict[str, Any]:
    """What a line says; another program may have written one that says nothing."""
    try:
        record = json.loads(line)
    except ValueError:
        assert has_foreign, f"a line that is not JSON: {line!r}"
        return {}
    if not isinstance(record, dict):
        # The second half of a line of another program may be a text or a number.
        assert has_foreign, f"a line that is no object: {line!r}"
        return {}
    return record


def role_of(line: bytes) -> str:
    """The role of a line, empty if it has none."""
    return str(record_of(line, has_foreign=True).get("role", ""))


def checkpoints_in(lines: Lines) -> Iterator[tuple[int, int]]:
    """Id and number of every checkpoint line."""
    for number, line in enumerate(lines):
        record = record_of(line, has_foreign=True)
        if record.get("role") == "_checkpoint":
            yield record["id"], number


@dataclass(frozen=True, slots=True)
class Files:
    """All generations, and what made each but the first.

    Attributes:
        generations: their lines.
        rewrites: by the generation that they made.
        begun: for a generation that a compaction made, the lines that there were at its beginning;
            what came later lives on in that generation itself.
    """

    generations: Sequence[Lines]
    rewrites: Mapping[int, TimelineEntry]
    begun: Mapping[int, int]

    def before(self, entry: TimelineEntry) -> list[bytes]:
        """The file that a rewrite replaced, without what another program wrote during it."""
        lines = self.generations[entry.generation - 1][: entry.details["old_lines"]]
        return [line for line in lines if line.endswith(b"\n")]

    def find_checkpoint(self, wanted: int, present: int, lines: Lines) -> Position | None:
        """Where a checkpoint lies for a session whose generation `present` has these lines."""
        for generation, searched in self._lineage(present, lines):
            for number, line in checkpoints_in(searched):
                if number == wanted:
                    return Position(generation, line)
        return None

    def _lineage(self, generation: int, lines: Lines) -> Iterator[tuple[int, Lines]]:
        """A generation, then what compactions on its way found and left behind."""
        yield generation, lines
        while (entry := self.rewrites.get(generation)) is not None and entry.kind != "cleared":
            made, generation = generation, entry.details.get("from", generation - 1)
            if entry.kind == "compacted":
                yield generation, self.generations[generation][: self.begun[made]]
