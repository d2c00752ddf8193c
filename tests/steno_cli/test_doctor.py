"""Findings of `steno doctor` that a healthy machine does not have; in process."""

import fcntl
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from steno_cli.doctor import Finding, daemon
from steno_cli.doctor.cluster import check_cluster
from steno_cli.doctor.daemon import check_lock, check_socket
from steno_cli.doctor.root import check_disk, check_root, check_sync
from steno_cli.doctor.sessions import check_sessions
from steno_protocol import PROTOCOL_VERSION, __version__, limits, paths
from steno_protocol.errors import Incompatible
from steno_protocol.replies import StatusReport

Check = Callable[[Namespace, Path], Iterator[Finding]]

STATUS = StatusReport(
    version=__version__, protocol=PROTOCOL_VERSION, pid=1, root="", endpoint="", uptime_s=1.0,
    mounts={}, sessions_open=0, clients=1, queued=3, appended_records=0, syncs=0, sync_s=0.0,
    slowest_sync_s=0.0, dropped=0, draining=True,
)  # fmt: skip


@pytest.fixture
def held(root: Path) -> Iterator[None]:
    """A daemon that just starts holds the root."""
    with (root / paths.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def of_another_user(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)


def closed_to_its_owner(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)


def nearly_full(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    mib = limits.MIB // 4096
    found = os.statvfs_result((4096, 4096, 9999 * mib, 300 * mib, 300 * mib, 9, 9, 9, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)


def without_inodes(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    kib = 1024
    found = os.statvfs_result((1024, 1024, 64 * kib, 60 * kib, 60 * kib, 100, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)


def without_a_size(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    found = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)


def slow(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(limits, "SLOW_SYNC_S", 0.0)


def with_a_cluster(_: pytest.MonkeyPatch, root: Path) -> None:
    (root / paths.CONFIG).write_text(
        "[replication]\ncluster = 'team'\nservers = ['nats://a:4222']\n"
    )


def with_two_sessions(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr(limits, "LIST_SESSIONS_MAX", 1)
    for name in "ab":
        (root / paths.SESSIONS / name).mkdir(parents=True)
        (root / paths.SESSIONS / name / paths.CONTEXT).touch()


@pytest.mark.parametrize(
    ("check", "spoil", "state", "printed"),
    [
        (check_root, of_another_user, "problem", "belongs to uid"),
        (check_root, closed_to_its_owner, "problem", "cannot be written"),
        (check_disk, nearly_full, "warning", "315 MB free of"),
        (check_disk, without_inodes, "problem", "63 MB free of 67 MB, and no inode"),
        (check_disk, without_a_size, "ok", "does not report"),
        (check_sync, slow, "warning", "append and fdatasync take"),
        (check_cluster, with_a_cluster, "ok", "config.toml names the cluster team"),
        (check_sessions, with_two_sessions, "ok", "only the first 1 were checked"),
    ],
)
def test_state_of_a_root_is_a_finding(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Check,
    spoil: Callable[[pytest.MonkeyPatch, Path], None],
    state: str,
    printed: str,
) -> None:
    spoil(monkeypatch, root)
    (finding,) = check(Namespace(), root)
    assert (finding.state, bool(finding.remedy)) == (state, state != "ok")
    assert printed in finding.text


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("this client is too old: update steno in the client's environment", "doctor"),
        ("the daemon at x is too old (it speaks protocol 1): `steno restart`", "restart"),
    ],
)
def test_only_a_daemon_that_is_too_old_is_to_be_restarted(
    root: Path, monkeypatch: pytest.MonkeyPatch, message: str, remedy: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Incompatible(message)

    monkeypatch.setattr(daemon, "connect_sync", refuse)
    (finding,) = daemon.check_daemon(Namespace(timeout=None), root)
    assert remedy in finding.remedy


@pytest.mark.usefixtures("held")
def test_starting_daemon_is_named_and_its_socket_must_not_be_open_to_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [each.text for each in check_lock(Namespace(), root)] == [
        "held by a daemon that is just starting"
    ]
    assert [*check_socket(Namespace(), root)] == []
    root.chmod(0o770)
    (finding,) = check_socket(Namespace(), root)
    assert (finding.state, finding.remedy) == ("warning", f"`chmod 700 {root}`")
    of_another_user(monkeypatch, root)
    (finding,) = check_socket(Namespace(), root)
    assert (finding.state, "belongs to uid" in finding.text) == ("problem", True)


def test_draining_daemon_and_one_of_another_version_are_warnings(root: Path) -> None:
    version, draining = daemon._check_status(STATUS, root)
    assert (version.state, draining.state) == ("ok", "warning")
    assert draining.text == "it is draining, with 3 commands in its queue"
    older = msgspec.structs.replace(STATUS, version="0.0.1", draining=False)
    (found,) = daemon._check_status(older, root)
    assert (found.state, "restart" in found.remedy) == ("warning", True)
