"""Decisions about a wire file: one header, stamped events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.commands import Mutation
from steno_protocol.errors import BadRequest, Conflict, TooLarge
from steno_protocol.positions import Position
from steno_protocol.wire import metadata_line
from stenod.core.keys import KeyTable
from stenod.core.machine import Answered, Lines
from stenod.core.wire_machine import WireMachine
from support.lines import SESSION
from support.wire_writing import append_wire, encode_event, event

HEADER = metadata_line()


class Heads:
    """The durable head of a context that a test moves."""

    def __init__(self) -> None:
        self.head = Position(0, 0)

    def __call__(self) -> Position:
        return self.head


def fresh(line: int = 0, *, stamp: bool = True, heads: Heads | None = None) -> WireMachine:
    return WireMachine(
        SESSION, Position(0, line), KeyTable(0), stamp=stamp, context_head=heads or Heads()
    )


def lines_of(machine: WireMachine, command: Mutation, *data: bytes) -> Lines:
    decision = machine.decide(command, data)
    assert isinstance(decision, Lines)
    return decision


@given(st.lists(st.sampled_from(["append", "refused", "commit", "roll back"]), max_size=30))
def test_file_has_one_header_at_its_start_after_any_rollback(
    steps: list[str],
) -> None:
    machine = fresh()
    durable, decided = b"", b""
    for number, step in enumerate(steps):
        match step:
            case "append":
                decision = lines_of(machine, append_wire(f"k{number}"), event(number))
                decided += decision.data
            case "refused":
                with pytest.raises(BadRequest):
                    machine.decide(append_wire(f"k{number}"), [event(0), b"{}"])
            case "commit":
                machine.commit()
                durable, decided = durable + decided, b""
            case _:
                machine.roll_back()
                decided = b""
        whole = durable + decided
        assert machine.tentative_head == Position(0, whole.count(b"\n"))
        assert machine.head == Position(0, durable.count(b"\n"))
        assert not whole or whole.startswith(HEADER)
        assert whole.count(b"metadata") == bool(whole)


def test_used_key_conflicts_with_other_events_but_not_another_time() -> None:
    machine = fresh()
    first = lines_of(machine, append_wire("k1"), event(0), event(1)).ack
    machine.commit()
    later = [encode_event("TextPart", {"n": n, "text": "hi"}, 2.5) for n in range(2)]
    for other in ([event(0)], [event(1), event(0)], [event(0), b"no event"]):
        with pytest.raises(
            Conflict, match=f"other contents, by the 'append_wire' at {first.first}"
        ):
            machine.decide(append_wire("k1", repeat=True), other)
    again = machine.decide(append_wire("k1", repeat=True), later)
    assert isinstance(again, Answered)


def test_a_refused_event_says_which_one_it_was_and_changes_nothing() -> None:
    machine = fresh()
    with pytest.raises(BadRequest, match="record 3 of 3"):
        machine.decide(append_wire("k1"), [event(0), event(1), b'{"timestamp":null}'])
    with pytest.raises(TooLarge):
        machine.decide(append_wire("k1"), [event(0, "x" * (16 << 20))])
    assert machine.tentative_head == Position(0, 0)
    assert machine.applied("k1") is None
