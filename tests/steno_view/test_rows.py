"""Records as rows, without a daemon."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.values import Record
from steno_protocol.positions import Position
from steno_view.limits import PARTS_MAX, TEXT_CHARS_MAX
from steno_view.rows import Rows, image_of

KEY = "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"
LATER = "0199f1c2-5f06-7a90-8000-3d1c5e9b7a12"
"""A key that is 1 000 ms younger."""


def no_time() -> float:
    return 0.0


def record(value: dict[str, Any], line: int = 0) -> Record:
    return Record(Position(0, line), value, b"")


def row(value: dict[str, Any]) -> dict[str, Any]:
    return Rows(no_time).row(record(value))


def test_a_result_has_the_name_and_the_duration_of_its_call() -> None:
    call = {"id": "c1", "function": {"name": "Shell", "arguments": '{"command":"ls"}'}}
    rows = Rows(no_time)
    made = rows.row(record({"role": "assistant", "content": "", "tool_calls": [call], "_id": KEY}))
    assert made["parts"][0]["hint"] == "command=ls"
    result = {"role": "tool", "tool_call_id": "c1", "content": "a.txt", "_id": LATER}
    found = rows.row(record(result, 1))
    assert (found["name"], found["duration"], found["answers"]) == ("Shell", 1.0, ["c1"])


def test_a_call_before_the_range_names_its_result() -> None:
    rows = Rows(no_time)
    call = {"id": "c1", "function": {"name": "Grep", "arguments": ""}}
    rows.note({"role": "assistant", "content": "", "tool_calls": [call]})
    assert (
        rows.row(record({"role": "tool", "tool_call_id": "c1", "content": "x"}))["name"] == "Grep"
    )


def test_a_long_result_is_folded_to_its_first_lines() -> None:
    text = "\n".join(map(str, range(30)))
    (part,) = row({"role": "tool", "content": text})["parts"]
    assert part["head"] == "\n".join(map(str, range(8)))
    assert (part["lines"], part["text"]) == (30, text)
    assert row({"role": "tool", "content": "1\n2"})["parts"][0]["head"] is None


def test_a_long_text_is_cut_and_whole_on_request() -> None:
    value = {"role": "user", "content": "x" * (TEXT_CHARS_MAX + 7)}
    assert row(value)["parts"][0]["more"] == 7
    assert Rows(no_time, is_whole=True).row(record(value))["parts"][0]["more"] == 0


def test_a_record_of_many_calls_is_cut_and_whole_on_request() -> None:
    call = {"id": "c1", "function": {"name": "Shell", "arguments": "{}"}}
    value = {"role": "assistant", "content": "Look", "tool_calls": [call] * (PARTS_MAX + 6)}
    made = row(value)
    assert (len(made["parts"]), made["more"]) == (PARTS_MAX, 7)
    whole = Rows(no_time, is_whole=True).row(record(value))
    assert len(whole["parts"]) == PARTS_MAX + 7
    assert "more" not in whole


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"role": "_checkpoint", "id": 3}, "checkpoint"),
        ({"role": "_usage", "token_count": 12}, "usage"),
        ({"role": "_system_prompt", "content": "x"}, "message"),
        ({"role": "user", "content": None}, "message"),
        ({}, "message"),
    ],
)
def test_every_kind_of_line_has_its_kind_of_row(value: dict[str, Any], kind: str) -> None:
    assert row(value)["kind"] == kind


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "text", "text": "x"}, "text"),
        ({"type": "think", "think": "x"}, "thought"),
        ({"type": "reasoning", "text": "x"}, "thought"),
        ({"type": "tool_use", "id": "1", "name": "Shell", "input": {"a": 1}}, "call"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, "image"),
        ({"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}}, "json"),
        ({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AA=="}}, "json"),
        ({"type": "later"}, "json"),
        ("bare", "json"),
    ],
)
def test_every_kind_of_part_is_shown(part: Any, kind: str) -> None:
    (shown,) = row({"role": "assistant", "content": [part]})["parts"]
    assert shown["kind"] == kind


def test_an_image_of_either_shape_is_decoded() -> None:
    data = base64.b64encode(b"pixels").decode()
    source = {"type": "base64", "media_type": "image/webp", "data": data}
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image", "source": source},
        {"type": "text", "text": "no image"},
    ]
    value = {"role": "user", "content": content}
    assert image_of(value, 0) == ("image/png", b"pixels")
    assert image_of(value, 1) == ("image/webp", b"pixels")
    assert image_of(value, 2) is image_of(value, 3) is image_of({}, 0) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = ("role", "content", "tool_calls", "tool_call_id", "_by", "_id", "id", "token_count")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_record_has_a_row_that_can_be_sent(value: dict[str, Any]) -> None:
    assert msgspec.json.encode(row(value))


def test_half_a_surrogate_pair_in_arguments_can_be_sent() -> None:
    call = {"id": "1", "function": {"name": "x", "arguments": '{"a":"\\ud800"}'}}
    assert msgspec.json.encode(row({"role": "assistant", "content": "", "tool_calls": [call]}))


@given(JSON)
def test_any_part_has_a_row_that_can_be_sent(part: Any) -> None:
    content = [part, {"type": "text", "text": part}, {"type": "think", "think": part}]
    assert json.loads(msgspec.json.encode(row({"role": "tool", "content": content})))
