"""Guards taken out one at a time: each has to make seeds fail, or nothing tests that guard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from sim.simulation import World, play, world_of
from steno_protocol.errors import BadRequest
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from stenod.core import dmail, lines
from stenod.core.compaction import Conversation
from stenod.core.keys import KeyTable
from stenod.core.lines import Tail
from stenod.core.machine import Machine
from stenod.core.speculation import Speculation
from stenod.feed.feed import Feed
from stenod.recovery import crash_recovery, tail_repair
from stenod.recovery.tail_repair import FileEnd
from stenod.rewrite import compaction
from stenod.store import jsonl
from stenod.store.jsonl import JsonlLog
from stenod.writer import writer
from stenod.writer.files import OpenFiles
from stenod.writer.mailbox import Batch


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard that is missing.

    Attributes:
        target: where the guard lives, or None for one of the disk.
        name: its name there.
        instead: what stands in its place.
        options: what is different about the world.
        try_first: a seed that noticed it once; only speed depends on it.
    """

    target: Any = None
    name: str = ""
    instead: Callable[..., Any] | property | None = None
    options: tuple[str, ...] = ()
    try_first: int = 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Take the guard out for a while."""
        if self.target is None:
            yield
            return
        with patch.object(self.target, self.name, self.instead):
            yield

    def world(self, seed: int) -> World:
        """The world of a seed with this mutant."""
        return replace(world_of(seed), **dict.fromkeys(self.options, True))


def _whole_lines_alone(region: bytes, marked: bool) -> Tail:
    found = split_lines(region)
    end, reason = lines._damaged_end(found)
    return Tail(len(region)) if end is None else Tail(sum(map(len, found[:end])), reason)


def _keys_before_sync(self: Speculation, command: Any, *args: Any, **how: Any) -> Any:
    decision = _put(self, command, *args, **how)
    for key, applied in self._tentative.keys.items():
        self.keys.add(key, applied)
    return decision


def _sync_without_writing_again(self: FileEnd, proven: int) -> int:
    size = self.size
    self.disk.fsync(self.handle)
    self.disk.fsync(self.folder)
    return size


def _believe_without_sync(self: FileEnd, proven: int) -> int:
    return self.size


def _replace_without_intent(self: JsonlLog, pieces: Any, intent: bytes) -> str:
    with patch.object(jsonl, "append_timeline", lambda disk, folder, line: None):
        rotated = _replace(self, pieces, intent)
    jsonl.append_timeline(self._disk, self._folder, intent)
    return rotated


def _half_of_the_folder_syncs(self: JsonlLog, pieces: Any, intent: bytes) -> str:
    fsync = self._disk.fsync
    with patch.object(
        self._disk, "fsync", lambda handle: None if handle == self._folder else fsync(handle)
    ):
        return _replace(self, pieces, intent)


def _publish_before_commit(self: Any, batch: Batch) -> None:
    if batch.synced and batch.data:
        head = batch.opened.machine.tentative_head
        self._feed.publish(head, b"".join([*self.unsynced._blocks, batch.data]))
    _append(self, batch)


_put = Speculation._put
_replace = JsonlLog.replace
_append = OpenFiles.append


def _lines_of_any_generation(log: Any, machine: Any, command: Any) -> tuple[int, int]:
    cut, at = Position.parse(command.cut), Position.parse(command.at)
    if not 0 < cut.line <= at.line <= machine.head.line:
        raise BadRequest("not those of a compaction")
    return cut.line, at.line


def _nothing(*_: Any, **__: Any) -> None:
    return None


MUTANTS = {
    "a file sync that does nothing": Mutant(options=("ignore_fdatasync",)),
    "a folder sync that does nothing": Mutant(options=("ignore_folder_fsync",)),
    "keys remembered before the sync": Mutant(Speculation, "_put", _keys_before_sync),
    "a torn tail that is not cut": Mutant(
        tail_repair, "examine_tail", lambda region, marked: Tail(len(region))
    ),
    "a torn batch of which the whole lines stay": Mutant(
        tail_repair, "examine_tail", _whole_lines_alone
    ),
    "a failed sync that is believed at the next one": Mutant(
        FileEnd, "make_durable", _sync_without_writing_again
    ),
    "an opening that reads before it syncs": Mutant(FileEnd, "make_durable", _believe_without_sync),
    "a failed group that is not taken back": Mutant(JsonlLog, "discard_unsynced", _nothing),
    "a rewrite that did not take place and is not voided": Mutant(
        crash_recovery, "_is_completed", lambda disk, folder, entry: True
    ),
    "a rewrite that is never believed": Mutant(
        crash_recovery, "_is_completed", lambda disk, folder, entry: False
    ),
    "a second name that is not taken back": Mutant(crash_recovery, "_unlink_second_name", _nothing),
    "a rewrite that is told only after it": Mutant(JsonlLog, "replace", _replace_without_intent),
    "a rewrite whose names are not synced": Mutant(JsonlLog, "replace", _half_of_the_folder_syncs),
    "a key that is not looked up": Mutant(
        KeyTable, "must_be_looked_up", lambda self, key, repeat: False
    ),
    "a mark that tells of no key": Mutant(
        KeyTable, "youngest_ms", property(lambda self: 0), try_first=13
    ),
    "a key that is looked up in vain": Mutant(
        writer.key_lookup, "look_up", lambda log, path, key: None
    ),
    "a key whose contents are not compared": Mutant(Machine, "_contents", _nothing),
    "a record that is published before it is durable": Mutant(
        OpenFiles, "append", _publish_before_commit
    ),
    "a compaction of a session that was rewritten since": Mutant(
        compaction, "_lines_named", _lines_of_any_generation
    ),
    "a cut that a late result does not move": Mutant(
        Conversation, "whole", lambda self, line: line
    ),
    "a mail that outlives its checkpoint": Mutant(dmail, "outlives", lambda mail, entry: True),
    "a mail that nobody is told of when they come late": Mutant(Feed, "load_state", _nothing),
    "foreign lines that nobody notices": Mutant(JsonlLog, "is_foreign_changed", lambda self: False),
}
"""Every guard that the simulation is known to miss."""


def first_failing_seed(mutant: Mutant, seeds: range) -> int | None:
    """A seed that notices that the guard is missing."""
    with mutant.applied():
        for seed in (mutant.try_first, *seeds):
            try:
                play(seed, mutant.world(seed))
            except AssertionError:
                return seed
    return None
