"""The files of one session at one instant."""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from steno_backup.ends import Timeline, settled, whole_end
from steno_backup.files import Part, open_part, regular
from steno_backup.limits import SNAPSHOT_TRIES_MAX
from steno_protocol import paths
from steno_protocol.errors import Busy


class State(NamedTuple):
    """What the daemon says of a session: its generation, the durable bytes and the incarnation."""

    generation: int
    bytes: int
    incarnation: str


class Snapshot(msgspec.Struct, frozen=True):
    """A session at one instant.

    Attributes:
        generation: the present generation.
        context: its durable bytes.
        timeline: the timeline of the rewrites that took place.
        timeline_part: the file of the timeline; None if there is none.
        grown: the wire file and the streams up to whole batches, no newer than the context.
        past: the paths of the past generations, by their number.
    """

    generation: int
    context: Part
    timeline: Timeline
    timeline_part: Part | None
    grown: dict[str, Part]
    past: dict[int, Path]


def present_generation(folder: Path) -> int:
    """Return the generation of `context.jsonl`; a second name of that file does not count."""
    past = sorted(past_generations(folder))
    if past and _is_twin(folder, past[-1]):
        past.pop()
    return past[-1] if past else 0


def past_generations(folder: Path) -> dict[int, Path]:
    """Return the files `context_N.jsonl` by N, compressed or not."""
    found = ((paths.generation_of(path.name), path) for path in folder.iterdir())
    return {number: path for number, path in found if number is not None and regular(path)}


@contextmanager
def taken(folder: Path, session: str, ask: Callable[[], State] | None) -> Generator[Snapshot]:
    """Open the files of a session at one instant; they are closed at the end of the block.

    Args:
        folder: the session's folder.
        session: its id, for messages.
        ask: asks the daemon; None for a session that nothing changes, such as a deleted one.

    Raises:
        Busy: it was rewritten during every attempt.
        NotFound, FileNotFoundError: it was moved away.
        StenoError: the daemon did not answer.
    """
    for _ in range(SNAPSHOT_TRIES_MAX):
        with ExitStack() as held:
            found = _attempt(folder, ask, held)
            if found is not None:
                yield found
                return
    raise Busy(
        "the session was rewritten each time it was to be copied: the copy has its older state;"
        " run the command again",
        session=session,
    )


def _attempt(folder: Path, ask: Callable[[], State] | None, held: ExitStack) -> Snapshot | None:
    before = ask() if ask is not None else State(present_generation(folder), 0, "")
    names = sorted(path.name for path in folder.iterdir())
    # The context is measured last: no event is newer than the records that it follows.
    grown: dict[str, Part] = {}
    for name in names:
        if name == paths.WIRE or paths.stream_of(name) is not None:
            # A stream may be compressed meanwhile.
            with suppress(FileNotFoundError):
                grown[name] = _whole(_opened(folder / name, held))
    has_timeline = paths.TIMELINE in names
    lines = _opened(folder / paths.TIMELINE, held) if has_timeline else None
    timeline = Timeline()
    if lines is not None:
        timeline = settled(lines.read(lines.size, 0), before.generation)
        lines = lines._replace(size=len(timeline.data))
    context = _opened(folder / paths.CONTEXT, held)
    past = past_generations(folder)
    after = ask() if ask is not None else before._replace(bytes=_whole(context).size)
    current = regular(folder / paths.CONTEXT)
    if (
        (before.generation, before.incarnation) != (after.generation, after.incarnation)
        or current is None
        or current.st_ino != os.fstat(context.handle).st_ino
        or os.fstat(context.handle).st_size < after.bytes
    ):
        return None
    kept = {number: path for number, path in past.items() if number <= after.generation}
    return Snapshot(
        after.generation, context._replace(size=after.bytes), timeline, lines, grown, kept
    )


def _opened(path: Path, held: ExitStack) -> Part:
    part = open_part(path)
    held.callback(os.close, part.handle)
    return part


def _whole(part: Part) -> Part:
    return part._replace(size=whole_end(part.read, part.size))


def _is_twin(folder: Path, number: int) -> bool:
    present = regular(folder / paths.CONTEXT)
    past = regular(folder / paths.generation_file(number))
    return present is not None and past is not None and present.st_ino == past.st_ino
