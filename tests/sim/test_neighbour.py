"""A session beside a program that comes between any two of its calls: nothing is ever lost.

What this cannot ask for is in `NeighbourSimulation`; `daemon/limits.md` has it too.
"""

import random
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from sim.neighbour import play_beside
from stenod.recovery.tail_repair import FileEnd
from stenod.store.jsonl import JsonlLog

BLOCK = 24


def _link_whatever_is_there(self: JsonlLog, rotated: str) -> None:
    self._disk.link(self._folder, self._name, rotated)


GUARDS: dict[str, tuple[list[tuple[Any, str, Any]], range]] = {
    "a file that another program replaced": (
        [(JsonlLog, "keep_replaced", lambda self: False)],
        range(2, 80, 4),
    ),
    "the file that a rewrite leaves behind": (
        [
            (JsonlLog, "_link_present", _link_whatever_is_there),
            (JsonlLog, "_check_in_place", lambda self: None),
        ],
        range(2, 400, 4),
    ),
    "what came since a torn tail was copied": (
        [(FileEnd, "_is_unchanged", lambda self, repair: True)],
        range(1, 200, 4),
    ),
}
"""Patches that take a guard out, and seeds of the world in which that is noticed."""


def first_failing(seeds: range) -> int | None:
    """A seed in which something is nowhere."""
    for number in seeds:
        try:
            play_beside(number)
        except AssertionError:
            return number
    return None


@pytest.mark.parametrize("first", range(0, 4 * BLOCK, BLOCK))
def test_what_was_acknowledged_or_appended_is_in_some_file_for_these_seeds(first: int) -> None:
    for number in range(first, first + BLOCK):
        play_beside(number)


def test_what_was_acknowledged_or_appended_is_in_some_file_for_seeds_that_nobody_chose(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(BLOCK):
        play_beside(chance.randrange(10**9))


@pytest.mark.parametrize("name", GUARDS)
def test_the_neighbour_is_noticed_when_nobody_looks_at(name: str) -> None:
    patches, seeds = GUARDS[name]
    with ExitStack() as held:
        for target, method, instead in patches:
            held.enter_context(patch.object(target, method, instead))
        assert first_failing(seeds) is not None
