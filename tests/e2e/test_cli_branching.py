"""`steno fork` and `steno undo`: new sessions from past states."""

from pathlib import Path

import pytest

from steno import connect_sync
from support.command import Ran, Steno

pytestmark = pytest.mark.served

STAT = {
    "session", "head", "bytes", "generation", "token_count", "token_count_with_pending",
    "n_checkpoints", "has_system_prompt", "created", "stamp", "incarnation", "folder", "open",
    "title", "labels", "archived", "forked_from",
}  # fmt: skip


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


def test_undo_makes_a_session_without_the_last_turns(steno: Steno) -> None:
    ran = steno("undo", "demo")
    name = ran.out.strip()
    assert (ran.code, name.startswith("demo-undo-")) == (0, True)
    assert messages_of(steno, name) == ["turn 0", "turn 1"]
    made = steno("undo", "demo", "--turns", "2", "--to", "back", "--json").document
    assert (set(made), made["session"]) == (STAT, "back")
    assert messages_of(steno, "back") == ["turn 0"]
    assert messages_of(steno, "demo") == ["turn 0", "turn 1", "turn 2"]


def test_more_turns_than_there_are_cannot_be_undone(steno: Steno) -> None:
    assert steno("undo", "demo", "--turns", "4", "--to", "back").code == 4
    ran: Ran = steno("undo", "demo", "--turns", "0")
    assert ran.code == 2
    assert "'0' is not a number from 1 on" in ran.err
