"""Checkpoints from before a compaction, in the generation behind it."""

from pathlib import Path

import pytest

import steno

pytestmark = pytest.mark.usefixtures("daemon")

FIRST = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
LAST = {"role": "user", "content": "three"}


def test_revert_finds_a_checkpoint_from_before_a_compaction(root: Path) -> None:
    folder = root / "sessions" / "demo"
    with (
        steno.connect_sync(root, spawn=False) as client,
        steno.connect_sync(root, spawn=False) as other,
    ):
        session = client.open("demo")
        for message in FIRST:
            session.append_message(message)
            session.checkpoint()
        session.append_message(LAST)
        assert session.compact(lambda _: "a summary", preserve=1) is not None
        mirror = other.open("demo")
        assert session.history[1:] == [LAST]
        assert session.n_checkpoints == 3

        ack = session.revert_to(1)
        assert session.history == FIRST
        assert session.n_checkpoints == 3
        assert mirror.wait_for(ack.head)
        assert mirror.history == FIRST
        whole = (folder / "context_1.jsonl").read_bytes()
        assert whole.startswith((folder / "context.jsonl").read_bytes())
        # The lineage continues behind it: generation 0 still contains checkpoint 0, and 2 is gone.
        with pytest.raises(
            steno.NotFound, match=r"reverted the session to checkpoint 1 .* contains it at 1:0"
        ):
            session.revert_to(2)
        session.revert_to(0)
        assert session.history == FIRST[:1]
