"""`steno demo`: its events, and its proofs with faulty files."""

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from steno._connect.start_lock import StartLock
from steno_cli.commands import demo
from steno_cli.demo.agents import Evidence, stop_daemon, turn
from steno_cli.demo.proofs import Acked, Seen, prove
from steno_cli.entry import main
from steno_cli.render.output import Output
from support.command import Steno
from support.foreground import ForegroundDaemon

CLAIMS = 4

TURNS = "20"


def test_the_demo_kills_the_daemon_and_proves_the_file(root: Path) -> None:
    ran = Steno(root)("demo", "--root", str(root), "--turns", "60")
    assert ran.code == 0, ran.err
    assert ran.out.count("✓") == CLAIMS
    assert "✗" not in ran.out
    assert f"file: {root}/sessions/demo/context.jsonl" in ran.out
    assert "killed the daemon" in ran.err
    assert "an agent started a new one" in ran.err
    assert "240 of 240 turns acknowledged" in ran.err
    assert len((root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines()) == 241


def test_the_demo_as_json_names_both_daemons_and_leaves_none(root: Path, steno: Steno) -> None:
    arguments = ("demo", "--root", str(root), "--turns", TURNS, "--agents", "2", "--json")
    printed = steno(*arguments).document
    assert set(printed) == {
        "proved", "proofs", "root", "session", "file", "agents", "records", "repeated",
        "killed_pid", "next_pid", "away_s", "kept",
    }  # fmt: skip
    assert printed["proved"] is True
    assert all(proof["holds"] for proof in printed["proofs"])
    assert printed["killed_pid"] != printed["next_pid"]
    assert steno("status").code == 5
    # A second one on the same root takes another session.
    assert steno(*arguments).document["session"] == "demo-2"


def test_in_the_shortest_demo_the_agent_starts_the_next_daemon(root: Path, steno: Steno) -> None:
    counts = ("--agents", "1", "--turns", "10")
    printed = steno("demo", "--root", str(root), *counts, "--json").document
    assert printed["proved"] is True
    assert printed["killed_pid"] != printed["next_pid"]
    assert printed["records"] == 11


def test_the_demo_does_not_kill_a_running_daemon(root: Path, steno: Steno) -> None:
    steno("start")
    pid = steno("status", "--json").document["pid"]
    ran = steno("demo", "--root", str(root))
    assert (ran.code, ran.out) == (1, "")
    assert "steno stop" in ran.err
    assert steno("status", "--json").document["pid"] == pid


def test_without_a_root_the_demo_uses_a_temporary_folder_and_removes_it(root: Path) -> None:
    steno = Steno(root, TMPDIR=str(root))
    ran = steno("demo", "--turns", TURNS, "--agents", "2")
    assert ran.code == 0, ran.err
    assert f"file: {root}/steno-demo-" in ran.out
    assert ran.out.splitlines()[-1] == "removed again: --keep keeps it"
    assert list(root.iterdir()) == []


def test_a_kept_folder_of_the_demo_can_be_looked_at(root: Path) -> None:
    steno = Steno(root, TMPDIR=str(root))
    ran = steno("demo", "--turns", TURNS, "--agents", "2", "--keep")
    (folder,) = root.iterdir()
    look = shlex.split(ran.out.splitlines()[-1].removeprefix("look: "))
    assert look == ["steno", "--root", str(folder), "show", "demo"]
    assert (folder / "sessions" / "demo" / "context.jsonl").exists()


def test_a_demo_that_fails_its_proof_keeps_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play = demo.play

    async def play_and_tamper(root: Path, agents: int, turns: int, output: Output) -> Evidence:
        evidence = await play(root, agents, turns, output)
        lines = evidence.file.read_bytes().splitlines(keepends=True)
        evidence.file.write_bytes(b"".join(lines[:7] + lines[8:]))
        return evidence

    monkeypatch.setattr(demo, "play", play_and_tamper)
    monkeypatch.setattr("tempfile.tempdir", str(root))
    assert main(["demo", "--turns", TURNS, "--agents", "2"]) == 1
    shown = capsys.readouterr().out
    assert "✗ each of the 41 acknowledged records is in it exactly once" in shown
    assert "look: steno --root" in shown
    assert len(list(root.iterdir())) == 1


# --- the proofs alone ----------------------------------------------------------------------------


class Case:
    """A file of three writers in turn, with its acknowledgements and its follower."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.acked: list[Acked] = []
        for number in range(10):
            for writer in ("a", "b", "c"):
                self.append(writer, number)
        self.seen = [
            Seen(f"0:{number}", msgspec.Raw(line)) for number, line in enumerate(self.lines)
        ]

    def append(self, writer: str, number: int) -> None:
        sent = turn(writer, number)
        cursor, key = f"0:{len(self.lines)}", f"{writer}-{number}"
        self.lines.append(json.dumps({**sent, "_by": writer, "_id": key}).encode())
        self.acked.append(Acked(writer, key, cursor, duplicate=False, sent=sent))

    def proofs(self) -> list[str]:
        """The first contradiction of each claim, empty if it holds."""
        contradictions = prove(b"".join(line + b"\n" for line in self.lines), self.acked, self.seen)
        return [*contradictions.values()]

    def failed(self) -> set[int]:
        return {number for number, proof in enumerate(self.proofs()) if proof}


WHOLE, ONCE, THERE, SEEN = range(CLAIMS)


def test_a_faultless_file_is_proved() -> None:
    assert Case().failed() == set()


def _drop(case: Case) -> None:
    del case.lines[5]


def _double(case: Case) -> None:
    case.lines.append(case.lines[5])


def _swap(case: Case) -> None:
    case.lines[0], case.lines[3] = case.lines[3], case.lines[0]


def _change(case: Case) -> None:
    case.lines[5] = case.lines[5].replace(b"turn", b"torn")


def _cut(case: Case) -> None:
    case.lines[5] = case.lines[5][:-3]


def _glue(case: Case) -> None:
    case.lines[5] += case.lines.pop(6)


def _foreign(case: Case) -> None:
    case.lines.append(b'{"role":"user","content":"hi","_id":"nobody"}')


def _see_twice(case: Case) -> None:
    case.seen.insert(5, case.seen[5])


def _see_a_gap(case: Case) -> None:
    del case.seen[5]


def _see_the_end_too_early(case: Case) -> None:
    case.seen.pop()


def _see_otherwise(case: Case) -> None:
    case.seen[5] = Seen("0:5", msgspec.Raw(b"{}"))


def _acknowledge_twice(case: Case) -> None:
    case.acked.append(case.acked[0])


def _misplace(case: Case) -> None:
    case.acked[0] = replace(case.acked[0], cursor="0:1")


def _rewrite(case: Case) -> None:
    case.acked[0] = replace(case.acked[0], cursor="1:0")


def _reorder(case: Case) -> None:
    """Let a writer have sent its first two records the other way round."""
    first, second = case.acked[0], case.acked[3]
    case.acked[0], case.acked[3] = second, first


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (_drop, {ONCE, THERE, SEEN}),
        (_double, {ONCE, SEEN}),
        (_swap, {THERE, SEEN}),
        (_change, {THERE, SEEN}),
        (_cut, {WHOLE, ONCE, THERE, SEEN}),
        (_glue, {WHOLE, ONCE, THERE, SEEN}),
        (_foreign, {ONCE, SEEN}),
        (_see_twice, {SEEN}),
        (_see_a_gap, {SEEN}),
        (_see_the_end_too_early, {SEEN}),
        (_see_otherwise, {SEEN}),
        (_acknowledge_twice, {ONCE, THERE}),
        (_misplace, {THERE}),
        (_rewrite, {THERE}),
        (_reorder, {THERE}),
    ],
)
def test_a_fault_fails_the_proofs_about_it(
    fault: Callable[[Case], None], failing: set[int]
) -> None:
    case = Case()
    fault(case)
    assert case.failed() == failing


def test_a_file_with_a_torn_last_line_is_not_whole() -> None:
    case = Case()
    proofs = [*prove(b"\n".join(case.lines), case.acked, case.seen).values()]
    assert "no whole line" in proofs[WHOLE]


@pytest.mark.anyio
async def test_a_daemon_that_is_just_being_started_is_stopped_once_it_runs(root: Path) -> None:
    lock = StartLock(str(root), math.inf)
    assert lock.try_turn()
    daemon = ForegroundDaemon(root)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_daemon, root)
        # Nothing of the daemon can be seen yet.
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(daemon.start)
        lock.close()
    assert await anyio.to_thread.run_sync(daemon.wait) == 0
