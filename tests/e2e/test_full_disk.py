"""A full disk, made by a limit on the size of files."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from steno_protocol.errors import Outcome
from support.foreground import ForegroundDaemon

ROOM = 64 * 1024


def _let_files_grow_to(daemon: ForegroundDaemon, size: int) -> None:
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _fill(session: "steno.BlockingSession", acks: list[steno.Ack]) -> None:
    """Append until it is refused."""
    while True:
        acks.append(session.append_message({"role": "user", "content": "y" * 1000}))


def test_a_full_disk_is_a_definite_error_and_appends_resume_by_themselves(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("full", follow=False)
        other = client.open("other", follow=False)
        acks = [session.append_message({"role": "user", "content": "x" * 1000})]
        _let_files_grow_to(daemon, ROOM)
        with pytest.raises(steno.StorageFailed) as refused:
            _fill(session, acks)
        assert refused.value.outcome is Outcome.NOT_APPLIED
        assert refused.value.session == "full"
        with pytest.raises(steno.StorageFailed):
            session.append_message({"role": "user", "content": "y" * 1000}, key="again")

        lines = list(session.lines())
        assert len(lines) == len(acks), "reads go on, and show what was acknowledged"
        assert all(json.loads(line) for line in lines)
        assert other.append_message({"role": "user", "content": "small"}).durability == "synced"

        _let_files_grow_to(daemon, resource.RLIM_INFINITY)
        ack = session.append_message({"role": "user", "content": "y" * 1000}, key="again")
        assert not ack.duplicate
        assert ack.first.line == len(acks)


def test_a_batch_that_does_not_fit_leaves_nothing_of_itself(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("full", follow=False)
        session.append_message({"role": "user", "content": "before"})
        _let_files_grow_to(daemon, ROOM)
        batch = [{"role": "user", "content": "z" * 1000}] * 100
        with pytest.raises(steno.StorageFailed):
            session.append_message(batch, key="batch")
        assert len(list(session.lines())) == 1

        _let_files_grow_to(daemon, resource.RLIM_INFINITY)
        assert session.append_message(batch, key="batch").first.line == 1
        assert len(list(session.lines())) == 101


def test_a_rewrite_that_does_not_fit_leaves_the_session_as_before(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("full", follow=False)
        session.checkpoint()
        session.append_message([{"role": "user", "content": "z" * 1000}] * 100)
        long = list(session.lines())
        session.revert_to(0)
        session.append_message({"role": "user", "content": "short"})
        before = list(session.lines())
        _let_files_grow_to(daemon, ROOM)
        with pytest.raises(steno.StorageFailed) as refused:
            session.restore_generation(0, key="restore")
        assert refused.value.outcome is Outcome.NOT_APPLIED
        assert list(session.lines()) == before
        assert session.append_message({"role": "user", "content": "goes on"}).first.line == 1

        _let_files_grow_to(daemon, resource.RLIM_INFINITY)
        assert not session.restore_generation(0, key="restore").duplicate
        assert list(session.lines()) == long


@pytest.mark.parametrize("arguments", [[], ["--foreground"]])
def test_a_daemon_without_room_for_its_lock_says_which_file_it_was(
    root: Path, arguments: list[str]
) -> None:
    def leave_no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

    ran = subprocess.run(
        [sys.executable, "-m", "stenod", "--root", str(root), *arguments],
        preexec_fn=leave_no_room,
        # Without bytecode, of which it would write only the beginning.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 1
    assert f"stenod: cannot start: [Errno {errno.ENOSPC}]" in ran.stderr
    assert str(root / paths.LOCK) in ran.stderr
