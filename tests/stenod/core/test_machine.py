"""The writer's decisions, and no effect of a refused command."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steno_protocol import records
from steno_protocol.commands import Append, Mutation
from steno_protocol.context import ContextCounters, parse_line
from steno_protocol.errors import BadRequest, Conflict, Exists, Refused, TooLarge
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail
from stenod.core.keys import Applied, KeyTable
from stenod.core.lines import split_lines
from stenod.core.machine import Answered, Lines, Machine, Mailing, Rewrite
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


def test_prompt_is_a_line_in_an_empty_session_and_otherwise_a_rewrite() -> None:
    assert isinstance(fresh().decide(prompt("p", "be kind"), []), Lines)
    assert isinstance(fresh(line=1).decide(prompt("p", "be kind"), []), Rewrite)


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


def test_a_rewrite_ends_all_reservations() -> None:
    machine = fresh(line=5, n_checkpoints=3)
    machine.reserve_checkpoint_id()
    machine.rewritten("r", Applied("clear", Position(1, 0), 0), Position(1, 0), ContextCounters())

    assert ack_of(machine, checkpoint("c")).checkpoint_id == 0


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


@dataclass(slots=True)
class Model:
    """A naive session: its lines, and the reply to each key."""

    lines: list[bytes]
    answers: dict[str, Ack]

    def copy(self) -> "Model":
        return Model(list(self.lines), dict(self.answers))

    @property
    def counters(self) -> ContextCounters:
        counters = ContextCounters()
        for data in self.lines:
            counters.apply(parse_line(data))
        return counters


KEYS = st.sampled_from([f"k{number}" for number in range(12)])
RECORDS = st.lists(
    st.sampled_from([user("a"), user("some text"), user("")]), min_size=1, max_size=3
)


class MachineAgainstList(RuleBasedStateMachine):
    """Random commands, commits and roll-backs; the machine and a plain list stay equal."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = fresh()
        self.durable = Model([], {})
        self.tentative = self.durable.copy()
        self.kinds: dict[str, type[Mutation]] = {}
        self.asked: dict[str, list[object]] = {}

    def decide(self, command: Mutation, data: list[bytes]) -> None:
        known = self.tentative.answers.get(command.key)
        if known is not None and self.kinds[command.key] is not type(command):
            with pytest.raises(BadRequest):
                self.machine.decide(command, data)
            return
        asked = [command, data]
        if known is not None and self.asked[command.key] != asked:
            with pytest.raises(Conflict, match=f"other contents, by the .* at {known.first}"):
                self.machine.decide(command, data)
            return
        decision = self.machine.decide(command, data)
        if known is not None:
            assert isinstance(decision, Answered)
            assert decision.ack.duplicate
            assert (decision.ack.first, decision.ack.head) == (known.first, known.head)
            assert decision.ack.checkpoint_id == known.checkpoint_id
            return
        assert isinstance(decision, Lines)
        assert decision.ack.first == f"0:{len(self.tentative.lines)}"
        self.tentative.lines += split_lines(decision.data)
        assert decision.ack.head == f"0:{len(self.tentative.lines)}"
        self.tentative.answers[command.key] = decision.ack
        self.kinds[command.key] = type(command)
        self.asked[command.key] = asked

    @rule(key=KEYS, data=RECORDS)
    def append(self, key: str, data: list[bytes]) -> None:
        self.decide(append(key), data)

    @rule(key=KEYS, shown=st.booleans())
    def checkpoint(self, key: str, shown: bool) -> None:
        expected = self.tentative.counters.n_checkpoints
        is_new = key not in self.tentative.answers
        self.decide(checkpoint(key, add_user_message=shown), [])
        if is_new:
            assert self.tentative.answers[key].checkpoint_id == expected

    @rule(key=KEYS, count=st.integers(0, 99))
    def usage(self, key: str, count: int) -> None:
        self.decide(usage(key, count), [])

    @rule(key=KEYS)
    def bad_record(self, key: str) -> None:
        is_append = self.kinds.get(key, Append) is Append
        expected = Conflict if key in self.tentative.answers and is_append else BadRequest
        with pytest.raises(expected):
            self.machine.decide(append(key), [user("fine"), b"[]"])

    @rule(key=KEYS, off=st.sampled_from([-1, 1]))
    @precondition(lambda self: self.tentative.lines)
    def wrong_expectation(self, key: str, off: int) -> None:
        if key not in self.tentative.answers:
            expect = f"0:{len(self.tentative.lines) + off}"
            with pytest.raises(Conflict):
                self.machine.decide(append(key, expect=expect), [user("a")])

    @rule()
    def commit(self) -> None:
        self.machine.commit()
        self.durable = self.tentative.copy()

    @rule()
    def roll_back(self) -> None:
        self.machine.roll_back()
        self.tentative = self.durable.copy()

    @invariant()
    def both_are_equal(self) -> None:
        assert self.machine.head == Position(0, len(self.durable.lines))
        assert self.machine.tentative_head == Position(0, len(self.tentative.lines))
        assert self.machine.counters == self.durable.counters


TestMachineAgainstList = MachineAgainstList.TestCase
TestMachineAgainstList.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
