"""Calls without a result, and the results that close them."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from steno.values import Record
from steno_present.open_calls import OpenCall, OpenCalls, closing, open_calls
from steno_protocol.positions import Position
from support.call_counts import CallCounts


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "function": {"name": "Shell", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def part(call_id: str) -> dict[str, Any]:
    used: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "Read", "input": {}}
    return {"role": "assistant", "content": [{"type": "text", "text": "a"}, used]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def in_order(messages: list[dict[str, Any]]) -> list[Record]:
    return [Record(Position(0, line), each, b"") for line, each in enumerate(messages)]


def opened(*messages: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each.id, each.cursor.line) for each in open_calls(in_order([*messages]))]


def in_lines(messages: list[dict[str, Any]]) -> list[OpenCall]:
    calls = OpenCalls()
    for number, each in enumerate(messages):
        calls.add_line(Position(0, number), json.dumps(each).encode() + b"\n")
    return calls.calls()


def test_a_call_is_open_until_its_result() -> None:
    assert opened(call("a", "b"), result("b")) == [("a", 0)]
    assert opened(call("a", "b"), result("b"), result("a")) == []
    assert opened({"role": "user", "content": "hi"}) == []


def test_an_id_that_is_used_again_is_another_call() -> None:
    assert opened(call("a"), result("a"), call("a")) == [("a", 2)]
    assert opened(call("a"), call("a"), result("a")) == [("a", 0)]


def test_parts_of_a_content_are_calls_and_results() -> None:
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}
    assert opened(part("a")) == [("a", 0)]
    assert opened(part("a"), answer) == []


def test_odd_records_are_no_calls() -> None:
    odd: list[Any] = [{"tool_calls": [1, {"id": "x"}]}, {"content": [None, {"type": "tool_use"}]}]
    records = in_order([{"role": "assistant"} | each for each in odd])
    assert [each.id for each in open_calls(records)] == ["None"]
    assert opened(result("nobody")) == []


def test_the_work_grows_with_the_calls_of_a_message_not_with_their_square() -> None:
    work: list[int] = []
    for many in (50, 500):
        (record,) = in_order([call(*map(str, range(many)))])
        counts = CallCounts()
        counts.count(lambda record=record: OpenCalls().add(record))
        work.append(counts.calls)
    assert work[1] < 11 * work[0]


MESSAGES = st.lists(
    st.one_of(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(
            lambda ids: call(*ids)
        ),
        st.sampled_from("abc").map(part),
        st.sampled_from("abc").map(result),
    )
)


VALUES: list[Any] = [None, 3, "a", [], {}, [3], [{}]]
ODD: st.SearchStrategy[Any] = st.sampled_from(VALUES)
TYPES: st.SearchStrategy[Any] = st.sampled_from(["tool_use", "tool_result", "text"])
FUNCTIONS: st.SearchStrategy[Any] = st.just({"name": "a"})


def objects(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=optional)


PARTS = st.lists(objects(type=ODD | TYPES, id=ODD, name=ODD, tool_use_id=ODD, text=ODD))
CALLS = st.lists(objects(id=ODD, function=ODD | FUNCTIONS))
ROLES: st.SearchStrategy[Any] = st.sampled_from(["assistant", "tool", "user"])
ANY_MESSAGES = st.lists(
    objects(role=ROLES | ODD, content=ODD | PARTS, tool_call_id=ODD, tool_calls=ODD | CALLS)
)


@given(messages=MESSAGES | ANY_MESSAGES)
def test_lines_have_the_calls_of_their_records(messages: list[dict[str, Any]]) -> None:
    assert in_lines(messages) == open_calls(in_order(messages))


@given(messages=MESSAGES)
def test_closing_leaves_no_call_open(messages: list[dict[str, Any]]) -> None:
    found = open_calls(in_order(messages))
    assert opened(*messages, *closing(found)) == []
    assert len(closing(found)) == len(found)
