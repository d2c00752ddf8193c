"""Of all daemons one writes: the next one on a root, or on a folder of another root, is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

import steno
from steno_protocol import places
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


@pytest.mark.parametrize("way", ["detached", "foreground", "socket", "link"])
def test_a_second_daemon_refuses_to_start_and_says_who_holds_the_root(
    root: Path, tmp_path: Path, way: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    arguments = {"foreground": ["--foreground"], "socket": ["--socket", str(tmp_path / "s")]}
    with ForegroundDaemon(root) as first:
        second = _second(link if way == "link" else root, *arguments.get(way, []))
        assert second.returncode == HELD
        assert f'"pid":{first.pid}' in second.stderr
        assert str(root) in second.stderr
        with steno.connect_sync(root) as client:
            assert client.status().pid == first.pid


def test_a_session_that_two_roots_mount_is_written_by_one_daemon(
    root: Path, shared_root: Path, tmp_path: Path
) -> None:
    for each in (root, shared_root):
        (each / places.CONFIG).write_text(f'[mounts]\nshared = "{tmp_path}"\n')
    hello = {"role": "user", "content": "hi"}
    with steno.connect_sync(root) as first, steno.connect_sync(shared_root) as second:
        first.open("shared:talk").append_message(hello)
        with pytest.raises(steno.Held) as refused:
            second.open("shared:talk")
        assert refused.value.outcome == "not_applied"
    assert (tmp_path / "talk" / "context.jsonl").read_text().count("\n") == 1
