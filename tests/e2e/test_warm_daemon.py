"""A daemon in a fork is one as its process would be."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from steno import Unreachable, connect_sync
from steno_protocol import paths
from support import left_behind, warm_daemon
from support.daemons import end_daemon_of


def refusal_of(root: Path) -> str:
    with pytest.raises(Unreachable) as refused:
        connect_sync(root)
    return refused.value.message


def test_a_start_in_a_fork_fails_as_its_process_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / paths.CONFIG).write_text("this is no configuration")
    in_a_fork = refusal_of(root)
    monkeypatch.delenv(warm_daemon.ADDRESS)
    assert in_a_fork == refusal_of(root)
    assert "could not start (exit code 1) and said: stenod: cannot start: " in in_a_fork


def test_a_daemon_in_a_fork_is_detached_and_found_when_a_test_leaves_it_behind(root: Path) -> None:
    with connect_sync(root) as client:
        pid = client.status().pid
    process = Path(f"/proc/{pid}")
    words = (process / "cmdline").read_text().split("\0")
    assert "warm_daemon" in words[3]
    # As the command of a client: no module of the folder that it works in.
    assert words[1] == "-P"
    assert os.getsid(pid) not in {pid, os.getsid(0)}
    assert (process / "cwd").readlink() == root
    assert (process / "fd" / "0").readlink() == Path(os.devnull)
    assert (pid, "") in {(each.pid, each.test) for each in left_behind._running()}
    end_daemon_of(root)


def test_the_process_that_forks_ends_with_the_tests_that_started_it() -> None:
    code = (
        "from support import warm_daemon; warm_daemon.address();"
        "print(warm_daemon._server().process.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as tests:
        assert tests.stdout is not None
        server = os.pidfd_open(int(tests.stdout.readline()))
        tests.kill()
    assert select.select([server], [], [], 60)[0]
    os.close(server)
