"""The model: what the files of a session must have, by the facts that the agents reported."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.facts import Fact

_NAME = re.compile(rb'(?:content|text)":"(\d+):(\d+):(\d+):')
_APPENDS = {"append", "batch", "large", "wire", "stream"}


@dataclass(slots=True)
class File:
    """The lines of one generation of a file, and where each record is.

    Attributes:
        lines: without their ends.
        places: the line of each record, by agent, number of the command and number in it.
        repeated: the records that are there twice.
    """

    lines: list[bytes]
    places: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    repeated: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def __post_init__(self) -> None:
        for number, line in enumerate(self.lines):
            match = _NAME.search(line)
            if match is not None:
                name = (int(match[1]), int(match[2]), int(match[3]))
                if name in self.places:
                    self.repeated.append(name)
                self.places[name] = number

    def checkpoint(self, line: int) -> int | None:
        """The id of the checkpoint at a line, None if there is none."""
        if not 0 <= line < len(self.lines):
            return None
        record: dict[str, Any] = json.loads(self.lines[line])
        return record.get("id") if record.get("role") == "_checkpoint" else None


def read_file(path: Path) -> File:
    """Read one generation of a file; its last line must be whole."""
    data = path.read_bytes() if path.exists() else b""
    assert not data or data.endswith(b"\n"), f"{path} ends within a line"
    return File(data.split(b"\n")[:-1])


def read_generations(folder: Path) -> list[File]:
    """Read the generations of a session's context, the oldest first."""
    found: list[File] = []
    while (path := folder / f"context_{len(found) + 1}.jsonl").exists():
        found.append(read_file(path))
    return [*found, read_file(folder / "context.jsonl")]


def judge(folder: Path, session: str, facts: Iterable[Fact]) -> list[str]:
    """Compare the folder of a session with the facts; returns what is wrong."""
    of_session = [fact for fact in facts if fact.session == session]
    by_file: dict[str, list[Fact]] = defaultdict(list)
    for fact in of_session:
        by_file[fact.file].append(fact)
    generations = {"context.jsonl": read_generations(folder)}
    faults: list[str] = []
    for name, its in by_file.items():
        files = generations.get(name) or [read_file(folder / name)]
        faults += [f"{session}/{name}: {fault}" for fault in _judge_file(files, its)]
    return faults


def _judge_file(files: Sequence[File], facts: Sequence[Fact]) -> list[str]:
    faults = [
        f"generation {number} has records twice: {file.repeated[:5]}"
        for number, file in enumerate(files)
        if file.repeated
    ]
    for number, file in enumerate(files):
        faults += [f"generation {number}: {fault}" for fault in _disordered(file)]
    commands = {(fact.agent, fact.number): fact for fact in facts if fact.kind in _APPENDS}
    for fact in facts:
        faults += [f"{fault}: {fact}" for fault in _judge_fact(files, fact)]
    for number, file in enumerate(files):
        faults += [f"generation {number}: {fault}" for fault in _torn(file, commands)]
    return faults


def _judge_fact(files: Sequence[File], fact: Fact) -> list[str]:
    if fact.kind in _APPENDS:
        if fact.outcome == "ack":
            return _misplaced(files, fact)
        if fact.outcome == "absent" and any(
            (fact.agent, fact.number, 0) in file.places for file in files
        ):
            return ["refused as not applied, and yet there"]
        return []
    if fact.outcome != "ack":
        return []
    generation, line = fact.first
    if generation >= len(files):
        return [f"there is no generation {generation}"]
    if fact.kind == "checkpoint":
        found = files[generation].checkpoint(line)
        return [] if found == fact.checkpoint else [f"checkpoint {found} is there"]
    return _judge_revert(files, fact)


def _judge_revert(files: Sequence[File], fact: Fact) -> list[str]:
    """What is before the checkpoint goes on in the new generation, and nothing else does."""
    generation, line = fact.first
    before, after = files[generation - 1], files[generation]
    if before.checkpoint(line) != fact.checkpoint:
        return [f"the generation before has {before.checkpoint(line)} there"]
    if before.lines[:line] != after.lines[:line]:
        return ["the lines before the checkpoint are others"]
    return []


def _misplaced(files: Sequence[File], fact: Fact) -> list[str]:
    generation, line = fact.first
    if generation >= len(files):
        return [f"there is no generation {generation}"]
    places = files[generation].places
    found = [places.get((fact.agent, fact.number, each)) for each in range(fact.records)]
    wanted = list(range(line, line + fact.records))
    if None in found:
        return [f"lost: it is at {found}"]
    if found != wanted:
        return [f"elsewhere: it is at {found}"]
    if any((fact.agent, fact.number, 0) in file.places for file in files[:generation]):
        return ["it is in an earlier generation, too"]
    return []


def _disordered(file: File) -> list[str]:
    """The commands of one agent are in the order in which it sent them."""
    last: dict[int, tuple[int, int]] = {}
    faults: list[str] = []
    for (agent, number, each), line in sorted(file.places.items(), key=lambda place: place[1]):
        if last.get(agent, (0, 0)) > (number, each):
            faults.append(f"{agent}:{number}:{each} at line {line} is behind {last[agent]}")
        last[agent] = number, each
    return faults[:3]


def _torn(file: File, commands: dict[tuple[int, int], Fact]) -> list[str]:
    """A batch is whole, in a row, or absent; and each record is of a known command."""
    counts = Counter((agent, number) for agent, number, _ in file.places)
    faults: list[str] = []
    for command, count in counts.items():
        fact = commands.get(command)
        if fact is None:
            faults.append(f"nobody sent {command}")
            continue
        lines = [file.places.get((*command, each)) for each in range(fact.records)]
        first = lines[0]
        if count != fact.records or first is None:
            faults.append(f"{count} records of {fact}")
        elif lines != list(range(first, first + fact.records)):
            faults.append(f"torn apart: {fact}")
    return faults[:5]
