"""Restarts of a daemon under clients that write."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import paths
from steno_protocol.records import stamp_of
from support.command import Steno

TESTS = Path(__file__).parents[1]
RESTARTS = 5
ACKS_BETWEEN = 5
ROLES = ("work", "work", "work_async", "work_async")


class _Racer:
    """A process that writes until the test stops it.

    Attributes:
        acks: all that it got.
    """

    def __init__(self, role: str, root: Path) -> None:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        self.acks: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.racers", role, str(root), "1000000"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def take(self, count: int) -> None:
        """Wait until it was acknowledged so much more."""
        assert self._process.stdout is not None
        for _ in range(count):
            line = self._process.stdout.readline()
            assert line, "it ended too early"
            self.acks.append(json.loads(line))

    def stop(self) -> tuple[int, str]:
        """Stop it; returns its exit code and its error output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        self.acks += [json.loads(line) for line in self._process.stdout]
        return self._process.wait(60), self._process.stderr.read()

    def kill(self) -> None:
        """End it at any point of its work."""
        with self._process as process:
            process.kill()


@contextmanager
def _racers(root: Path) -> Iterator[list[_Racer]]:
    racers = [_Racer(role, root) for role in ROLES]
    try:
        yield racers
    finally:
        for racer in racers:
            racer.kill()


@pytest.mark.slow
def test_clients_write_through_restarts_without_an_error_and_nothing_is_lost(root: Path) -> None:
    steno_call = Steno(root)
    pids = {steno_call("start", "--json").document["pid"]}
    with _racers(root) as racers:
        for _ in range(RESTARTS):
            for racer in racers:
                racer.take(ACKS_BETWEEN)
            restarted = steno_call("restart", "--json").document
            pids.add(restarted["pid"])
        for racer in racers:
            racer.take(ACKS_BETWEEN)
        ends = [racer.stop() for racer in racers]
        acks = [ack for racer in racers for ack in racer.acks]
    assert ends == [(0, "")] * len(ROLES)
    assert len(pids) == RESTARTS + 1, "a restart is a new process"
    lines = (root / paths.SESSIONS / "race" / paths.CONTEXT).read_bytes().splitlines()
    keys = [stamp.key for line in lines if (stamp := stamp_of(line + b"\n")) is not None]
    assert {ack["key"] for ack in acks} <= set(keys)
    batches = {key for key in keys if keys.count(key) > 1}
    assert len([line for line in lines if b'"role":"_checkpoint"' in line]) >= len(batches)
    for ack in acks:
        if "first" in ack:
            number = int(ack["first"].split(":")[1])
            stamp = stamp_of(lines[number] + b"\n")
            assert stamp is not None
            assert stamp.key == ack["key"]


@pytest.mark.slow
def test_a_follower_sees_one_sequence_across_restarts(root: Path) -> None:
    steno_call = Steno(root)
    seen: list[str] = []
    expected: list[str] = []
    with steno.connect_sync(root) as client, steno.connect_sync(root) as watcher:
        session = client.open("race", follow=False)
        with watcher.open("race", follow=False).subscribe(after="start") as events:
            for number in range(RESTARTS):
                for when in ("before", "after"):
                    expected.append(f"{when} {number}")
                    session.append_message({"role": "user", "content": expected[-1]})
                    while len(seen) < len(expected):
                        event = next(events)
                        if isinstance(event, steno.RecordsEvent):
                            seen += [record.record["content"] for record in event.records()]
                    if when == "before":
                        assert steno_call("restart").code == 0
    assert seen == expected
