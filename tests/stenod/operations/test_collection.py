"""Garbage collection by a daemon."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import paths
from steno_protocol.commands import Gc, Verify
from steno_protocol.replies import GcReport, Verification
from support.daemon_in_thread import DaemonInThread


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Iterator[steno.BlockingClient]:
    """A client of the daemon of this root."""
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def collect(client: steno.BlockingClient, **wanted: Any) -> GcReport:
    return client.request(Gc(**wanted), GcReport)[0]


def rewritten(client: steno.BlockingClient, times: int = 4) -> steno.BlockingSession:
    """A session with so many past generations."""
    opened = client.open("demo", follow=False)
    for number in range(times):
        opened.append_message({"role": "user", "content": f"generation {number} " + "x" * 1000})
        opened.clear()
    opened.append_message({"role": "user", "content": "present"})
    return opened


def compacted(client: steno.BlockingClient) -> steno.BlockingSession:
    """A session whose checkpoint 0 lies in the generation before a compaction."""
    session = client.open("demo", follow=False)
    session.append_message({"role": "user", "content": "first"})
    session.checkpoint()
    for number in range(4):
        session.append_message({"role": "user", "content": f"question {number}"})
        session.append_message({"role": "assistant", "content": f"answer {number}"})
    assert session.compact(lambda _: "in short") is not None
    session.append_message({"role": "user", "content": "more"})
    session.write_system_prompt("be brief")
    session.write_system_prompt("be briefer")
    return session


def files(root: Path, session: str = "demo") -> set[str]:
    folder = root / paths.SESSIONS / session
    return {path.name for path in folder.glob("context*.jsonl")}


def only_trash(root: Path) -> Path:
    (trash,) = (root / paths.SESSIONS / paths.TRASH).iterdir()
    return trash


def test_dry_run_reports_the_garbage_and_changes_nothing(
    root: Path, client: steno.BlockingClient
) -> None:
    session = rewritten(client)
    before = files(root)
    report = collect(client, dry_run=True, keep_generations=2)
    assert (report.dry_run, report.files, report.failed) == (True, 2, [])
    assert [entry.file for entry in report.entries] == ["context_1.jsonl", "context_2.jsonl"]
    folder = root / paths.SESSIONS / "demo"
    sizes = sum((folder / entry.file).stat().st_size for entry in report.entries)
    assert report.bytes == sizes > 2000
    assert files(root) == before
    assert len(session.timeline()) == 5


def test_timeline_records_removed_generations(root: Path, daemon: DaemonInThread) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = rewritten(client)
        assert collect(client, keep_generations=1).files == 3
        assert files(root) == {"context.jsonl", "context_4.jsonl"}
        last, gone = session.timeline()[-1], [0, 1, 2]
        assert (last.kind, last.details) == (
            "collected",
            {"generations": gone, "rules": {"keep_generations = 1": gone}},
        )
        ack = session.append_message({"role": "user", "content": "after"})
        assert str(ack.first) == "4:1"
        with pytest.raises(steno.NotFound):
            session.restore_generation(1)
        assert session.restore_generation(3).head.generation == 5
    daemon.stop()
    daemon.start()
    with steno.connect_sync(root, spawn=False) as client:
        assert str(client.stat("demo").head) == "5:1"
        report = client.request(Verify(session="demo"), Verification)[0]
        assert [each for each in report.findings if each.damage] == []


def test_checkpoint_in_a_removed_generation_is_not_found(
    root: Path, client: steno.BlockingClient
) -> None:
    session = compacted(client)
    collect(client, keep_generations=1, with_lineage=True)
    assert files(root) == {"context.jsonl", "context_3.jsonl"}
    with pytest.raises(
        steno.NotFound, match="checkpoint 0 does not exist: `gc` or another program removed"
    ):
        session.revert_to(0)
    with pytest.raises(
        steno.NotFound, match="checkpoint 0 does not exist: `gc` or another program removed"
    ):
        session.send_dmail(checkpoint_id=0, message="too late")
    with pytest.raises(steno.NotFound, match="no generation 0"):
        session.fork("copy", checkpoint=0)
    assert session.revert_to(1).head.generation == 4


def test_generation_needed_by_a_pending_dmail_is_kept(
    root: Path, client: steno.BlockingClient
) -> None:
    session = compacted(client)
    mail = session.send_dmail(checkpoint_id=0, message="from later")
    collect(client, keep_generations=1, with_lineage=True)
    assert files(root) == {"context.jsonl", "context_1.jsonl", "context_3.jsonl"}
    assert session.deliver_dmail(mail.id).id == session.stat().n_checkpoints - 1


def test_fork_keeps_the_generations_that_it_shares(
    root: Path, client: steno.BlockingClient
) -> None:
    rewritten(client).fork("copy")
    report = collect(client, prefix="demo", keep_generations=1)
    assert (report.files, report.bytes) == (3, 0)
    assert "context_1.jsonl" in files(root, "copy")
    assert collect(client, prefix="copy", keep_generations=1).bytes > 0


def test_trash_that_cannot_be_removed_is_reported(root: Path, client: steno.BlockingClient) -> None:
    client.open("old").append_message({"role": "user", "content": "x"})
    client.delete("old")
    trash = only_trash(root)
    trash.rename(trash.with_name("1000000001.key.old"))
    # A link is no session's folder, so no user's rights suffice to remove it as one.
    link = trash.with_name("1000000000.key.link")
    link.symlink_to(root)
    report = collect(client, trash=True)
    assert report.files == 1
    (failed,) = report.failed
    assert failed.startswith(f"{link}: ")
    assert list(link.parent.iterdir()) == [link]


def test_interrupted_collection_is_finished_by_the_next_one(
    root: Path, daemon: DaemonInThread
) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        rewritten(client)
    daemon.stop()
    # A crash between the write to the timeline and the removal of the files leaves this.
    with (root / paths.SESSIONS / "demo" / paths.TIMELINE).open("a") as file:
        entry = {"kind": "collected", "generation": 4, "details": {"generations": [0, 1, 2]}}
        file.write(json.dumps(entry) + "\n")
    (root / paths.SESSIONS / "demo" / "context_1.jsonl").unlink()
    daemon.start()
    with steno.connect_sync(root, spawn=False) as client:
        assert collect(client, keep_generations=1).files == 2
        assert files(root) == {"context.jsonl", "context_4.jsonl"}
        (line,) = client.session("demo").lines()
        assert json.loads(line)["content"] == "present"


def test_follower_of_a_removed_generation_restarts_at_the_present(
    client: steno.BlockingClient,
) -> None:
    session = rewritten(client)
    collect(client, keep_generations=1)
    with session.subscribe(after=steno.Position(0, 0)) as events:
        reset = next(events)
        assert isinstance(reset, steno.Reset)
        assert (reset.generation, reset.kept, reset.why) == (4, 0, "collected")
        records = next(events)
        assert isinstance(records, steno.RecordsEvent)
        assert [record.record["content"] for record in records.records()] == ["present"]
