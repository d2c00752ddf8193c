"""A session beside another program, on a disk that fails and in daemons that die.

`python -m sim.run --rough --first SEED --seeds 1` in `tests/` plays a failing seed again.
"""

import random
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest

from sim.intruder import MANNERS
from sim.rough import play_rough
from steno_protocol.positions import Position
from stenod.core.lines import Tail
from stenod.recovery import crash_recovery, file_opening, key_lookup, tail_repair
from stenod.recovery.tail_repair import FileEnd
from stenod.store import jsonl
from stenod.store.jsonl import JsonlLog
from stenod.writer import writer
from stenod.writer.mailbox import Batch

BLOCK = 60
IN_PLACE_FROM = list(MANNERS).index("in place")
SEEDS_MAX = 400
"""Seeds within which a guard that is taken out has to be missed."""


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _believe_without_sync(self: FileEnd, proven: int) -> int:
    return self.size


def _sync_without_writing_again(self: FileEnd, proven: int) -> int:
    size = self.size
    self.disk.fsync(self.handle)
    self.disk.fsync(self.folder)
    return size


def _mend_and_sync_no_more(self: FileEnd, mark: Any, now: float, entries: Any, **_: Any) -> int:
    return _mend(self, mark, now, entries, durable=1 << 60)


def _stored_without_a_look(batch: Batch) -> bool:
    return batch.error is None


def _open_as_if_it_never_was(disk: Any, folder: int, opening: Any, **_: Any) -> int:
    return _open_context(disk, folder, opening, is_there=False)


def _copy_without_sync(disk: Any, folder: int, name: str, offset: int, data: bytes) -> str:
    with patch.object(disk, "fsync", _nothing):
        return _quarantine(disk, folder, name, offset, data)


_mend = FileEnd.repair
_open_context = file_opening._open_context
_quarantine = jsonl.quarantine

GUARDS: dict[str, tuple[Any, str, Any]] = {
    "a failed group that is not taken back": (JsonlLog, "discard_unsynced", _nothing),
    "what is cut with a failed group": (jsonl, "quarantine", _nothing),
    "what is cut, before it is durable elsewhere": (tail_repair, "quarantine", _copy_without_sync),
    "what came since a torn tail was copied": (FileEnd, "_is_unchanged", lambda self, repair: True),
    "what was never synced when a file is opened": (
        FileEnd, "make_durable", _believe_without_sync,
    ),
    "what a failed sync dropped": (FileEnd, "make_durable", _sync_without_writing_again),
    "what came since a file was synced": (FileEnd, "repair", _mend_and_sync_no_more),
    "a torn tail": (tail_repair, "examine_tail", lambda region, marked: Tail(len(region))),
    "who wrote between a look and a write": (writer, "_is_stored", _stored_without_a_look),
    "keys in the files": (key_lookup, "_look_up_in", _nothing),
    "what nobody synced in a file that was moved away": (
        crash_recovery, "sync_past_generations", _nothing,
    ),
    "marks of a rewrite": (
        crash_recovery, "_is_proven_completed", lambda disk, folder, generation: False,
    ),
    "whether a rewrite took place": (
        crash_recovery, "_is_completed", lambda disk, folder, entry: True,
    ),
    "a file that was there until now": (file_opening, "_open_context", _open_as_if_it_never_was),
    "a replaced file at the end of a writer": (JsonlLog, "keep_replaced_at_close", _nothing),
    "where the last event was": (file_opening, "_last_joined_position", lambda log: Position(0, 0)),
}  # fmt: skip
"""What nobody looks at any more when this is patched."""

TRY_FIRST = {
    "what is cut with a failed group": 52,
    "what a failed sync dropped": 0,
    "what came since a file was synced": 0,
    "what nobody synced in a file that was moved away": 1584,
    "marks of a rewrite": 2168,
    "whether a rewrite took place": 2072,
    "a file that was there until now": 165,
    "a replaced file at the end of a writer": 128,
}
"""Seeds that noticed it once; only speed depends on them."""


KEPT_SEEDS = [30739, 40171, 41525, 60497, 920012, 930013, 71230078, 700025]
"""They once failed: cuts and edits in place during an opening, and what is left of a cut line."""


def test_what_was_promised_is_kept_through_deaths_and_faults_for_seeds_that_once_failed() -> None:
    for number in KEPT_SEEDS:
        play_rough(number)


@pytest.mark.parametrize("first", range(0, 4 * BLOCK, BLOCK))
def test_what_was_promised_is_kept_through_deaths_and_faults_for_these_seeds(first: int) -> None:
    for number in range(first, first + BLOCK):
        play_rough(number)


def test_what_was_promised_is_kept_through_deaths_and_faults_for_seeds_that_nobody_chose(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(BLOCK):
        # Who edits in place destroys what nobody can count exactly; those seeds were looked at.
        play_rough(len(MANNERS) * chance.randrange(10**8) + chance.randrange(IN_PLACE_FROM))


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.slow
def test_the_rough_world_notices_when_nobody_looks_at(name: str) -> None:
    with patch.object(*GUARDS[name]):
        assert first_failing([TRY_FIRST.get(name, 0), *range(SEEDS_MAX)]) is not None


def first_failing(seeds: Iterable[int]) -> int | None:
    """A seed in which a promise is broken."""
    for number in seeds:
        try:
            play_rough(number)
        except AssertionError:
            return number
    return None
