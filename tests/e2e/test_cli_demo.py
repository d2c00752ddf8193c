"""`steno demo`: the main job in one command, and that its proofs can fail."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from steno.cli import main
from steno.cli.commands import demo
from steno.cli.demo import scenario
from steno.cli.demo.agent import turn
from steno.cli.demo.proof import Acked, Proof, Seen, prove
from steno.cli.demo.scenario import Evidence
from support.command import Steno

CLAIMS = 5

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
    assert len((root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines()) == 289


def test_the_demo_as_json_names_both_daemons_and_leaves_none(root: Path) -> None:
    steno = Steno(root)
    arguments = ("demo", "--root", str(root), "--turns", TURNS, "--agents", "2", "--json")
    told = steno(*arguments).document
    assert set(told) == {
        "proved", "proofs", "root", "session", "file", "agents", "records", "repeated",
        "killed_pid", "next_pid", "away_s",
    }  # fmt: skip
    assert told["proved"] is True
    assert all(proof["holds"] for proof in told["proofs"])
    assert told["killed_pid"] != told["next_pid"]
    assert steno("status").code == 5
    # A second one on the same root takes another session.
    assert steno(*arguments).document["session"] == "demo-2"


@pytest.mark.parametrize("agents", [1, 3])
def test_the_shortest_demo_has_an_agent_left_that_starts_the_next_daemon(
    root: Path, agents: int
) -> None:
    counts = ("--agents", str(agents), "--turns", "10")
    told = Steno(root)("demo", "--root", str(root), *counts, "--json").document
    assert told["proved"] is True
    assert told["killed_pid"] != told["next_pid"]
    assert told["records"] == agents * 12 + 1


def test_the_demo_does_not_kill_a_daemon_that_was_there_before(root: Path) -> None:
    steno = Steno(root)
    steno("start")
    pid = steno("status", "--json").document["pid"]
    ran = steno("demo", "--root", str(root))
    assert (ran.code, ran.out) == (1, "")
    assert "steno stop" in ran.err
    assert steno("status", "--json").document["pid"] == pid


def test_without_a_root_the_demo_takes_a_folder_of_its_own(root: Path, tmp_path: Path) -> None:
    steno = Steno(root, TMPDIR=str(root))
    told = steno("demo", "--turns", TURNS, "--agents", "2", "--json").document
    assert Path(told["root"]).parent == root
    assert not (root / "stenod.lock").exists()


def test_the_demo_fails_when_a_proof_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = scenario.run

    def run_and_tamper(root: Path, agents: int, turns: int, watch: scenario.Watch) -> Evidence:
        evidence = run(root, agents, turns, watch)
        lines = evidence.file.read_bytes().splitlines(keepends=True)
        evidence.file.write_bytes(b"".join(lines[:7] + lines[8:]))
        return evidence

    monkeypatch.setattr(demo, "run", run_and_tamper)
    assert main(["demo", "--root", str(root), "--turns", TURNS, "--agents", "2"]) == 1
    shown = capsys.readouterr().out
    assert "✗ each of the 49 acknowledged records is in it exactly once" in shown


# --- the proofs alone ----------------------------------------------------------------------------


class Case:
    """A file that three writers wrote in turn, and everything that was told of it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.acked: list[Acked] = []
        for number in range(10):
            for writer in ("a", "b", "c"):
                self.append(writer, number)
        self.seen = [
            Seen(cursor=f"0:{number}", line=line.decode()) for number, line in enumerate(self.lines)
        ]

    def append(self, writer: str, number: int) -> None:
        sent = turn(writer, number)
        first = len(self.lines)
        key = f"{writer}-{number}"
        for index, record in enumerate(sent):
            stamp = f"{key}.{index}/{len(sent)}" if len(sent) > 1 else key
            self.lines.append(json.dumps({**record, "_by": writer, "_id": stamp}).encode())
        last = len(self.lines) - 1
        self.acked.append(
            Acked(writer=writer, key=key, first=f"0:{first}", last=f"0:{last}", duplicate=False,
                  sent=sent)
        )  # fmt: skip

    def proofs(self) -> list[Proof]:
        return prove(b"".join(line + b"\n" for line in self.lines), self.acked, self.seen)

    def failed(self) -> set[int]:
        return {number for number, proof in enumerate(self.proofs()) if not proof.holds}


WHOLE, ONCE, THERE, ORDER, SEEN = range(CLAIMS)


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


def _lose_half_a_batch(case: Case) -> None:
    del case.lines[next(n for n, line in enumerate(case.lines) if b".1/2" in line)]


def _foreign(case: Case) -> None:
    case.lines.append(b'{"role":"user","content":"hi","_id":"nobody"}')


def _see_twice(case: Case) -> None:
    case.seen.insert(5, case.seen[5])


def _see_a_gap(case: Case) -> None:
    del case.seen[5]


def _see_the_end_too_early(case: Case) -> None:
    case.seen.pop()


def _see_otherwise(case: Case) -> None:
    case.seen[5] = Seen(cursor="0:5", line="{}")


def _acknowledge_twice(case: Case) -> None:
    case.acked.append(case.acked[0])


def _misplace(case: Case) -> None:
    first = case.acked[0]
    case.acked[0] = Acked(writer="a", key=first.key, first="0:1", last="0:1", duplicate=False,
                          sent=first.sent)  # fmt: skip


def _rewrite(case: Case) -> None:
    first = case.acked[0]
    case.acked[0] = Acked(writer="a", key=first.key, first="1:0", last="1:0", duplicate=False,
                          sent=first.sent)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (_drop, {ONCE, THERE, SEEN}),
        (_double, {ONCE, ORDER, SEEN}),
        (_swap, {THERE, ORDER, SEEN}),
        (_change, {THERE, SEEN}),
        (_cut, {WHOLE, ONCE, THERE, SEEN}),
        (_glue, {WHOLE, ONCE, THERE, SEEN}),
        (_lose_half_a_batch, {ONCE, THERE, SEEN}),
        (_foreign, {ONCE, SEEN}),
        (_see_twice, {SEEN}),
        (_see_a_gap, {SEEN}),
        (_see_the_end_too_early, {SEEN}),
        (_see_otherwise, {SEEN}),
        (_acknowledge_twice, {ONCE, ORDER}),
        (_misplace, {THERE}),
        (_rewrite, {THERE}),
    ],
)
def test_a_fault_fails_the_proofs_that_speak_of_it(
    fault: Callable[[Case], None], failing: set[int]
) -> None:
    case = Case()
    fault(case)
    assert case.failed() == failing
    assert all(proof.detail for proof in case.proofs() if not proof.holds)


def test_a_file_whose_last_line_is_cut_is_not_whole() -> None:
    case = Case()
    proofs = prove(b"\n".join(case.lines), case.acked, case.seen)
    assert not proofs[WHOLE].holds
