"""Compactions while other processes write, and while daemon or compactor are killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_protocol import paths
from steno_protocol.records import stamp_of

TESTS = Path(__file__).parents[1]
ROUNDS = 20
WRITERS = 4
MEANWHILE = 40
CONTROL = ("_checkpoint", "_usage", "_system_prompt")

Acks = list[dict[str, Any]]


def start(root: Path, role: str, count: int) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "support.racers", role, str(root), str(count)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Writers:
    """Processes that write until the test stops them."""

    def __init__(self, root: Path) -> None:
        self._processes = [start(root, "work", 1_000_000) for _ in range(WRITERS)]
        self._said: list[Acks] = [[] for _ in self._processes]
        self._readers = [
            threading.Thread(target=self._read, args=(process, said))
            for process, said in zip(self._processes, self._said, strict=True)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, process: "subprocess.Popen[str]", said: Acks) -> None:
        assert process.stdout is not None
        said.extend(json.loads(line) for line in process.stdout)

    def stop(self) -> Acks:
        """Stop them; returns all their acks."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.join(60)
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()
        return [ack for said in self._said for ack in said]


def wait_for_lines(session: steno.BlockingSession, count: int) -> None:
    """Return when the session has grown by so many lines, in one generation."""
    first = steno.Position.parse(session.stat().head)
    head = first
    while head.generation == first.generation and head.line < first.line + count:
        head = steno.Position.parse(session.stat().head)


def generations(folder: Path) -> list[list[bytes]]:
    numbers = range(1, len(list(folder.glob("context_*.jsonl"))) + 1)
    files = [folder / paths.generation_file(number) for number in numbers]
    return [
        file.read_bytes().splitlines(keepends=True) for file in [*files, folder / "context.jsonl"]
    ]


def check(folder: Path, acknowledged: Sequence[dict[str, Any]]) -> int:
    """Check that nothing is lost or doubled; returns the number of compactions."""
    files = generations(folder)
    entries = [json.loads(line) for line in (folder / "timeline.jsonl").read_bytes().splitlines()]
    compacted: list[dict[str, Any]] = []
    for entry in entries:
        if entry["kind"] == "compacted":
            compacted.append(entry)
        elif entry["kind"] == "voided":
            # A compaction cut short by a death is voided, and its repeat counts.
            assert compacted.pop()["key"] == entry["key"]
    assert [entry["generation"] for entry in compacted] == list(range(1, len(files)))
    for entry in compacted:
        old, new = files[entry["generation"] - 1], files[entry["generation"]]
        check_compaction(entry["details"], old, new)
    held = [{stamp.key for line in lines if (stamp := stamp_of(line))} for lines in files]
    for ack in acknowledged:
        assert any(ack["key"] in keys for keys in held), f"{ack} is missing"
    return len(compacted)


def check_compaction(details: dict[str, Any], old: list[bytes], new: list[bytes]) -> None:
    records = [json.loads(line) for line in new[: details["lines"]]]
    begin = 1 if records[0]["role"] == "_system_prompt" else 0
    assert records[begin] | {"id": 0} == records[begin] | {"role": "_checkpoint", "id": 0}
    assert records[begin + 1]["role"] == "user"
    assert records[-1]["role"] == "_usage"
    ids = [record["id"] for record in records if record["role"] == "_checkpoint"]
    assert ids == sorted(set(ids)), "ids rise"
    kept = new[begin + 2 : details["lines"] - 1]
    rest = iter(old[details["summarised"] :])
    # In their order, with nothing but control records of the preserved part left out.
    for line in kept:
        for passed in rest:
            if passed == line:
                break
            assert json.loads(passed)["role"] in CONTROL, f"{passed!r} was lost"
        else:
            raise AssertionError(f"{line!r} has no origin")
    assert all(json.loads(line)["role"] in CONTROL for line in rest)


@pytest.mark.slow
def test_four_processes_write_through_twenty_compactions(root: Path) -> None:
    with steno.connect_sync(root, name="compactor") as client:
        session = client.open("race", follow=False)
        session.write_system_prompt("be kind")
        writers = Writers(root)
        try:
            for number in range(ROUNDS):
                wait_for_lines(session, MEANWHILE)

                def summarize(_: object, number: int = number) -> str:
                    # The writers continue while the model works.
                    wait_for_lines(session, MEANWHILE)
                    return f"summary {number}"

                done = session.compact(summarize)
                assert done is not None
        finally:
            acks = writers.stop()
        folder = Path(session.stat().folder)
        assert check(folder, acks) == ROUNDS
        numbers = [ack["checkpoint"] for ack in acks if "checkpoint" in ack]
        assert len(numbers) == len(set(numbers)), "an id was given out twice"
        mirror = client.open("race")
        assert mirror.system_prompt == "be kind"
        assert mirror.n_checkpoints == session.stat().n_checkpoints > max(numbers)


def kill_daemon(client: steno.BlockingClient) -> None:
    os.kill(client.welcome.pid, signal.SIGKILL)


def talk(client: steno.BlockingClient) -> steno.BlockingSession:
    session = client.open("race")
    for number in range(6):
        session.append_message({"role": "user", "content": f"question {number}"})
        session.checkpoint()
    return session


def test_summary_fits_after_a_kill_of_the_daemon_during_the_request(
    root: Path,
) -> None:
    with steno.connect_sync(root) as client:
        session = talk(client)

        def summarize(_: object) -> str:
            kill_daemon(client)
            session.append_message({"role": "user", "content": "meanwhile"})
            # The reservation outlives the daemon: ids rise in the file that comes.
            assert session.checkpoint().checkpoint_id == 7
            return "in short"

        done = session.compact(summarize)
        assert done is not None
        assert [message["content"] for message in session.history][-2:] == [
            "question 5",
            "meanwhile",
        ]
        folder = Path(session.stat().folder)
        assert len(generations(folder)) == 2
        assert done.checkpoint_id == 6
        assert session.n_checkpoints == session.stat().n_checkpoints == 8


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.004])
def test_a_daemon_that_is_killed_about_the_commit_leaves_one_compaction(
    root: Path, delay_s: float
) -> None:
    with steno.connect_sync(root) as client:
        session = talk(client)
        timers: list[threading.Timer] = []

        def summarize(_: object) -> str:
            timers.append(threading.Timer(delay_s, kill_daemon, [client]))
            timers[0].start()
            return "in short"

        done = session.compact(summarize, key="the-compaction")
        timers[0].join()
        assert done is not None
        again = session.compact(lambda _: "another", key="the-compaction")
        assert again is None or again.ack.duplicate
        folder = Path(session.stat().folder)
        assert check(folder, [{"key": done.ack.key}]) == 1


@pytest.mark.slow
def test_a_compactor_that_is_killed_is_waited_for_until_its_lease_ends(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = talk(client)
        # So long that it has not ended by itself when this process is refused.
        with start(root, "begin_compaction", 10_000) as other:
            assert other.stdout is not None
            assert json.loads(other.stdout.readline()) == {"asked": True}
            with pytest.raises(steno.Busy, match="begin_compaction is compacting"):
                session.compact(lambda _: "mine")
            other.kill()
        done = None
        while done is None:
            try:
                done = session.compact(lambda _: "mine")
            except steno.Busy:
                continue
        assert len(generations(Path(session.stat().folder))) == 2
