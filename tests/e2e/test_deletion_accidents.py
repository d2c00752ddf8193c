"""Deletions and renames beside several processes and through the death of the daemon."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import steno
from support.crowd import wait_until, writer_processes
from support.messages import message
from support.session_files import keys_in, trash_of


def _slow(moment: str) -> Any:
    return pytest.param(moment, marks=pytest.mark.slow)


def test_the_trash_holds_all_acknowledged_records_of_four_writers(root: Path) -> None:
    with steno.connect_sync(root) as client:
        client.open("demo", follow=False)
        with writer_processes(root, "demo", 4) as writers:
            deleted = client.delete("demo", key="d")
            for writer in writers:
                writer.wait_until_gone()
        acks = [each for writer in writers for each in writer.acks]
        kept = keys_in(Path(deleted.trash) / "context.jsonl")
        assert {each["key"] for each in acks if "key" in each} <= kept
        assert client.sessions() == []
        assert client.delete("demo", key="d") == deleted


@pytest.mark.parametrize("moment", [*map(_slow, ["", ".trash"]), "gone"])
def test_a_daemon_that_is_killed_during_a_deletion_deletes_once(root: Path, moment: str) -> None:
    folder = root / "sessions" / "demo"
    with steno.connect_sync(root, timeout=60) as client:
        client.open("demo").append_message(message("one"))
        pid = client.status().pid
        answers: list[steno.Deleted] = []

        def delete() -> None:
            with steno.connect_sync(root, timeout=60) as other:
                answers.append(other.delete("demo", key="d"))

        thread = threading.Thread(target=delete)
        thread.start()
        if moment == "gone":
            wait_until(lambda: not folder.exists())
        else:
            wait_until((folder.parent / moment).exists)
        os.kill(pid, signal.SIGKILL)
        thread.join(60)
        [answer] = answers
        assert client.delete("demo", key="d") == answer
        assert trash_of(root) == [Path(answer.trash)]
        assert client.sessions() == []


@pytest.mark.parametrize("moment", [*map(_slow, ["", ".moves"]), "gone"])
def test_a_daemon_that_is_killed_during_a_rename_renames_once(root: Path, moment: str) -> None:
    folder = root / "sessions" / "demo"
    with steno.connect_sync(root, timeout=60) as client:
        client.open("demo").append_message(message("one"))
        pid = client.status().pid
        renamed: list[str] = []

        def rename() -> None:
            with steno.connect_sync(root, timeout=60) as other:
                renamed.append(other.rename("demo", "team/other", key="r").session)

        thread = threading.Thread(target=rename)
        thread.start()
        if moment == "gone":
            wait_until(lambda: not folder.exists())
        else:
            wait_until((folder.parent / moment).exists)
        os.kill(pid, signal.SIGKILL)
        thread.join(60)
        assert renamed == ["team/other"]
        assert client.rename("demo", "team/other", key="r").session == "team/other"
        assert [entry.session for entry in client.sessions()] == ["team/other"]
        kinds = [entry.kind for entry in client.timeline("team/other")]
        assert kinds.count("renamed") == 1
        assert len(client.open("team/other").history) == 1


def test_renamed_session_holds_all_acknowledged_records_of_four_writers(root: Path) -> None:
    with steno.connect_sync(root) as client:
        client.open("demo", follow=False)
        with writer_processes(root, "demo", 4) as writers:
            moved = client.rename("demo", "other")
            for writer in writers:
                writer.wait_until_gone()
        acks = [each for writer in writers for each in writer.acks]
        kept = keys_in(Path(moved.folder) / "context.jsonl")
        assert {each["key"] for each in acks if "key" in each} <= kept
