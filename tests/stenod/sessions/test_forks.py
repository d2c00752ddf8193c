"""Forks of sessions, as clients of a daemon see them."""

import json
from pathlib import Path

import pytest

import steno
from support.daemon_in_thread import DaemonInThread
from support.messages import live
from support.session_files import lines


def contents(root: Path, session: str) -> list[str]:
    records = map(json.loads, lines(root, session))
    return [record["content"] for record in records if record["role"] == "user"]


def inputs(root: Path, session: str) -> list[str]:
    events = [json.loads(line) for line in lines(root, session, "wire.jsonl")[1:]]
    return [event["message"]["payload"]["user_input"] for event in events]


@pytest.mark.usefixtures("daemon")
def test_fork_at_a_turn_contains_no_later_turn(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        for number in range(3):
            live(session, number)
        session.revert_to(2)
        live(session, 3)
        session.append_message({"role": "assistant", "content": "yes"})
        assert session.compact(lambda _: "a summary", preserve=1) is not None
        live(session, 4)
        after = session.fork("after", turn=3)
        assert after.history == session.history[:-1]
        assert contents(root, "after")[0] != "turn 0"
        for turn, expected in [(0, ["turn 0"]), (1, ["turn 0", "turn 1"]), (-1, [])]:
            forked = session.fork(f"turn{turn + 1}", turn=turn)
            assert [entry["content"] for entry in forked.history] == expected
            assert inputs(root, forked.id) == expected
        undone = session.undo(3, "undone")
        assert contents(root, "undone") == ["turn 0", "turn 1"]
        # A fork shares the source's past, so it can be forked and reverted in turn.
        live(undone, 5)
        assert contents(root, undone.undo(2, "twice").id) == ["turn 0"]
        assert after.history[-1]["content"] == "yes"
        after.revert_to(0)
        assert after.history == []
        assert session.fork("whole").restore_generation(0)
        assert contents(root, "whole") == ["turn 0", "turn 1", "turn 2"]


def test_forks_cross_between_a_mount_and_the_root(root: Path, tmp_path: Path) -> None:
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{tmp_path}"\n')
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        session = client.open("kimi:work/first")
        live(session, 0)
        session.fork("here")
        client.session("here").fork("kimi:work/second")
        assert lines(root, "here") == (
            tmp_path / "work/second/context.jsonl"
        ).read_bytes().splitlines(keepends=True)
        assert [entry.forked_from for entry in client.sessions()] == [
            "kimi:work/first", None, "here"
        ]  # fmt: skip
