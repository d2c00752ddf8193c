"""`steno fork` and `steno undo`: new sessions from past states."""

from pathlib import Path

import pytest

from steno import connect_sync
from support.command import STAT, Steno

pytestmark = pytest.mark.served


@pytest.fixture
def steno(root: Path) -> Steno:
    """A session of three turns, with a checkpoint before each."""
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for turn in range(3):
            session.checkpoint()
            session.append_wire("TurnBegin", {"user_input": f"turn {turn}"}, durability="synced")
            session.append_message({"role": "user", "content": f"turn {turn}"})
    return Steno(root)


def messages_of(steno: Steno, session: str) -> list[str]:
    state = steno("show", session, "--json").document
    return [message["content"] for message in state["messages"]]


@pytest.mark.parametrize(
    ("instant", "turns"),
    [
        ((), [0, 1, 2]),
        (("--at", "0:3"), [0]),
        (("--checkpoint", "2"), [0, 1]),
        (("--turn", "0"), [0]),
        (("--turn", "-1"), []),
    ],
)
def test_a_fork_has_the_content_of_its_instant(
    steno: Steno, instant: tuple[str, ...], turns: list[int]
) -> None:
    ran = steno("fork", "demo", "team/new", *instant)
    assert (ran.code, ran.out) == (0, "team/new\n")
    assert ran.err.startswith("steno: team/new is a fork of demo and ends at 0:")
    assert messages_of(steno, "team/new") == [f"turn {turn}" for turn in turns]
    assert messages_of(steno, "demo") == ["turn 0", "turn 1", "turn 2"]


def test_a_fork_as_json_is_the_state_of_the_new_session(steno: Steno) -> None:
    made = steno("fork", "demo", "new", "--title", "Another way", "--json").document
    assert set(made) == STAT
    assert (made["session"], made["forked_from"], made["title"]) == ("new", "demo", "Another way")
    assert steno("sessions", "new", "--json").document["sessions"][0]["forked_from"] == "demo"


def test_a_repeated_fork_makes_one_session_and_another_one_conflicts(steno: Steno) -> None:
    first = steno("fork", "demo", "new", "--key", "k1", "--json")
    again = steno("fork", "demo", "new", "--key", "k1", "--json")
    assert (first.code, again.code) == (0, 0)
    assert again.document["incarnation"] == first.document["incarnation"]
    other = steno("fork", "demo", "new", "--json")
    assert (other.code, other.error["code"]) == (1, "exists")


def test_an_instant_that_does_not_exist_is_not_found(steno: Steno) -> None:
    for instant in (("--at", "7:0"), ("--checkpoint", "9"), ("--turn", "9")):
        ran = steno("fork", "demo", "new", *instant)
        assert (ran.code, ran.out) == (4, ""), instant
    assert steno("fork", "nobody", "new").code == 4
    assert steno("fork", "demo", "new", "--turn", "0", "--at", "0:1").code == 2
    assert steno("sessions", "new").out == ""


def test_undo_with_an_id_makes_a_session_without_the_last_turns(steno: Steno) -> None:
    ran = steno("undo", "demo", "--to", "before")
    assert (ran.code, ran.out) == (0, "before\n")
    assert messages_of(steno, "before") == ["turn 0", "turn 1"]
    made = steno("undo", "demo", "--turns", "2", "--to", "back", "--json").document
    assert (set(made), made["session"]) == (STAT, "back")
    assert messages_of(steno, "back") == ["turn 0"]
    assert messages_of(steno, "demo") == ["turn 0", "turn 1", "turn 2"]


def test_undo_drops_the_last_turn_and_redo_brings_it_back(steno: Steno) -> None:
    ran = steno("undo", "demo")
    assert ran.code == 0
    assert "dropped, from “turn 2” on: `steno redo demo" in ran.err
    assert "the previous content is kept in" in ran.err
    assert messages_of(steno, "demo") == ["turn 0", "turn 1"]
    # The wire file still has the events of the turn that is gone.
    assert steno("undo", "demo").code == 0
    assert messages_of(steno, "demo") == ["turn 0"]
    for there in (["turn 0", "turn 1"], ["turn 0", "turn 1", "turn 2"]):
        assert steno("redo", "demo").code == 0
        assert messages_of(steno, "demo") == there
    ran = steno("redo", "demo")
    assert (ran.code, "has no undo to bring back" in ran.err) == (4, True)


def test_redo_refuses_after_a_record_was_written(steno: Steno) -> None:
    assert steno("undo", "demo", "--turns", "2").code == 0
    assert steno("append", "demo", "another way").code == 0
    assert steno("redo", "demo").code == 4
    assert messages_of(steno, "demo") == ["turn 0", "another way"]


def test_a_repeated_undo_or_redo_with_its_key_is_applied_once(steno: Steno) -> None:
    for verb, there in (("undo", ["turn 0", "turn 1"]), ("redo", ["turn 0", "turn 1", "turn 2"])):
        first = steno(verb, "demo", "--key", verb, "--json").document
        again = steno(verb, "demo", "--key", verb, "--json").document
        assert (again["head"], again["duplicate"]) == (first["head"], True)
        assert messages_of(steno, "demo") == there


def test_undo_without_turns_drops_the_last_message_of_the_user(steno: Steno) -> None:
    for line in ('{"role":"user","content":"one"}', '{"role":"assistant","content":"two"}'):
        assert steno("append", "plain", stdin=line + "\n").code == 0
    steno("append", "plain", "three")
    steno("checkpoint", "plain", "--add-user-message")
    assert steno("undo", "plain").code == 0
    assert messages_of(steno, "plain") == ["one", "two"]
    assert steno("undo", "plain").code == 0
    assert messages_of(steno, "plain") == []
    ran = steno("undo", "plain")
    assert (ran.code, "has no turn to undo" in ran.err) == (4, True)


def test_undo_takes_no_summary_of_a_compaction_for_a_turn(root: Path, steno: Steno) -> None:
    with connect_sync(root) as client:
        session = client.open("plain", follow=False)
        for text in ("one", "two"):
            session.append_message({"role": "user", "content": text})
            session.append_message({"role": "assistant", "content": f"to {text}"})
        session.compact(lambda *_: "summary", preserve=1)
    ran = steno("undo", "plain")
    assert (ran.code, "has no turn to undo" in ran.err) == (4, True)
    assert steno("append", "plain", "three").code == 0
    assert steno("undo", "plain").code == 0
    assert messages_of(steno, "plain")[-1] == "to two"


def test_undo_of_a_state_that_is_not_the_last_one_is_a_conflict(steno: Steno) -> None:
    ran = steno("undo", "demo", "--expect", "0:5")
    assert ran.code == 3
    assert messages_of(steno, "demo") == ["turn 0", "turn 1", "turn 2"]


def test_a_revert_takes_the_position_of_a_line(steno: Steno) -> None:
    assert steno("revert", "demo", "0:4").code == 0
    assert messages_of(steno, "demo") == ["turn 0", "turn 1"]
    ran = steno("revert", "demo", "0:1")
    assert (ran.code, "not of the present generation" in ran.err) == (3, True)


def test_more_turns_than_there_are_cannot_be_undone(steno: Steno) -> None:
    assert steno("undo", "demo", "--turns", "4", "--to", "back").code == 4
