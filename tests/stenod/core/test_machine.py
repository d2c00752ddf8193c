"""The writer's decisions, and no effect of a refused command."""

from typing import Any

import pytest

from steno_protocol import records
from steno_protocol.commands import Append, Mutation
from steno_protocol.context import ContextCounters
from steno_protocol.errors import BadRequest, Conflict, Exists, Refused, TooLarge
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail
from stenod.core.keys import Applied, KeyTable
from stenod.core.machine import Answered, Lines, Machine, Mailing
from support.lines import (
    SESSION,
    append,
    checkpoint,
    compact,
    deliver,
    mail,
    prompt,
    usage,
    user,
)


def fresh(line: int = 0, *, stamp: bool = True, **counters: Any) -> Machine:
    return Machine(
        SESSION, Position(0, line), ContextCounters(**counters), KeyTable(0), stamp=stamp
    )


def lines_of(machine: Machine, command: Mutation, *data: bytes) -> Lines:
    decision = machine.decide(command, data)
    assert isinstance(decision, Lines)
    return decision


def ack_of(machine: Machine, command: Mutation, *data: bytes) -> Ack:
    decision = machine.decide(command, data)
    assert isinstance(decision, (Lines, Answered))
    return decision.ack


def state_of(machine: Machine) -> tuple[object, ...]:
    return (
        machine.head,
        machine.tentative_head,
        machine.counters.copy(),
        machine.applied("used"),
    )


# --- appending ---------------------------------------------------------------------------------


def test_unstamped_session_contains_the_callers_records() -> None:
    machine = fresh(stamp=False)
    record = b'{ "role": "user", "content" : "hi" }'

    assert lines_of(machine, append("k1", by="planner"), record).data == record + b"\n"
    assert lines_of(machine, usage("k2", 7)).data == records.usage_record(7) + b"\n"


# --- keys --------------------------------------------------------------------------------------


def test_an_append_after_a_key_is_refused_until_that_key_is_applied() -> None:
    machine = fresh()
    second = Append(session=SESSION, key="k2", after_key="k1")
    with pytest.raises(Conflict) as refused:
        machine.decide(second, [user("two")])
    assert refused.value.head == "0:0"
    lines_of(machine, append("k1"), user("one"))
    # Behind a tentative one of the same group, and whatever other writers append in between.
    lines_of(machine, append("other"), user("other"))
    assert ack_of(machine, second, user("two")).first == "0:2"
    machine.commit()
    assert ack_of(machine, second, user("two")).duplicate
    third = Append(session=SESSION, key="k3", after_key="k2")
    assert ack_of(machine, third, user("three")).first == "0:3"
    machine.roll_back()
    with pytest.raises(Conflict):
        machine.decide(Append(session=SESSION, key="k4", after_key="k3"), [user("four")])


# --- compaction and D-Mail ---------------------------------------------------------------------

SUMMARY = user("<current_focus>...</current_focus>")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([], "takes one record, the summary, and got 0"),
        ([SUMMARY, SUMMARY], "takes one record, the summary, and got 2"),
        ([b'{"role":"assistant","content":"x"}'], "have the role user"),
        ([b"[]"], "has to be an object"),
    ],
)
def test_a_summary_is_one_message_of_a_user(data: list[bytes], error: str) -> None:
    machine = fresh(line=9)
    before = state_of(machine)

    with pytest.raises(BadRequest, match=error):
        machine.decide(compact("k", "0:5", "0:9", 3), data)
    assert state_of(machine) == before


def test_a_mail_is_sent_once_and_the_next_one_waits_for_its_delivery() -> None:
    machine = fresh(line=4, n_checkpoints=2)
    assert isinstance(machine.decide(mail("m", 1), []), Mailing)
    waiting = Mail(id="m", checkpoint_id=1, message="turn back", cursor="0:2")

    ack = machine.mailed(waiting, Applied("send_dmail", Position(0, 4), 0, 1))

    assert (ack.head, ack.checkpoint_id, ack.duplicate) == ("0:4", 1, False)
    again = machine.decide(mail("m", 1, repeat=True), [])
    assert isinstance(again, Answered)
    assert (again.ack.head, again.ack.duplicate) == ("0:4", True)
    with pytest.raises(Exists, match="D-Mail m to checkpoint 1 is pending"):
        machine.decide(mail("m2", 0), [])
    with pytest.raises(BadRequest, match="a key names one command for ever"):
        machine.decide(deliver("m", "m"), [])
    machine.mail = None
    assert isinstance(machine.decide(mail("m2", 0), []), Mailing)


def test_a_reserved_id_is_not_assigned_again() -> None:
    machine = fresh(n_checkpoints=3)
    before = state_of(machine)

    assert [machine.reserve_checkpoint_id(), machine.reserve_checkpoint_id()] == [3, 4]

    assert state_of(machine) == before
    assert ack_of(machine, checkpoint("c")).checkpoint_id == 5
    machine.roll_back()
    assert ack_of(machine, checkpoint("c2")).checkpoint_id == 5
    machine.commit()
    assert machine.counters.n_checkpoints == 6
    assert machine.reserve_checkpoint_id() == 6


def test_a_reservation_is_given_back_while_no_later_id_was_given_out() -> None:
    machine = fresh(n_checkpoints=3)
    first, second = machine.reserve_checkpoint_id(), machine.reserve_checkpoint_id()

    machine.release_checkpoint_id(first)
    assert machine.reserve_checkpoint_id() == 5
    machine.release_checkpoint_id(5)
    machine.release_checkpoint_id(second)

    assert ack_of(machine, checkpoint("c")).checkpoint_id == second


# --- refusals ----------------------------------------------------------------------------------

LARGE = user("x" * 16 * 1024 * 1024)


@pytest.mark.parametrize(
    ("command", "data", "error"),
    [
        (append("k"), [user("fine"), b"{"], BadRequest),
        (append("k"), [user("fine"), b'{"role":"_checkpoint","id":1,"content":""}'], BadRequest),
        (append("k"), [user("fine"), LARGE], TooLarge),
        (prompt("k", "\ud800"), [], BadRequest),
    ],
)
def test_a_refused_command_leaves_the_state_as_it_was(
    command: Mutation, data: list[bytes], error: type[Refused]
) -> None:
    machine = fresh()
    machine.commit()
    before = state_of(machine)

    with pytest.raises(error):
        machine.decide(command, data)

    assert state_of(machine) == before
    assert machine.applied("k") is None


# --- the whole machine against a list ----------------------------------------------------------
