"""A whole daemon and all that a session has, from seeds: events, compactions, D-Mails, forks.

A failing seed is printed; `python -m sim.run --full --first SEED --seeds 1` plays it again.
"""

import random
from collections import Counter

import pytest

from sim.agents import Fate
from sim.full import play_full
from sim.full_mutants import FULL_MUTANTS
from sim.whole_mutants import first_failing_whole_seed
from sim.whole_verdict import folders_of

BLOCK = 30
KEPT_SEEDS = [301310, 301840]
"""They once failed: an error that a read's sync met, and one after which nobody could cut."""
SEEDS = range(120)


@pytest.mark.parametrize("first", range(0, 6 * BLOCK, BLOCK))
def test_all_parts_of_a_session_keep_every_promise_for_these_seeds(first: int) -> None:
    for number in range(first, first + BLOCK):
        play_full(number)


def test_all_parts_of_a_session_keep_every_promise_for_seeds_that_once_failed() -> None:
    for number in KEPT_SEEDS:
        play_full(number)


def test_all_parts_of_a_session_keep_every_promise_for_seeds_that_nobody_chose(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(BLOCK):
        play_full(chance.randrange(10**9))


@pytest.mark.parametrize("name", FULL_MUTANTS)
@pytest.mark.slow
def test_the_full_simulation_notices(name: str) -> None:
    assert first_failing_whole_seed(FULL_MUTANTS[name], SEEDS, play_full) is not None


def test_a_seed_is_played_the_same_way_each_time() -> None:
    first, again = (play_full(7) for _ in range(2))
    assert first.disk.calls == again.disk.calls
    assert first.now_s == again.now_s


@pytest.mark.slow
def test_in_some_seeds_everything_happens() -> None:
    happened = Counter[str]()
    done = Counter[str]()
    for number in range(50):
        simulation = play_full(number)
        for folder in folders_of(simulation.disk.tree()).values():
            happened.update(entry["kind"] for entry in folder.timeline)
            happened.update("expired" for entry in folder.timeline if _has_expired_mail(entry))
            happened.update("event" for _ in folder.wire[1:])
        for agent in simulation.agents:
            orders = [order for order in agent.orders if order.fate is Fate.DONE]
            done.update(type(order.command).__name__ for order in orders)

    wanted = ("event", "compacted", "sent", "delivered", "expired", "restored", "reverted", "fork")
    assert all(happened[kind] for kind in wanted), happened
    assert done["AppendWire"] > 50
    assert done["CompactCommit"] > 5


def _has_expired_mail(entry: dict[str, object]) -> bool:
    details = entry.get("details")
    return isinstance(details, dict) and "expired_mail" in details
