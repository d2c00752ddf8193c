"""Rewrites that several clients ask for at once."""

import threading
from pathlib import Path

import pytest

import steno

pytestmark = pytest.mark.usefixtures("daemon")

CLIENTS = 4
CHECKPOINTS = 75


def _connected(root: Path) -> steno.BlockingClient:
    return steno.connect_sync(root, spawn=False)


@pytest.mark.parametrize("expecting", [False, True])
def test_two_reverts_get_one_result_each_in_a_defined_order(root: Path, expecting: bool) -> None:
    with _connected(root) as one, _connected(root) as two:
        first, second = one.open("race"), two.open("race")
        for _ in range(3):
            first.checkpoint()
        head = first.head if expecting else None
        assert first.revert_to(2, expect=head).head == first.head
        if expecting:
            with pytest.raises(steno.Conflict) as lost:
                second.revert_to(1, expect=head)
            assert lost.value.head == str(first.head)
        else:
            assert second.revert_to(1).head > first.head
            with pytest.raises(steno.NotFound, match="reverted the session to checkpoint"):
                first.revert_to(2)


def test_checkpoints_of_four_clients_are_all_distinct(root: Path) -> None:
    numbers: list[int | None] = []

    def make_checkpoints() -> None:
        with _connected(root) as client:
            session = client.open("race", follow=False)
            numbers.extend(session.checkpoint().checkpoint_id for _ in range(CHECKPOINTS))

    threads = [threading.Thread(target=make_checkpoints) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number in numbers if number is not None) == list(
        range(CLIENTS * CHECKPOINTS)
    )
