"""One writer for each root: a second daemon is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from support.foreground import ForegroundDaemon

HELD = 3


def _second(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stenod", "--root", str(root), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_second_daemon_refuses_to_start_and_names_the_holder(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    with ForegroundDaemon(root) as first:
        for place, arguments in (
            (root, []),
            (root, ["--foreground"]),
            (root, ["--socket", str(tmp_path / "s")]),
            (link, []),
        ):
            second = _second(place, *arguments)
            assert second.returncode == HELD
            assert f": pid {first.pid}, version " in second.stderr
            assert str(root) in second.stderr
        with steno.connect_sync(root) as client:
            assert client.status().pid == first.pid


@pytest.mark.parametrize("accident", ["replaced", "unlocked"])
def test_a_daemon_that_lost_its_root_opens_nothing_more_and_ends(root: Path, accident: str) -> None:
    home = root / "home"
    home.mkdir(0o700)
    hello = {"role": "user", "content": "hi"}
    with ForegroundDaemon(home) as first, steno.connect_sync(home, spawn=False) as client:
        client.open("old").append_message(hello)
        if accident == "replaced":
            home.rename(root / "moved")
            home.mkdir(0o700)
        else:
            (home / paths.LOCK).unlink()
        with ForegroundDaemon(home) as second:
            # The first daemon checks its root before an opening, so clients find the second.
            client.open("new", follow=False).append_message(hello)
            assert client.status().pid == second.pid
            assert "root_lost" in first.wait_for("root_lost")
            assert first.wait() == 0
            assert (home / "sessions" / "new" / "context.jsonl").exists()
            assert not (root / "moved" / "sessions" / "new").exists()
            # The first daemon also releases its open files.
            client.open("old", follow=False).append_message(hello)


def _append_for_ever(session: "steno.BlockingSession") -> None:
    while True:
        session.append_message({"role": "user", "content": "hi"})


def test_daemon_in_use_notices_that_its_root_was_replaced(
    root: Path,
) -> None:
    home = root / "home"
    home.mkdir(0o700)
    with ForegroundDaemon(home) as first, steno.connect_sync(home, spawn=False) as client:
        session = client.open("demo", follow=False)
        home.rename(root / "moved")
        home.mkdir(0o700)
        with ForegroundDaemon(home) as second:
            # In the root that is there now is no such session.
            with pytest.raises(steno.NotFound):
                _append_for_ever(session)
            assert "root_lost" in first.wait_for("root_lost")
            assert first.wait() == 0
            assert client.status().pid == second.pid
