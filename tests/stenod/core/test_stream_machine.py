"""Decisions on a stream: any JSON objects, byte for byte."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.blocks import split_lines
from steno_protocol.commands import AppendStream, AppendWire
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS, record_and_author, stamp_of, unstamped
from stenod.core.key_replay import applied_in
from stenod.core.keys import KeyTable
from stenod.core.machine import Answered, Lines
from stenod.core.stream_machine import StreamMachine
from support.lines import SESSION

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.dictionaries(TEXTS | st.just("_idea"), VALUES, max_size=3).filter(
    lambda record: record.keys().isdisjoint(RESERVED_KEYS)
)


def fresh(generation: int = 0, *, stamp: bool = True) -> StreamMachine:
    return StreamMachine(SESSION, Position(generation, 0), KeyTable(0), stamp=stamp)


def append(key: str, **fields: Any) -> AppendStream:
    return AppendStream(session=SESSION, stream="notes", key=key, **fields)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from([None, "planner"]))
def test_line_without_its_stamp_is_the_record(records: list[Any], by: str | None) -> None:
    data = [msgspec.json.encode(record) for record in records]
    decision = fresh(2).decide(append("k1", by=by), data)
    assert isinstance(decision, Lines)
    lines = split_lines(decision.data)
    assert [unstamped(line) for line in lines] == data
    assert {record_and_author(line)[1] for line in lines} == {by}
    for line in lines:
        assert msgspec.json.decode(line)["_id"].startswith("k1")
        assert stamp_of(line) is not None
    [(key, applied)] = applied_in(lines, 2, 0, is_stream=True)
    assert (key, applied.first, applied.count) == ("k1", Position(2, 0), len(data))
    again = fresh(2).decide(append("k1", by=by), data, applied)
    assert isinstance(again, Answered)
    with pytest.raises(Conflict):
        fresh(2).decide(append("k1", by=by), [*data, b'{"other":1}'], applied)


def test_another_files_command_is_refused() -> None:
    with pytest.raises(BadRequest, match="not for a stream"):
        fresh().decide(AppendWire(session=SESSION, key="k1"), [b"{}"])


def test_invalid_record_of_a_batch_is_named_and_changes_nothing() -> None:
    machine = fresh()
    with pytest.raises(BadRequest, match="record 2 of 2"):
        machine.decide(append("k1"), [b"{}", b"[]"])
    assert machine.tentative_head == Position(0, 0)
