"""A daemon in a fork is one as its process would be."""

import os
from pathlib import Path

import pytest

from steno import Unreachable, connect_sync
from steno_protocol import paths
from support import left_behind, warm_daemon
from support.daemons import end_daemon_of

pytestmark = pytest.mark.forked


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
    assert "warm_daemon" in (process / "cmdline").read_text()
    assert os.getsid(pid) not in {pid, os.getsid(0)}
    assert (process / "cwd").readlink() == root
    assert (process / "fd" / "0").readlink() == Path(os.devnull)
    assert pid in {each.pid for each in left_behind._running()}
    end_daemon_of(root)
