"""Forks beside several processes and through the death of the daemon."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import steno
from support.crowd import wait_until, writer_processes
from support.daemon_in_thread import DaemonInThread
from support.messages import live
from support.session_files import lines


def position(text: str) -> tuple[int, int]:
    generation, line = text.split(":")
    return int(generation), int(line)


@pytest.mark.slow
def test_forks_beside_four_writers_are_each_one_instant(root: Path) -> None:
    made: list[steno.BlockingSession] = []
    with steno.connect_sync(root) as client:
        source = client.open("demo", follow=False)
        with writer_processes(root, "demo", 4) as writers:
            for number in range(12):
                made.append(source.fork(f"forks/{number}"))
                _, head = position(made[-1].stat().head)
                for writer in writers:
                    # Its last acknowledgement that was read may be older than the fork.
                    writer.wait_for_one_behind(head)
        acks = [each for writer in writers for each in writer.acks]
        context, wire = lines(root, "demo"), lines(root, "demo", "wire.jsonl")
        assert len(context) == len(acks)
        for entry in acks:
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


MOMENTS = {
    "nothing": "",
    "its folder": ".forks/f",
    "the context": ".forks/f/session/context.jsonl",
    "the wire file": ".forks/f/session/wire.jsonl",
    "the timeline": ".forks/f/session/timeline.jsonl",
    "its place": "other",
}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(path, id=name, marks=[] if name == "the context" else [pytest.mark.slow])
        for name, path in MOMENTS.items()
    ],
)
def test_a_daemon_that_is_killed_during_a_fork_leaves_one_fork_or_none(
    root: Path, moment: str
) -> None:
    tree = root / "sessions"
    answers: list[Any] = []
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as client:
        live(client.open("demo"), 0)
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
