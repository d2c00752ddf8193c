"""How a real daemon makes what it takes in durable."""

from pathlib import Path

import steno
from support.foreground import daemon_of_tests
from support.lines import user


def test_every_acknowledged_commit_was_synced(root: Path) -> None:
    with (
        daemon_of_tests(root, "support.telling_daemon") as daemon,
        steno.connect_sync(root, spawn=False) as client,
    ):
        session = client.open("demo", follow=False)
        for number, text in enumerate(("first", "second", "third"), 1):
            session.append_message(user(text))
            daemon.wait_for("demo/context.jsonl", number)
