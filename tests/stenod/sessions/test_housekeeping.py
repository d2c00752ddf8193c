"""The periodic housekeeping of a daemon, which no client asks for."""

from pathlib import Path

import pytest

from steno import connect_sync
from steno_protocol import limits
from support.daemon_in_thread import DaemonInThread
from support.lines import foreign


def test_housekeeping_finds_foreign_changes_of_followed_sessions(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOUSEKEEPING_S", 0.05)
    with DaemonInThread(root), connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        session.append_message({"role": "user", "content": "hi"})
        with (root / "sessions" / "demo" / "context.jsonl").open("ab") as file:
            file.write(foreign("theirs"))
        assert session.wait_for("0:2", timeout=30)
        assert session.history[-1]["content"] == "theirs"
