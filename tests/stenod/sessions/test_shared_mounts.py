"""Mounts that several roots share."""

from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from support.daemon_in_thread import DaemonInThread


def test_session_in_two_roots_is_written_by_one_daemon(
    root: Path, shared_root: Path, tmp_path: Path
) -> None:
    for each in (root, shared_root):
        (each / paths.CONFIG).write_text(f'[mounts]\nshared = "{tmp_path}"\n')
    hello = {"role": "user", "content": "hi"}
    with (
        DaemonInThread(root),
        DaemonInThread(shared_root),
        steno.connect_sync(root, spawn=False) as first,
        steno.connect_sync(shared_root, spawn=False) as second,
    ):
        first.open("shared:talk").append_message(hello)
        with pytest.raises(steno.Held) as refused:
            second.open("shared:talk")
        assert refused.value.outcome == "not_applied"
    assert (tmp_path / "talk" / "context.jsonl").read_text().count("\n") == 1
