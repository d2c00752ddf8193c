"""The generations of a session as a tree; pure.

    ○ generation 0 · 6 lines · context_1.jsonl
    │   2026-11-21 13:22:56  created by planner
    │
    ├─○ generation 1 · 3 lines · context_2.jsonl
    │     2026-11-21 13:22:57  reverted to checkpoint 0 by planner: wrong turn
    │     3 lines kept, 3 left behind
    │
    ● generation 2 · 6 lines · now
        2026-11-21 13:22:58  generation 0 restored by planner

The leftmost column leads from the beginning to the present; a branch shows generations that are no
longer part of it. `◌` marks a generation that another program began, as inferred from the files.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from steno_present.messages import folded
from steno_present.safe_text import printable
from steno_present.wording import count, moment, number, size
from steno_protocol import timeline_entries
from steno_protocol.paths import generation_file
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

Style = Callable[..., str]

MAKES_GENERATION: Final = frozenset({*timeline_entries.REWRITES, timeline_entries.ROTATED})
"""The kinds of entries with which a generation begins."""


@dataclass(slots=True)
class Generation:
    """One generation: its beginning, its events and its successors.

    Attributes:
        number: of the generation.
        lines: its final number of lines, None if unknown.
        bytes: its final size, None if unknown.
        made: the rewrite that began it; None for the first one.
        notes: its other events.
        children: generations that continue its content, oldest first.
    """

    number: int
    lines: int | None = None
    bytes: int | None = None
    made: TimelineEntry | None = None
    notes: list[TimelineEntry] = field(default_factory=list[TimelineEntry])
    children: "list[Generation]" = field(default_factory=list["Generation"])


def draw(
    entries: Sequence[TimelineEntry], head: Position, width: int | None, style: Style
) -> list[str]:
    """The lines of the tree."""
    generations = grow(entries, head)
    first = generations[min(generations)]
    trunk = _lineage(generations, head.generation)
    drawing = _Drawing(head.generation, trunk, width, style)
    return list(drawing.chain(first, ""))


def grow(entries: Sequence[TimelineEntry], head: Position) -> dict[int, Generation]:
    """The generations by number, each with its children."""
    numbers = {head.generation, *(max(0, entry.generation) for entry in entries)}
    made = {e.generation: e for e in entries if e.kind in MAKES_GENERATION}
    if made:
        # The generation before the first known rewrite has no entry of its own.
        numbers.add(max(0, min(made) - 1))
    generations = {each: Generation(each, made=made.get(each)) for each in sorted(numbers)}
    for entry in entries:
        if entry.kind not in MAKES_GENERATION:
            generations[entry.generation].notes.append(entry)
    ordered = list(generations.values())
    for before, after in pairwise(ordered):
        _measure(before, after.made)
        _parent(generations, before, after).children.append(after)
    generations[head.generation].lines = head.line
    return generations


def _measure(generation: Generation, next_rewrite: TimelineEntry | None) -> None:
    """Note what a rewrite recorded about the file that it replaced."""
    if next_rewrite is None:
        return
    lines, old = next_rewrite.details.get("old_lines"), next_rewrite.details.get("old")
    generation.lines = lines if isinstance(lines, int) else None
    if isinstance(old, list) and old and isinstance(old[0], int):
        generation.bytes = old[0]


def _parent(
    generations: dict[int, Generation], before: Generation, after: Generation
) -> Generation:
    """The generation that another one continues: the one named in `from`, or the one before."""
    if after.made is not None:
        source = after.made.details.get("from")
        if isinstance(source, int) and source in generations and source < after.number:
            return generations[source]
    return before


def _lineage(generations: dict[int, Generation], present: int) -> set[int]:
    parents = {
        child.number: each.number for each in generations.values() for child in each.children
    }
    lineage = {present}
    while present in parents:
        present = parents[present]
        lineage.add(present)
    return lineage


class _Drawing:
    """The lines of a tree; its trunk is one column, whatever the length of the history."""

    def __init__(self, present: int, trunk: set[int], width: int | None, style: Style) -> None:
        self._present = present
        self._trunk = trunk
        self._width = width
        self._style = style

    def chain(self, first: Generation, margin: str) -> Iterator[str]:
        """A generation and its successors in the same column, with their branches between."""
        generation: Generation | None = first
        while generation is not None:
            following = self._following(generation)
            branches = [child for child in generation.children if child is not following]
            yield margin + self._title(generation)
            bar = "│" if following is not None or branches else " "
            yield from self._story(generation, f"{margin}{bar}   ")
            for branch in branches:
                yield f"{margin}│"
                has_more = following is not None or branch is not branches[-1]
                yield from self._branch(branch, margin, has_more=has_more)
            if following is not None:
                yield f"{margin}│"
            generation = following

    def _branch(self, branch: Generation, margin: str, *, has_more: bool) -> Iterator[str]:
        lines = self.chain(branch, "")
        yield f"{margin}{'├' if has_more else '└'}─{next(lines)}"
        for line in lines:
            yield f"{margin}{'│' if has_more else ' '} {line}".rstrip()

    def _following(self, generation: Generation) -> Generation | None:
        """The child in the same column: the one that leads to the present, else the latest."""
        for child in generation.children:
            if child.number in self._trunk:
                return child
        return generation.children[-1] if generation.children else None

    def _title(self, generation: Generation) -> str:
        is_present = generation.number == self._present
        parts = [f"generation {generation.number}"]
        if generation.lines is not None:
            parts.append(count(generation.lines, "line"))
        elif generation.bytes is not None:
            parts.append(size(generation.bytes))
        parts.append("now" if is_present else generation_file(generation.number + 1))
        inferred = generation.made is not None and generation.made.inferred
        mark = "●" if is_present else "◌" if inferred else "○"
        text = f"{mark} {' · '.join(parts)}"
        return self._style(text, "bold", "green") if is_present else self._style(text, "bold")

    def _story(self, generation: Generation, margin: str) -> Iterator[str]:
        made = [generation.made] if generation.made is not None else []
        for entry in sorted([*made, *generation.notes], key=lambda each: each.at):
            yield from self._wrapped(_described(entry), margin)
            lines = cut(entry) if entry is generation.made else None
            if lines is not None:
                yield from self._wrapped(lines, margin, "dim")

    def _wrapped(self, text: str, margin: str, *styles: str) -> Iterator[str]:
        room = None if self._width is None else max(20, self._width - len(margin) - 4)
        shown = printable(text, one_line=True)
        for line in [shown] if room is None else textwrap.wrap(shown, room):
            yield margin + (self._style(line, *styles) if styles else line)


def _described(entry: TimelineEntry) -> str:
    """One timeline entry as a sentence: time, change, author, reason."""
    when = f"{moment(entry.at)}  " if entry.at else ""
    by = f" by {entry.by}" if entry.by else ""
    why = f": {entry.why}" if entry.why else ""
    guess = " (inferred from the files)" if entry.inferred else ""
    return f"{when}{what(entry)}{by}{why}{guess}"


def what(entry: TimelineEntry) -> str:
    """The change of a timeline entry in a few words."""
    details = entry.details
    match entry.kind:
        case timeline_entries.REVERTED:
            return f"reverted to {_target(details)}"
        case timeline_entries.DELIVERED:
            return f"D-Mail delivered at checkpoint {details.get('checkpoint_id')}"
        case timeline_entries.SENT:
            text = folded(str(details.get("message", "")))
            return f"D-Mail to checkpoint {details.get('checkpoint_id')} sent, “{text}”,"
        case timeline_entries.FORK:
            return f"forked at {details.get('at')} into {details.get('to')}"
        case timeline_entries.RENAMED:
            return f"renamed from {details.get('from')} to {details.get('to')}"
        case timeline_entries.FORKED:
            return f"forked from {details.get('from')} at {details.get('at')}"
        case _:
            return _what_else(entry)


def _what_else(entry: TimelineEntry) -> str:
    match entry.kind:
        case timeline_entries.RESTORED:
            return f"generation {entry.details.get('from')} restored"
        case timeline_entries.COMPACTING:
            return "compaction begun"
        case timeline_entries.MENDED:
            return "damaged lines taken out"
        case timeline_entries.PROMPTED:
            return "system prompt set"
        case timeline_entries.ROTATED:
            return "begun by another program"
        case timeline_entries.ADOPTED:
            return "adopted from the files found here"
        case timeline_entries.FOREIGN:
            return "changed by another program"
        case kind:
            return kind


def cut(entry: TimelineEntry) -> str | None:
    """The number of lines that a rewrite kept and left behind, as far as it was counted."""
    kept = _kept(entry)
    expired = "expired_mail" in entry.details
    if not expired:
        return kept
    return f"{kept}; the pending D-Mail expired" if kept else "the pending D-Mail expired"


def _kept(entry: TimelineEntry) -> str | None:
    lines, summarised = entry.details.get("old_lines"), entry.details.get("summarised")
    match entry.kind:
        case timeline_entries.CLEARED if isinstance(lines, int):
            return f"{count(lines, 'line')} left behind"
        case timeline_entries.REVERTED | timeline_entries.DELIVERED if isinstance(lines, int):
            return f"{count(entry.kept, 'line')} kept, {number(lines - entry.kept)} left behind"
        case timeline_entries.REVERTED | timeline_entries.DELIVERED:
            return f"{count(entry.kept, 'line')} kept, the rest left behind"
        case timeline_entries.CLEARED:
            return "everything left behind"
        case timeline_entries.COMPACTED if isinstance(summarised, int):
            return f"{count(summarised, 'line')} in one summary, the rest kept"
        case _:
            return None


def _target(details: Mapping[str, Any]) -> str:
    position = details.get("position")
    return f"checkpoint {details.get('checkpoint_id')}" if position is None else f"line {position}"
