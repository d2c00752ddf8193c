"""An index of a file, from which replays can begin."""

from collections.abc import Iterable, Iterator

import msgspec

from steno_protocol import limits
from steno_protocol.context import ContextCounters


class SeekPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The numbers of a context at one offset of its file, the start of a line."""

    offset: int
    lines: int
    token_count: int
    pending_chars: int
    n_checkpoints: int
    has_system_prompt: bool

    def counters(self) -> ContextCounters:
        """Return a copy of the counters there."""
        return ContextCounters(
            self.token_count, self.pending_chars, self.n_checkpoints, self.has_system_prompt
        )


class SeekIndex:
    """Seek points of one file by offset, at even distances and of bounded number.

    Any of them may be missing: only the speed of a search for a checkpoint depends on them. Without
    them a search replays the file from its start.

    Attributes:
        due_at: `record_offset` adds no point below this offset.
    """

    def __init__(self, known: Iterable[SeekPoint] = ()) -> None:
        self._known = list(known)
        self._step_bytes = limits.BLOCK_BYTES
        self.due_at = 0
        self._thin()

    def __iter__(self) -> Iterator[SeekPoint]:
        return iter(self._known)

    def record_offset(self, offset: int, lines: int, counters: ContextCounters) -> None:
        """Add the end of the replayed or written lines, if the last point is far enough behind."""
        if offset < self.due_at:
            return
        self._known.append(
            SeekPoint(
                offset,
                lines,
                counters.token_count,
                counters.pending_chars,
                counters.n_checkpoints,
                counters.has_system_prompt,
            )
        )
        self._thin()

    def before_checkpoint(self, checkpoint_id: int) -> SeekPoint | None:
        """Return the last point that is certainly before a checkpoint; None for the file's start.

        The next checkpoint id never falls along a file, and each line before a point has an id
        below the point's next one.
        """
        found = None
        for point in self._known:
            if point.n_checkpoints > checkpoint_id:
                break
            found = point
        return found

    def up_to(self, size: int) -> "SeekIndex":
        """Return the points for a new file that begins with the first `size` bytes of this one."""
        return SeekIndex(each for each in self._known if each.offset <= size)

    def _thin(self) -> None:
        while len(self._known) > limits.MILESTONES_MAX:
            self._known = self._known[1::2]
            self._step_bytes *= 2
        self.due_at = (self._known[-1].offset if self._known else 0) + self._step_bytes
