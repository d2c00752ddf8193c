"""Checkpoints from before a compaction, in the generation behind it."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from support.daemon_in_thread import DaemonInThread

FIRST = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]


def _compact(folder: Path) -> None:
    """Put the files of a compaction: checkpoint ids continue, and the old file gets a number."""
    old = (folder / "context.jsonl").read_bytes()
    lines = [
        {"role": "_checkpoint", "id": 2, "_id": "compact.0/2"},
        {"role": "user", "content": "a summary", "_id": "compact.1/2"},
    ]
    new = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    entry = {
        "kind": "compacted", "generation": 1, "kept": 0, "at": 1.0, "key": "compact",
        "details": {
            "checkpoint_id": 2, "lines": 2,
            "old": [len(old), zlib.crc32(old)], "new": [len(new), zlib.crc32(new)],
        },
    }  # fmt: skip
    (folder / "context.jsonl").rename(folder / "context_1.jsonl")
    (folder / "context.jsonl").write_bytes(new)
    with (folder / "timeline.jsonl").open("ab") as timeline:
        timeline.write(json.dumps(entry).encode() + b"\n")


@pytest.fixture
def folder(root: Path) -> Iterator[Path]:
    """A compacted session: checkpoints 0 and 1 in generation 0, checkpoint 2 in generation 1."""
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        for message in FIRST:
            session.append_message(message)
            session.checkpoint()
        session.append_message({"role": "user", "content": "three"})
    folder = root / "sessions" / "demo"
    _compact(folder)
    with DaemonInThread(root):
        yield folder


def test_revert_finds_a_checkpoint_from_before_a_compaction(root: Path, folder: Path) -> None:
    whole = (folder / "context_1.jsonl").read_bytes()
    with steno.connect_sync(root) as client, steno.connect_sync(root) as other:
        session, mirror = client.open("demo"), other.open("demo")
        assert session.history == [{"role": "user", "content": "a summary"}]
        assert session.n_checkpoints == 3
        ack = session.revert_to(1)
        assert session.history == FIRST
        assert session.n_checkpoints == 3
        assert mirror.wait_for(ack.head)
        assert mirror.history == FIRST
        assert whole.startswith((folder / "context.jsonl").read_bytes())
        # The lineage continues behind it: generation 0 still contains checkpoint 0, and 2 is gone.
        with pytest.raises(
            steno.NotFound, match=r"reverted the session to checkpoint 1 .* contains it at 1:0"
        ):
            session.revert_to(2)
        session.revert_to(0)
        assert session.history == FIRST[:1]
