"""`steno gc`: gives up what was asked for, tells it in the timeline, and leaves everything else."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from support.command import Steno
from support.foreground import ForegroundDaemon


@pytest.fixture
def client(root: Path) -> Iterator[steno.BlockingClient]:
    """A client of the daemon of this root, which it starts."""
    with steno.connect_sync(root) as connected:
        yield connected


def _rewritten(client: steno.BlockingClient, times: int = 4) -> steno.BlockingSession:
    opened = client.open("demo", follow=False)
    for number in range(times):
        opened.append_message({"role": "user", "content": f"generation {number} " + "x" * 1000})
        opened.clear()
    opened.append_message({"role": "user", "content": "present"})
    return opened


def _files(root: Path, session: str = "demo") -> set[str]:
    folder = root / paths.SESSIONS / session
    return {path.name for path in folder.glob("context*.jsonl")}


def test_nothing_is_given_up_that_was_not_asked_for(
    root: Path, client: steno.BlockingClient
) -> None:
    _rewritten(client)
    before = _files(root)
    ran = Steno(root)("gc")
    assert ran.code == 2
    assert "nothing is given up that is not asked for" in ran.err
    assert Steno(root)("gc", "--trash").code == 0
    assert Steno(root)("gc", "--generations-older", "1").code == 0
    assert Steno(root)("gc", "other", "--keep-generations", "1").code == 0
    assert _files(root) == before


def test_a_dry_run_says_what_would_go_and_changes_nothing(
    root: Path, client: steno.BlockingClient
) -> None:
    _rewritten(client)
    before = _files(root)
    told = Steno(root)("gc", "--dry-run", "--keep-generations", "2", "--json").document
    assert (told["dry_run"], told["files"], told["failed"]) == (True, 2, [])
    assert [entry["file"] for entry in told["entries"]] == ["context_1.jsonl", "context_2.jsonl"]
    folder = root / paths.SESSIONS / "demo"
    sizes = sum((folder / entry["file"]).stat().st_size for entry in told["entries"])
    assert told["bytes"] == sizes > 2000
    assert _files(root) == before
    assert "would free" in Steno(root)("gc", "--dry-run", "--keep-generations", "2").err
    assert len(Steno(root)("timeline", "demo", "--json").document["entries"]) == 5


def test_gc_records_removed_generations_in_the_timeline(
    root: Path, client: steno.BlockingClient
) -> None:
    session = _rewritten(client)
    told = Steno(root)("gc", "--keep-generations", "1", "--json").document
    assert told["files"] == 3
    assert _files(root) == {"context.jsonl", "context_4.jsonl"}
    last = Steno(root)("timeline", "demo", "--json").document["entries"][-1]
    assert (last["kind"], last["details"]) == ("collected", {"generations": [0, 1, 2]})
    ack = session.append_message({"role": "user", "content": "after"})
    assert str(ack.first) == "4:1"
    with pytest.raises(steno.NotFound):
        session.restore_generation(1)
    assert session.restore_generation(3).head.generation == 5
    steno_call = Steno(root)
    steno_call("restart")
    assert str(client.stat("demo").head) == "5:1"
    assert steno_call("verify", "demo").code == 0


def _compacted(client: steno.BlockingClient) -> steno.BlockingSession:
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


def test_a_checkpoint_whose_generation_was_given_up_is_not_found(
    root: Path, client: steno.BlockingClient
) -> None:
    session = _compacted(client)
    Steno(root)("gc", "--keep-generations", "1", "--with-lineage")
    assert _files(root) == {"context.jsonl", "context_3.jsonl"}
    with pytest.raises(steno.NotFound, match="checkpoint 0 is not in the session"):
        session.revert_to(0)
    with pytest.raises(steno.NotFound, match="checkpoint 0 is not in the session"):
        session.send_dmail(checkpoint_id=0, message="too late")
    with pytest.raises(steno.NotFound, match="no generation 0"):
        session.fork("copy", checkpoint=0)
    assert session.revert_to(1).head.generation == 4


def test_what_a_waiting_mail_goes_back_to_is_never_given_up(
    root: Path, client: steno.BlockingClient
) -> None:
    session = _compacted(client)
    mail = session.send_dmail(checkpoint_id=0, message="from later")
    Steno(root)("gc", "--keep-generations", "1", "--with-lineage")
    assert _files(root) == {"context.jsonl", "context_1.jsonl", "context_3.jsonl"}
    assert session.deliver_dmail(mail.id).checkpoint_id == 0


def test_what_a_checkpoint_from_before_a_compaction_lies_in_stays(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = _compacted(client)
        Steno(root)("gc", "--keep-generations", "1")
        assert _files(root) == {"context.jsonl", "context_1.jsonl", "context_3.jsonl"}
        session.revert_to(0)
        assert [json.loads(line)["content"] for line in session.lines()] == ["first"]


def test_a_fork_keeps_what_it_shares(root: Path, client: steno.BlockingClient) -> None:
    session = _rewritten(client)
    session.fork("copy")
    told = Steno(root)("gc", "demo", "--keep-generations", "1", "--json").document
    assert (told["files"], told["bytes"]) == (3, 0)
    assert "context_1.jsonl" in _files(root, "copy")
    assert Steno(root)("gc", "copy", "--keep-generations", "1", "--json").document["bytes"] > 0


def test_expired_trash_goes_when_it_is_asked_for(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        steno_call = Steno(root)
        steno_call("append", "old", "x" * 1000)
        steno_call("delete", "old", "--yes")
        (trash,) = (root / paths.SESSIONS / paths.TRASH).iterdir()
        assert steno_call("gc", "--trash", "--json").document["files"] == 0
        trash.rename(trash.with_name(trash.name.replace(trash.name.split(".")[0], "1000000000")))
        told = steno_call("gc", "--trash", "--dry-run", "--json").document
        assert (told["files"], told["bytes"] > 1000) == (1, True)
        assert steno_call("gc", "--trash", "--json").document["files"] == 1
        assert list((root / paths.SESSIONS / paths.TRASH).iterdir()) == []
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for(" collected ")


def test_gc_reports_trash_that_it_cannot_remove(root: Path) -> None:
    with ForegroundDaemon(root):
        steno_call = Steno(root)
        steno_call("append", "old", "x")
        steno_call("delete", "old", "--yes")
        (trash,) = (root / paths.SESSIONS / paths.TRASH).iterdir()
        trash.rename(trash.with_name("1000000001.key.old"))
        # No folder of a session: it is not removed, whoever may remove it.
        link = trash.with_name("1000000000.key.link")
        link.symlink_to(root)
        ran = steno_call("gc", "--trash", "--json")
        assert (ran.code, ran.document["files"]) == (1, 1)
        (failed,) = ran.document["failed"]
        assert failed.startswith(f"{link}: ")
        assert list(link.parent.iterdir()) == [link]


def test_a_collection_that_was_cut_off_is_finished_by_the_next_one(
    root: Path, client: steno.BlockingClient
) -> None:
    _rewritten(client)
    steno_call = Steno(root)
    steno_call("stop")
    # As a crash between the timeline and the files leaves it.
    with (root / paths.SESSIONS / "demo" / paths.TIMELINE).open("a") as file:
        entry = {"kind": "collected", "generation": 4, "details": {"generations": [0, 1, 2]}}
        file.write(json.dumps(entry) + "\n")
    (root / paths.SESSIONS / "demo" / "context_1.jsonl").unlink()
    assert steno_call("gc", "--keep-generations", "1", "--json").document["files"] == 2
    assert _files(root) == {"context.jsonl", "context_4.jsonl"}
    assert json.loads(steno_call("read", "demo").out)["content"] == "present"


def test_a_follower_of_a_removed_generation_restarts_at_the_present(
    root: Path, client: steno.BlockingClient
) -> None:
    session = _rewritten(client)
    Steno(root)("gc", "--keep-generations", "1")
    with session.subscribe(after=steno.Position(0, 0)) as events:
        reset = next(events)
        assert isinstance(reset, steno.Reset)
        assert (reset.generation, reset.kept, reset.why) == (4, 0, "collected")
        records = next(events)
        assert isinstance(records, steno.RecordsEvent)
        assert [record.record["content"] for record in records.records()] == ["present"]


def test_appends_go_on_while_garbage_is_collected(root: Path, client: steno.BlockingClient) -> None:
    session = _rewritten(client, times=20)
    with steno.connect_sync(root) as other:
        opened = other.open("demo", follow=False)
        for number in range(50):
            opened.append_message({"role": "user", "content": f"during {number}"})
            if number % 10 == 5:
                Steno(root)("gc", "--keep-generations", str(12 - number // 10))
                opened.write_system_prompt(f"prompt {number}")
    told = [json.loads(line).get("content", "") for line in session.lines()]
    assert [text for text in told if text.startswith("during")] == [
        f"during {number}" for number in range(50)
    ]
