"""Retention by a daemon: the rules of its configuration, followed on command and once a day."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import limits, paths
from steno_protocol.commands import Delete, Gc
from steno_protocol.replies import GcReport
from stenod.daemon import Daemon
from stenod.store import usage
from support.daemon_in_thread import DaemonInThread


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Iterator[steno.BlockingClient]:
    """A client of the daemon of this root."""
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def follow(
    client: steno.BlockingClient, daemon: DaemonInThread, rules: str, **wanted: Any
) -> GcReport:
    """Set the rules, and follow them."""
    (daemon.root / paths.CONFIG).write_text(f"[retention]\n{rules}\n")
    daemon.reload()
    report, _ = client.request(Gc(retention=True, **wanted), GcReport)
    assert report.failed == []
    return report


def make(client: steno.BlockingClient, session: str, *, days: float = 0, text: str = "hi") -> Path:
    """A session that was changed so many days ago."""
    client.open(session, follow=False).append_message({"role": "user", "content": text})
    folder = Path(client.stat(session).folder)
    age(folder, days)
    return folder


def age(folder: Path, days: float) -> None:
    at = time.time() - days * limits.DAY_S
    for file in folder.iterdir():
        if file.is_file():
            os.utime(file, (at, at))


def rewritten(client: steno.BlockingClient, times: int = 5) -> Path:
    session = client.open("demo", follow=False)
    for number in range(times):
        session.append_message({"role": "user", "content": f"{number} " + "x" * 1000})
        session.clear()
    return Path(client.stat("demo").folder)


def sessions(client: steno.BlockingClient) -> list[str]:
    return [entry.session for entry in client.sessions()]


def trash(root: Path) -> list[Path]:
    folder = root / paths.SESSIONS / paths.TRASH
    return sorted(folder.iterdir()) if folder.exists() else []


def test_without_a_rule_nothing_goes(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    make(client, "old", days=4000)
    rewritten(client)
    report = follow(client, daemon, "")
    assert (report.files, report.sessions, report.entries) == (0, 0, [])
    assert sessions(client) == ["demo", "old"]
    assert trash(root) == []


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ("generations_number = 2", 2),
        ("generations_bytes = 3500", 3),
        ("generations_days = 1e-9", 1),
    ],
)
def test_generations_go_by_number_size_and_age(
    client: steno.BlockingClient, daemon: DaemonInThread, rule: str, left: int
) -> None:
    folder = rewritten(client)
    report = follow(client, daemon, rule)
    assert report.files == 5 - left
    assert len(list(folder.glob("context_*.jsonl"))) == left
    assert {entry.rule.partition(" =")[0] for entry in report.entries} == {
        f"retention.{rule.partition(' =')[0]}"
    }
    (rules,) = [entry.details["rules"] for entry in client.session("demo").timeline()[-1:]]
    assert list(rules.values()) == [list(range(5 - left))]


@pytest.mark.parametrize(
    "rule", ["sessions_days = 30", "sessions_number = 2", 'sessions_bytes = "64 KiB"']
)
def test_cold_sessions_go_to_the_trash_and_come_back_whole(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread, rule: str
) -> None:
    make(client, "cold", days=40, text="x" * 50_000)
    make(client, "mild", days=10)
    make(client, "warm", days=2)
    report = follow(client, daemon, rule)
    assert sessions(client) == ["mild", "warm"]
    (entry,) = report.entries
    assert (report.sessions, report.files, report.bytes) == (1, 0, 0)
    assert (entry.session, entry.trashed, entry.file) == ("cold", True, str(trash(root)[0]))
    assert entry.rule.startswith(f"retention.{rule.partition(' =')[0]}")
    assert entry.bytes > 50_000
    assert ".retention-" in trash(root)[0].name
    assert rule.partition(" =")[0] in daemon.wait_for("retired")
    client.undelete("cold")
    (line,) = client.session("cold").lines()
    assert b"x" * 50_000 in line


def test_dry_run_shows_the_rule_of_each_file_and_moves_nothing(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = make(client, "cold", days=40)
    rewritten(client)
    rules = "generations_number = 4\nsessions_days = 30"
    report = follow(client, daemon, rules, dry_run=True)
    assert [(each.session, each.rule) for each in report.entries] == [
        ("demo", "retention.generations_number = 4"),
        ("cold", "retention.sessions_days = 30"),
    ]
    assert report.entries[1].file == str(folder)
    assert folder.exists()
    assert trash(root) == []


def test_session_is_as_cold_as_the_warmest_below_it(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    make(client, "team", days=40)
    make(client, "team/worker", days=2)
    make(client, "crew", days=40)
    make(client, "crew/worker", days=50)
    assert follow(client, daemon, "sessions_days = 30").sessions == 1
    assert sessions(client) == ["team", "team/worker"]


def test_followed_session_stays(client: steno.BlockingClient, daemon: DaemonInThread) -> None:
    make(client, "demo", days=40)
    with client.session("demo").subscribe() as events:
        next(iter(events))
        assert follow(client, daemon, "sessions_days = 30").sessions == 0
    assert sessions(client) == ["demo"]


def test_session_that_was_changed_since_the_rule_named_it_stays(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = make(client, "demo", days=40)
    found = usage.changed_at(str(folder))
    client.session("demo").append_message({"role": "user", "content": "not cold any more"})

    async def retire(serving: Daemon) -> None:
        await serving._operations.deletions.retire(Delete(session="demo", key="k"), found)

    with pytest.raises(steno.Conflict, match="changed meanwhile"):
        daemon.call(retire)
    assert len(list(client.session("demo").lines())) == 2
    client.session("demo").append_message({"role": "user", "content": "and goes on"})


def test_sessions_of_a_mount_have_no_rule(tmp_path: Path, root: Path) -> None:
    mount = tmp_path / "kimi"
    mount.mkdir()
    (root / paths.CONFIG).write_text(
        f'[mounts]\nkimi = "{mount}"\n[retention]\nsessions_days = 1\n'
        "generations_compressed_days = 1e-9\nstreams_compressed_days = 1e-9\n"
    )
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("kimi:cold", follow=False)
        for _ in range(3):
            session.append_message({"role": "user", "content": "the same words again " * 500})
            session.clear()
        session.stream("notes").append([{"text": "the same words again " * 500}])
    for file in (mount / "cold").iterdir():
        os.utime(file, (0, 0))
    files = {path.name for path in (mount / "cold").iterdir()}
    # The session is closed now: the streams of an open one stay plain anywhere.
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        report, _ = client.request(Gc(retention=True), GcReport)
        assert (report.sessions, report.compressed) == (0, 0)
        assert sessions(client) == ["kimi:cold"]
    assert {path.name for path in (mount / "cold").iterdir()} >= files


@pytest.mark.parametrize("rule", ["trash_number = 1", "trash_bytes = 40000"])
def test_trash_goes_by_number_and_size_after_a_day(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread, rule: str
) -> None:
    for name in ("a", "b", "c"):
        make(client, name, text=name * 10_000)
        client.delete(name)
    assert follow(client, daemon, rule).files == 0
    for days, folder in enumerate(trash(root), start=2):
        at, rest = folder.name.split(".", 1)
        folder.rename(folder.with_name(f"{int(at) - days * 86_400}.{rest}"))
    oldest, middle, newest = trash(root)
    report = follow(client, daemon, rule)
    assert [entry.file for entry in report.entries] == [str(oldest), str(middle)]
    assert {entry.rule.partition(" =")[0] for entry in report.entries} == {
        f"retention.{rule.partition(' =')[0]}"
    }
    assert trash(root) == [newest]


def test_expired_stream_frees_its_space_with_any_rule(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    # Adapters of frameworks delete streams; without a rule their space is freed by hand alone.
    folder = make(client, "demo")
    stream = client.session("demo").stream("notes")
    stream.append([{"text": "x" * 10_000}])
    stream.delete()
    (deleted,) = folder.glob("stream-notes~*")
    name, number, _, rest = deleted.name.split("~", 3)
    deleted = deleted.rename(folder / f"{name}~{number}~1700000000~{rest}")
    report = follow(client, daemon, "generations_days = 365")
    assert [(each.file, each.rule) for each in report.entries] == [
        (deleted.name, "disk.trash_days = 30")
    ]
    assert deleted.stat().st_size == 0


@pytest.mark.parametrize("contents", [b'{"n":1}\n', b""], ids=["expired now", "emptied before"])
def test_nothing_stays_of_an_expired_stream_of_a_failed_rewrite(
    client: steno.BlockingClient, daemon: DaemonInThread, contents: bytes
) -> None:
    folder = make(client, "demo")
    stream = client.session("demo").stream(f"rewrite-{1:016x}")
    stream.append([{"n": 1}])
    stream.delete()
    (deleted,) = folder.glob("stream-rewrite-*~*")
    deleted.write_bytes(contents)
    name, number, _, rest = deleted.name.split("~", 3)
    deleted.rename(folder / f"{name}~{number}~1700000000~{rest}")
    (entry,) = follow(client, daemon, "generations_days = 365").entries
    assert entry.bytes == len(contents)
    assert list(folder.glob("stream-rewrite-*")) == []


def test_daemon_follows_the_rules_by_itself(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        make(client, "cold", days=40)
    (root / paths.CONFIG).write_text("[retention]\nsessions_days = 30\n")
    with DaemonInThread(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        daemon.wait_for("collected")
        assert sessions(client) == []
