"""A subscriber that compares its events with the files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steno.values import File, Live, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.positions import Position


@dataclass(slots=True)
class Seen:
    """The seen lines of one generation of a file, from `first` on."""

    first: int
    lines: list[bytes] = field(default_factory=list[bytes])

    @property
    def next(self) -> int:
        """Number of the line that has to come next."""
        return self.first + len(self.lines)


class Witness:
    """The events of one subscriber to one file; a gap or a duplicate fails at once.

    Attributes:
        position: up to where everything was seen, None before the first event.
        resets: number of its reset events.
        lives: number of its live events.
    """

    def __init__(self, file: File) -> None:
        self.file: File = file
        self.position: Position | None = None
        self.resets = 0
        self.lives = 0
        self._seen: dict[int, Seen] = {}

    def take(self, event: SubscriptionEvent) -> None:
        """Take one event of this file in."""
        assert event.file == self.file
        match event:
            case RecordsEvent(first, following, _):
                lines = event.lines()
                assert len(lines) == following.line - first.line
                assert all(line.endswith(b"\n") for line in lines)
                self._begin(first)
                self._seen[first.generation].lines += lines
                self.position = following
            case Reset(generation, kept, _, _):
                assert self.file == "context"
                assert self.position is None or generation == self.position.generation + 1
                self._seen[generation] = Seen(kept)
                self.position = Position(generation, kept)
                self.resets += 1
            case Live(head):
                assert self.position is None or self.position == head
                self.position = head
                self._seen.setdefault(head.generation, Seen(head.line))
                self.lives += 1

    @property
    def lines(self) -> int:
        """The number of lines that it saw."""
        return sum(len(seen.lines) for seen in self._seen.values())

    def has_seen(self, marker: bytes) -> bool:
        """True when the last line that came holds `marker`."""
        if self.position is None:
            return False
        lines = self._seen[self.position.generation].lines
        return bool(lines) and marker in lines[-1]

    def compare(self, generations: Sequence[list[bytes]]) -> None:
        """Check that the seen lines equal those of the files, from the first position to the end.

        Args:
            generations: the lines of each generation, the present one last.
        """
        assert self._seen
        for generation, seen in self._seen.items():
            assert seen.lines == generations[generation][seen.first :], (self.file, generation)
        assert max(self._seen) == len(generations) - 1

    def _begin(self, first: Position) -> None:
        if self.position is None:
            self._seen[first.generation] = Seen(first.line)
        else:
            assert first == self.position
            assert self._seen[first.generation].next == first.line


def generations_of(folder: Path) -> list[list[bytes]]:
    """The lines of each generation of a session's context, the present one last."""
    past = sorted(
        int(file.stem.removeprefix("context_")) for file in folder.glob("context_*.jsonl")
    )
    assert past == list(range(1, len(past) + 1))
    names = [*(f"context_{number}.jsonl" for number in past), "context.jsonl"]
    return [(folder / name).read_bytes().splitlines(keepends=True) for name in names]
