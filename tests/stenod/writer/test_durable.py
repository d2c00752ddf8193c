"""Durability of acknowledged commits on the real disk."""

import os
from pathlib import Path

import pytest

import steno
import steno_system as system
from support.daemon_in_thread import DaemonInThread
from support.lines import user


def test_every_acknowledged_commit_was_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fdatasync = os.fdatasync

    def record_sync(handle: int) -> None:
        fdatasync(handle)
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(system, "fdatasync", record_sync)
    context = root / "sessions" / "demo" / "context.jsonl"
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for number, text in enumerate(("first", "second", "third"), 1):
            session.append_message(user(text))
            assert synced.count(context) == number
