"""How a real daemon makes what it takes in durable."""

from pathlib import Path

import steno
from support.foreground import daemon_of_tests
from support.lines import user


def test_a_commit_asks_for_a_sync_of_the_file_system_and_says_what_is_not_durable(
    root: Path,
) -> None:
    with daemon_of_tests(root, "support.telling_daemon") as daemon:
        with steno.connect_sync(root, spawn=False) as client:
            session = client.open("demo", follow=False)
            for text in ("first", "second", "third"):
                session.append_message(user(text))
        lines = (root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines(True)
        daemon.wait_for(f"together from [{len(lines[0] + lines[1])}]")
