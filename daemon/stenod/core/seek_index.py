"""What the lines of a file said at some of its offsets: a look at a place need not begin at 0."""

from collections.abc import Iterable, Iterator

import msgspec

from steno_protocol import limits
from steno_protocol.context import ContextCounters


class SeekPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The numbers of a context at one offset of its file, which is the start of a line."""

    offset: int
    lines: int
    token_count: int
    pending_chars: int
    n_checkpoints: int
    has_system_prompt: bool

    def counters(self) -> ContextCounters:
        """The counters there, a copy of the caller's own."""
        return ContextCounters(
            self.token_count, self.pending_chars, self.n_checkpoints, self.has_system_prompt
        )


class SeekIndex:
    """Milestones of one file in the order of their offsets: a bounded number, evenly apart.

    They may be lost, and some may be missing: nothing depends on them but speed.
    """

    def __init__(self, known: Iterable[SeekPoint] = ()) -> None:
        self._known = list(known)
        self._step_bytes = limits.BLOCK_BYTES
        self._thin()

    def __iter__(self) -> Iterator[SeekPoint]:
        return iter(self._known)

    def record_offset(self, offset: int, lines: int, counters: ContextCounters) -> None:
        """The file was seen, or written, up to here; kept if the last one is far enough behind."""
        last = self._known[-1].offset if self._known else 0
        if offset - last < self._step_bytes:
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
        """The last one before which this checkpoint cannot lie, None for the start of the file.

        The number of checkpoints never falls, and no line before a milestone has an id that is as
        large as that number.
        """
        found = None
        for milestone in self._known:
            if milestone.n_checkpoints > checkpoint_id:
                break
            found = milestone
        return found

    def up_to(self, size: int) -> "SeekIndex":
        """Those of a new file that begins with the first `size` bytes of this one."""
        return SeekIndex(each for each in self._known if each.offset <= size)

    def _thin(self) -> None:
        while len(self._known) > limits.MILESTONES_MAX:
            self._known = self._known[1::2]
            self._step_bytes *= 2
