"""A daemon's own rounds tell those who follow of what another program wrote; nobody asks it."""

import os
import sys
from pathlib import Path

from steno import connect_sync
from support.foreground import ForegroundDaemon
from support.lines import foreign
from support.project import PROJECT


def test_the_housekeeping_looks_at_what_is_followed(root: Path) -> None:
    daemon = ForegroundDaemon(root, module=("support.brisk_daemon",))
    daemon.environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "tests"), *sys.path])
    with daemon, connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        session.append_message({"role": "user", "content": "hi"})
        with (root / "sessions" / "demo" / "context.jsonl").open("ab") as file:
            file.write(foreign("theirs"))
        assert session.wait_for("0:2", timeout=30)
        assert session.history[-1]["content"] == "theirs"
