"""Forks by a real daemon: beside writers, across rewrites, through the death of the daemon."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import commands, replies
from support.crowd import crowd, wait_until


def lines(root: Path, session: str, name: str = "context.jsonl") -> list[bytes]:
    file = root / "sessions" / session / name
    return file.read_bytes().splitlines(keepends=True) if file.exists() else []


def contents(root: Path, session: str) -> list[str]:
    records = map(json.loads, lines(root, session))
    return [record["content"] for record in records if record["role"] == "user"]


def inputs(root: Path, session: str) -> list[str]:
    events = [json.loads(line) for line in lines(root, session, "wire.jsonl")[1:]]
    return [event["message"]["payload"]["user_input"] for event in events]


def live(session: steno.BlockingSession, number: int) -> None:
    """One turn."""
    session.append_wire("TurnBegin", {"user_input": f"turn {number}"})
    session.checkpoint()
    session.append_message({"role": "user", "content": f"turn {number}"})


def position(text: str) -> tuple[int, int]:
    generation, line = text.split(":")
    return int(generation), int(line)


def test_nothing_of_a_later_turn_leaks_across_a_revert_and_a_compaction(root: Path) -> None:
    with steno.connect_sync(root) as client:
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
        # The fork's own past is the source's, so it can be forked and reverted in turn.
        live(undone, 5)
        assert contents(root, undone.undo(2, "twice").id) == ["turn 0"]
        assert [e.content for e in map(_Entry, after.history)][-1:] == ["yes"]
        after.revert_to(0)
        assert after.history == []
        assert session.fork("whole").restore_generation(0)
        assert contents(root, "whole") == ["turn 0", "turn 1", "turn 2"]


class _Entry:
    def __init__(self, entry: dict[str, Any]) -> None:
        self.content = entry["content"]


def test_what_is_appended_to_a_fork_stays_in_it(root: Path) -> None:
    with steno.connect_sync(root) as client:
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


def test_a_fork_of_a_session_without_stamps_has_none_either(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("plain", stamp=False)
        for number in range(3):
            session.append_wire("TurnBegin", {"user_input": f"turn {number}"})
            session.append_message({"role": "user", "content": f"turn {number}"})
        fork = session.fork("other", turn=1)
        assert contents(root, "other") == inputs(root, "other") == ["turn 0", "turn 1"]
        assert not fork.stat().stamp
        fork.append_message({"role": "user", "content": "more"})
        assert lines(root, "other")[-1] == b'{"role":"user","content":"more"}\n'


def test_a_fork_goes_from_a_mount_to_the_root_and_back(root: Path, tmp_path: Path) -> None:
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{tmp_path}"\n')
    with steno.connect_sync(root) as client:
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


def test_the_first_answer_is_given_again_whatever_became_of_the_fork(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        live(session, 0)
        asked = commands.Fork(session="demo", new_session="other", key="f")
        first = client._link.ask(asked, replies.SessionStat)
        fork = client.open("other")
        live(fork, 1)
        fork.clear()
        fork.describe(title="renamed")
        assert client._link.ask(asked, replies.SessionStat) == first
        client.drain()
        client.delete("demo")
        assert client._link.ask(asked, replies.SessionStat) == first
