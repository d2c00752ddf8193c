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


def test_forks_beside_four_writers_are_each_one_instant(root: Path) -> None:
    made: list[steno.BlockingSession] = []
    with steno.connect_sync(root) as client:
        source = client.open("demo", follow=False)
        with crowd(root, "demo", 4) as members:
            for number in range(12):
                made.append(source.fork(f"forks/{number}"))
                for member in members:
                    member.wait_for_one()
        told = [each for member in members for each in member.told]
        context, wire = lines(root, "demo"), lines(root, "demo", "wire.jsonl")
        assert len(context) == len(told)
        for entry in told:
            key = json.loads(context[position(entry["first"])[1]])["_id"]
            assert key == entry["key"], "nothing acknowledged was lost or moved"
        heads: list[int] = []
        for fork in made:
            kept, events = lines(root, fork.id), lines(root, fork.id, "wire.jsonl")
            assert kept == context[: len(kept)]
            assert events == wire[: len(events)]
            heads.append(len(kept))
            assert all(position(json.loads(e)["_at"]) <= (0, len(kept)) for e in events[1:])
            assert fork.stat().head == f"0:{len(kept)}"
        assert heads == sorted(heads)
        assert heads[0] < heads[-1] < len(context)
        assert [e.details["to"] for e in source.timeline() if e.kind == "fork"] == [
            fork.id for fork in made
        ]


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


MOMENTS = {
    "nothing": "",
    "its folder": ".forks/f",
    "the context": ".forks/f/session/context.jsonl",
    "the wire file": ".forks/f/session/wire.jsonl",
    "the timeline": ".forks/f/session/timeline.jsonl",
    "its place": "other",
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_daemon_that_is_killed_during_a_fork_leaves_one_fork_or_none(
    root: Path, moment: str
) -> None:
    tree = root / "sessions"
    answers: list[Any] = []
    with steno.connect_sync(root, timeout=60) as client:
        session = client.open("demo")
        live(session, 0)
        pid = client.status().pid
        client.drain()
        _grow(tree / "demo")
    with steno.connect_sync(root, timeout=60) as client:
        session = client.open("demo", follow=False)
        pid = client.status().pid

        def fork() -> None:
            with steno.connect_sync(root, timeout=60) as other:
                answers.append(other.session("demo").fork("other", key="f", title="t").stat())

        thread = threading.Thread(target=fork)
        thread.start()
        wait_until(lambda: (tree / moment).exists() or (tree / "other").exists())
        os.kill(pid, signal.SIGKILL)
        thread.join(60)
        [answer] = answers
        listed = [entry for entry in client.sessions() if entry.session == "other"]
        assert [(entry.title, entry.forked_from) for entry in listed] == [("t", "demo")]
        assert lines(root, "other") == lines(root, "demo")
        assert lines(root, "other", "wire.jsonl") == lines(root, "demo", "wire.jsonl")
        again = session.fork("other", key="f", title="t").stat()
        assert (again.incarnation, again.head) == (answer.incarnation, answer.head)
        assert [e.key for e in session.timeline() if e.kind == "fork"] == ["f"]
        assert client.status().pid != pid
        wait_until(lambda: not any((tree / ".forks").iterdir()))


def _grow(folder: Path) -> None:
    """Make a session large enough that its fork takes some time."""
    record = json.dumps({"role": "assistant", "content": "x" * 1000}, separators=(",", ":"))
    with (folder / "context.jsonl").open("a") as file:
        file.write(f"{record}\n" * 6_000)
    message = {"type": "TextPart", "payload": {"user_input": "x" * 1000}}
    event = json.dumps({"timestamp": 1.5, "message": message, "_at": "0:2"})
    with (folder / "wire.jsonl").open("a") as file:
        file.write(f"{event}\n" * 3_000)


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
