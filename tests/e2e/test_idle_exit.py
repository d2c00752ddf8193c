"""The end of idle daemon processes, and clients that connect meanwhile."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import steno
from support.command import Steno
from support.racers import wait_for_jitter

CLIENTS = 16


@pytest.mark.slow
def test_clients_that_come_while_the_daemon_ends_lose_nothing_and_meet_no_error(
    root: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STENO_LIFE_IDLE_EXIT_S", "0.04")
    rng = random.Random(seed)
    pids: set[int] = set()
    number = 0
    # A busy daemon may notice none of the first pauses; without an end nothing is tried.
    while number < CLIENTS or len(pids) < 2:
        with steno.connect_sync(root) as client:
            pids.add(client.welcome.pid)
            session = client.open("demo", follow=False)
            session.append_message({"role": "user", "content": f"message {number}"})
        number += 1
        # Around the moment at which the daemon makes up its mind.
        wait_for_jitter(rng.uniform(0.03, 0.07))
    lines = (root / "sessions" / "demo" / "context.jsonl").read_text().splitlines()
    contents = [json.loads(line)["content"] for line in lines]
    assert contents == [f"message {each}" for each in range(number)]


def test_the_daemon_of_an_adapters_own_tree_ends_after_its_user_was_killed(
    root: Path, tmp_path: Path
) -> None:
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from steno.adapters.kimi import Context

async def main():
    context = Context(file_backend=Path(sys.argv[1]) / "context.jsonl", message_type=dict)
    await context.checkpoint(False)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    folder = tmp_path / "session"
    folder.mkdir()
    steno_home = Steno(root)
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**steno_home.environment, "STENO_LIFE_IDLE_EXIT_S": "0.2"},
        timeout=60,
        check=False,
    )
    assert ran.returncode == -9
    (own,) = (root / "adapters").iterdir()
    assert "idle_exit_s = 60\n" in (own / "config.toml").read_text()
    with steno_home.begin("logs", "-f", "--root", str(own)) as follower:
        assert follower.stdout is not None
        assert any(" idle_exit " in line for line in follower.stdout)
        follower.kill()
