"""Both files of a session from seeds: events beside commands, faults and deaths, then a verdict.

`python -m sim.run --wire --first SEED --seeds 1` in `tests/` plays a failing seed again.
"""

import random
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from sim import both_files
from sim.both_files import BothFiles
from sim.simulation import play, world_of
from steno_protocol import paths
from steno_protocol.wire import metadata_line
from stenod.core.lines import Tail
from stenod.core.wire_machine import WireMachine
from stenod.recovery import tail_repair
from stenod.recovery.tail_repair import FileEnd
from stenod.store.jsonl import JsonlLog
from stenod.writer import writer
from support.writing import PATH

BLOCK = 30
SEEDS = range(300)

_decide = WireMachine._decide


def _with_a_header_each_time(self: WireMachine, command: Any, data: Any) -> Any:
    decision = _decide(self, command, data)
    header = metadata_line() if self.head.line == 0 else b""
    return type(decision)(header + decision.data, decision.ack)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "an event that is joined to what is not durable": (
        both_files, "context_head", lambda owner: owner.opened.machine.tentative_head,
    ),
    "a header in each group until one is synced": (
        WireMachine, "_decide", _with_a_header_each_time,
    ),
    "a torn end that is not cut": (
        tail_repair, "examine_tail", lambda region, marked: Tail(len(region)),
    ),
    "an opening that reads before it syncs": (
        FileEnd, "make_durable", lambda self, proven: self.size,
    ),
    "a failed group that is not taken back": (JsonlLog, "discard_unsynced", lambda self: None),
    "a key that is looked up in vain": (
        writer.key_lookup, "look_up", lambda log, path, key: None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("first", range(0, 3 * BLOCK, BLOCK))
def test_every_promise_holds_for_both_files_for_these_seeds(first: int) -> None:
    for number in range(first, first + BLOCK):
        play(number, kind=BothFiles)


def test_every_promise_holds_for_both_files_for_seeds_that_nobody_chose(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(BLOCK):
        play(chance.randrange(10**9), kind=BothFiles)


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.slow
def test_a_missing_guard_of_the_wire_file_is_noticed(mutant: str) -> None:
    with patch.object(*MUTANTS[mutant]):
        assert any(_fails(seed) for seed in SEEDS), f"nothing noticed {mutant}"


def _fails(seed: int) -> bool:
    """Whether the wire file, judged alone, is not what it should be."""
    with patch("sim.verdict.check"):
        try:
            play(seed, kind=BothFiles)
        except AssertionError:
            return True
    return False


def test_most_seeds_leave_events_and_messages_behind() -> None:
    both = 0
    for number in range(10):
        simulation = BothFiles(number, world_of(number))
        anyio.run(simulation.run)
        tree = simulation._disk.tree()
        both += all(tree.get(f"{PATH}/{name}") for name in (paths.CONTEXT, paths.WIRE))
    assert both >= 7
