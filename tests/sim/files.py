"""A session's folder after a simulation, read as any JSON program reads it."""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import zstandard

from steno_protocol import paths
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline

Lines = Sequence[bytes]

REWRITE_KINDS = ("reverted", "cleared", "prompted", "restored", "compacted", "delivered")

_STAMP = re.compile(r"([A-Za-z0-9_-]+)(?:\.(\d+)/(\d+))?")
_GENERATION = re.compile(r"context_(\d+)\.jsonl")


class Stamp(NamedTuple):
    """A line's key, its index in the command and the command's count of lines."""

    key: str
    index: int = 0
    count: int = 1


def record_of(line: bytes, *, has_foreign: bool = False) -> dict[str, Any]:
    """The object in a line; empty for what another program wrote and is none."""
    try:
        record = json.loads(line)
    except ValueError:
        assert has_foreign, f"a line that is not JSON: {line!r}"
        return {}
    # The second half of a line of another program may be a text or a number.
    assert has_foreign or isinstance(record, dict), f"a line that is no object: {line!r}"
    return record if isinstance(record, dict) else {}


def role_of(line: bytes) -> str:
    """The role of a line, empty if it has none."""
    return str(record_of(line, has_foreign=True).get("role", ""))


def parse_stamp(text: object) -> Stamp | None:
    """The parts of an `_id`, None if it is none of steno's."""
    match = _STAMP.fullmatch(str(text))
    return match and Stamp(match[1], int(match[2] or 0), int(match[3] or 1))


@lru_cache(1 << 16)
def stamp_of(line: bytes) -> Stamp:
    """The stamp of a line; its key is empty if the line has none."""
    return parse_stamp(record_of(line, has_foreign=True).get("_id", "")) or Stamp("")


def public(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what the daemon added to it."""
    return {name: value for name, value in record.items() if not name.startswith("_")}


def checkpoints_in(lines: Lines) -> Iterator[tuple[int, int]]:
    """Id and line number of every checkpoint."""
    for number, line in enumerate(lines):
        record = record_of(line, has_foreign=True)
        if record.get("role") == "_checkpoint":
            yield record["id"], number


@dataclass(frozen=True, slots=True)
class Folder:
    """One session's folder.

    Attributes:
        generations: the lines of each context file, the present one last.
        entries: the timeline, without what was taken back.
        wire: the lines of the wire file.
        stream: the lines of the stream.
        begun: for a generation that a compaction made, the lines that there were at its beginning;
            what came later lives on in that generation itself.
    """

    generations: Sequence[Lines]
    entries: Sequence[TimelineEntry]
    wire: Lines
    stream: Lines = ()
    begun: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def present(self) -> Lines:
        """The lines of the present generation."""
        return self.generations[-1]

    @property
    def rewrites(self) -> dict[int, TimelineEntry]:
        """The rewrites by the generation that each made."""
        return {entry.generation: entry for entry in self.entries if entry.kind in REWRITE_KINDS}

    def lines(self, generation: int) -> Lines:
        """The lines of a generation, none if there is no such one."""
        return self.generations[generation] if generation < len(self.generations) else []

    def keys(self) -> set[str]:
        """Every key that the files contain."""
        stamps = (stamp_of(line) for lines in self._all() for line in lines)
        keys = {stamp.key for stamp in stamps} | {entry.key or "" for entry in self.entries}
        return keys - {""}

    def _all(self) -> Iterator[Lines]:
        yield from self.generations
        yield self.wire
        yield self.stream

    def before(self, entry: TimelineEntry) -> list[bytes]:
        """The file that a rewrite replaced, without what another program wrote during it."""
        lines = self.generations[entry.generation - 1][: entry.details["old_lines"]]
        return [line for line in lines if line.endswith(b"\n")]

    def after(self, entry: TimelineEntry) -> Lines:
        """The lines that a rewrite made."""
        return self.generations[entry.generation][: entry.details["lines"]]

    def find_checkpoint(self, wanted: int, generation: int, lines: Lines) -> Position | None:
        """Where a checkpoint lies for a session whose generation has these lines."""
        for number, searched in self._lineage(generation, lines):
            for found, line in checkpoints_in(searched):
                if found == wanted:
                    return Position(number, line)
        return None

    def _lineage(self, generation: int, lines: Lines) -> Iterator[tuple[int, Lines]]:
        """A generation, then what compactions on its way found and left behind."""
        yield generation, lines
        rewrites = self.rewrites
        while (entry := rewrites.get(generation)) is not None and entry.kind != "cleared":
            made, generation = generation, entry.details.get("from", generation - 1)
            if entry.kind == "compacted":
                yield generation, self.generations[generation][: self.begun[made]]


def read_folder(tree: Mapping[str, bytes], folder: str) -> Folder:
    """A session's folder in a tree of files."""
    tree = {**dict(_expanded(tree, folder)), **tree}
    found = (other for other in tree if other.startswith(f"{folder}/"))
    count = sum(1 for other in found if _GENERATION.fullmatch(other[len(folder) + 1 :]))
    names = [*(paths.generation_file(each + 1) for each in range(count)), paths.CONTEXT]
    return Folder(
        [tree[f"{folder}/{each}"].splitlines(keepends=True) for each in names],
        timeline.decode(tree.get(f"{folder}/{paths.TIMELINE}", b"")),
        tree.get(f"{folder}/{paths.WIRE}", b"").splitlines(keepends=True),
        tree.get(f"{folder}/stream-notes.jsonl", b"").splitlines(keepends=True),
    )


def _expanded(tree: Mapping[str, bytes], folder: str) -> Iterator[tuple[str, bytes]]:
    """The compressed generations of a folder, each at its plain name."""
    for path, data in tree.items():
        above, _, name = path.rpartition("/")
        if above == folder and paths.is_compressed(name):
            read = io.BytesIO(data)
            plain = zstandard.ZstdDecompressor().stream_reader(read, read_across_frames=True)
            yield f"{folder}/{paths.plain_file(name)}", plain.read()


def folders_of(tree: Mapping[str, bytes], sessions: str) -> dict[str, Folder]:
    """Every session's folder, those in the trash too, by its path below `sessions`."""
    folders = [path.removesuffix(f"/{paths.CONTEXT}") for path in tree if _is_session(path)]
    return {
        folder.removeprefix(f"{sessions}/"): read_folder(tree, folder)
        for folder in folders
        # The rest of an unfinished fork is no session.
        if folder.startswith(f"{sessions}/") and not folder.startswith(f"{sessions}/{paths.FORKS}/")
    }


def _is_session(path: str) -> bool:
    return path.endswith(f"/{paths.CONTEXT}")
