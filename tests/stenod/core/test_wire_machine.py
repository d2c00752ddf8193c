"""Decisions about a wire file: used keys and refused events."""

import pytest

from steno_protocol.commands import Mutation
from steno_protocol.errors import BadRequest, Conflict, TooLarge
from steno_protocol.positions import Position
from stenod.core.keys import KeyTable
from stenod.core.machine import Answered, Lines
from stenod.core.wire_machine import WireMachine
from support.lines import SESSION
from support.wire_writing import append_wire, encode_event, event


def fresh() -> WireMachine:
    start = Position(0, 0)
    return WireMachine(SESSION, start, KeyTable(0), stamp=True, context_head=lambda: start)


def lines_of(machine: WireMachine, command: Mutation, *data: bytes) -> Lines:
    decision = machine.decide(command, data)
    assert isinstance(decision, Lines)
    return decision


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
