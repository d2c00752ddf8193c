"""Forks of sessions, as clients of a daemon see them."""

import json
from pathlib import Path

import pytest

import steno
from steno_protocol import commands, replies
from support.daemon_in_thread import DaemonInThread
from support.messages import live
from support.session_files import lines


def contents(root: Path, session: str) -> list[str]:
    records = map(json.loads, lines(root, session))
    return [record["content"] for record in records if record["role"] == "user"]


def inputs(root: Path, session: str) -> list[str]:
    events = [json.loads(line) for line in lines(root, session, "wire.jsonl")[1:]]
    return [event["message"]["payload"]["user_input"] for event in events]


def position(text: str) -> tuple[int, int]:
    generation, line = text.split(":")
    return int(generation), int(line)


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


@pytest.mark.usefixtures("daemon")
def test_changes_of_a_fork_do_not_reach_its_source(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        live(session, 0)
        before = lines(root, "demo"), lines(root, "demo", "wire.jsonl")
        fork = session.fork("other")
        live(fork, 1)
        fork.clear()
        assert (lines(root, "demo"), lines(root, "demo", "wire.jsonl")) == before
        positions = [json.loads(e)["_at"] for e in lines(root, "other", "wire.jsonl")[1:]]
        assert positions == sorted(positions, key=position)
        assert fork.stat().incarnation != session.stat().incarnation
        ended = fork.timeline()
        assert [entry.kind for entry in ended] == ["forked", "cleared"]
        assert ended[0].details["from"] == "demo"


@pytest.mark.usefixtures("daemon")
def test_fork_of_an_unstamped_session_is_unstamped(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("plain", stamp=False)
        for number in range(3):
            session.append_wire("TurnBegin", {"user_input": f"turn {number}"})
            session.append_message({"role": "user", "content": f"turn {number}"})
        fork = session.fork("other", turn=1)
        assert contents(root, "other") == inputs(root, "other") == ["turn 0", "turn 1"]
        assert not fork.stat().stamp
        fork.append_message({"role": "user", "content": "more"})
        assert lines(root, "other")[-1] == b'{"role":"user","content":"more"}\n'


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


def test_repeated_fork_returns_the_first_reply(root: Path, daemon: DaemonInThread) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        live(session, 0)
        asked = commands.Fork(session="demo", new_session="other", key="f")
        first = client._link.ask(asked, replies.SessionStat)
        fork = client.open("other")
        live(fork, 1)
        fork.clear()
        fork.describe(title="renamed")
        assert client._link.ask(asked, replies.SessionStat) == first
    daemon.stop()
    daemon.start()
    with steno.connect_sync(root, spawn=False) as client:
        client.delete("demo")
        assert client._link.ask(asked, replies.SessionStat) == first
