"""Rewrites that several clients ask for at once."""

from pathlib import Path

import pytest

import steno

pytestmark = pytest.mark.usefixtures("daemon")


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
