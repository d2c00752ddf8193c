"""The counters of a daemon."""

from pathlib import Path

import pytest

import steno
from steno_protocol.commands import Stats
from steno_protocol.errors import ErrorCode
from steno_protocol.replies import StatsReport
from support.daemon_in_thread import DaemonInThread

MESSAGE = {"role": "user", "content": "hi"}


def _report(client: steno.BlockingClient) -> StatsReport:
    return client.request(Stats(), StatsReport)[0]


def test_appends_syncs_and_refusals_are_counted(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        before = _report(client)
        assert (before.appended_records, sum(before.groups.counts)) == (0, 0)
        session = client.open("demo")
        ack = session.append_message([MESSAGE, MESSAGE])
        session.append_message(MESSAGE)
        session.checkpoint()
        session.revert_to(0)
        with pytest.raises(steno.Conflict):
            session.append_message(MESSAGE, expect=ack.first)
        report = _report(client)
    assert report.appended_records == 4
    size = (root / "sessions" / "demo" / "context_1.jsonl").stat().st_size
    assert report.appended_bytes == size
    assert (sum(report.groups.counts), report.groups.total) == (3, 3)
    assert len(report.sync_s.counts) == len(report.sync_s.bounds) + 1
    assert sum(report.sync_s.counts) >= 3
    assert report.sync_s.total > 0
    assert report.rewrites == {"reverted": 1}
    assert report.errors == {ErrorCode.CONFLICT: 1}
    assert (report.clients, report.subscribers, report.sessions_open, report.queued) == (1, 1, 1, 0)
    assert report.open_files > 4
    assert report.resident_bytes > 1 << 20


def test_open_sessions_are_reported_on_request_with_their_last_author(root: Path) -> None:
    with DaemonInThread(root), steno.connect_sync(root, spawn=False, name="planner") as client:
        client.open("quiet")
        session = client.open("demo")
        session.append_message([MESSAGE, MESSAGE])
        session.append_wire("TurnBegin", {"user_input": "hi"}, durability="synced")
        with steno.connect_sync(root, spawn=False, name="coder") as other:
            other.session("demo").append_message(MESSAGE)
        assert _report(client).sessions == ()
        report = client.request(Stats(sessions=True), StatsReport)[0]
    found = {each.session: each for each in report.sessions}
    assert set(found) == {"demo", "quiet"}
    demo = found["demo"]
    assert demo.appended_records == report.appended_records == 5
    assert demo.appended_bytes == report.appended_bytes
    assert (demo.writers, demo.queued, demo.by) == (2, 0, "coder")
    assert demo.idle_s < 60
    assert found["quiet"].by is None
