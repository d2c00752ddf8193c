"""The meaning of lines: counters and state agree, and rewrites equal replays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.context import (
    Blank,
    Checkpoint,
    ContextCounters,
    ContextState,
    Damaged,
    MessageLine,
    SystemPrompt,
    Usage,
    parse_line,
)
from steno_protocol.positions import Position

COUNTS = st.integers(0, 20) | st.just(limits.COUNT_MAX)


def _line(record: object) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _user(text: str, **extra: Any) -> bytes:
    return _line({"role": "user", "content": text, **extra})


def _usage(count: int) -> bytes:
    return _line({"role": "_usage", "token_count": count})


def _checkpoint(number: int) -> bytes:
    return _line({"role": "_checkpoint", "id": number})


TEXT = st.text(st.characters(codec="utf-8"), max_size=9)
PART = st.builds(
    lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["text", "think", "x"]), TEXT
)
GOOD_LINES = st.one_of(
    st.builds(_user, TEXT | st.none() | st.lists(PART, max_size=3)),
    st.builds(_user, TEXT, _id=st.just("k1"), _by=st.just("planner"), name=TEXT),
    COUNTS.map(_usage),
    COUNTS.map(_checkpoint),
    TEXT.map(lambda text: _line({"role": "_system_prompt", "content": text})),
)
BAD_LINES = st.sampled_from(
    [
        b"\n", b"  \n", b"\r\n", b"{\n", b"\xff\xfe\n", b"[]\n", b"5\n", b"\0\0\0\n", b"{}\n",
        b'{"role":"robot","content":""}\n', b'{"role":"user"}\n', b'{"role":"_checkpoint"}\n',
        b'{"role":"_checkpoint","id":true}\n', b'{"role":"_usage","token_count":"5"}\n',
        b'{"role":"_system_prompt","content":5}\n', b'{"role":7,"content":""}\n',
        b'{"role":"_checkpoint","id":-5}\n', b'{"role":"_usage","token_count":-1}\n',
        b'{"role":"_checkpoint","id":99999999999999999999}\n', b'{"role":"user","content":"a"}\r\n',
    ]
)  # fmt: skip
LINES = st.lists(GOOD_LINES | BAD_LINES, max_size=25)


def _state_of(lines: list[bytes], generation: int = 0) -> ContextState:
    state = ContextState(generation)
    state.apply_block(b"".join(lines))
    return state


def _facts(state: ContextState) -> dict[str, Any]:
    """All fields of a state."""
    names = (
        "head", "damaged", "system_prompt", "history", "token_count", "n_checkpoints",
        "token_count_with_pending", "usage_history", "checkpoints", "is_empty",
    )  # fmt: skip
    return {name: getattr(state, name) for name in names}


# --- the two replayers agree ---------------------------------------------------------------------


@given(lines=LINES)
def test_counters_and_state_agree_on_any_lines(lines: list[bytes]) -> None:
    counters = ContextCounters()
    for line in lines:
        counters.apply(parse_line(line))
    state = _state_of(lines)
    assert counters.token_count == state.token_count
    assert counters.token_count_with_pending == state.token_count_with_pending
    assert counters.n_checkpoints == state.n_checkpoints
    assert counters.has_system_prompt == (state.system_prompt is not None)
    assert state.head == Position(0, len(lines))


@given(lines=LINES, floor=st.integers(0, 9), kept=st.integers(0, 30), again=st.integers(0, 9))
def test_the_next_id_is_above_the_floor_and_all_ids_in_the_lines(
    lines: list[bytes], floor: int, kept: int, again: int
) -> None:
    state = ContextState(3, floor)
    assert state.n_checkpoints == floor
    state.apply_lines(lines)
    assert state.n_checkpoints == max(floor, _state_of(lines).n_checkpoints)
    state.reset(4, kept, again)
    assert state.n_checkpoints == max(again, _state_of(lines[:kept]).n_checkpoints)
    state.reset(5, 0)
    assert state.n_checkpoints == 0


@given(lines=LINES, kept=st.integers(0, 25), more=LINES, again=st.integers(0, 40))
def test_a_state_lives_on_through_resets_as_if_it_were_read_anew(
    lines: list[bytes], kept: int, more: list[bytes], again: int
) -> None:
    state = _state_of(lines)
    state.reset(1, kept)
    state.apply_block(b"".join(more))
    present = [*lines[:kept], *more]
    assert _facts(state) == _facts(_state_of(present, generation=1))
    state.reset(2, again)
    assert _facts(state) == _facts(_state_of(present[:again], generation=2))


# --- the rules -----------------------------------------------------------------------------------


def test_the_pending_estimate_is_a_quarter_of_the_text_after_the_last_usage() -> None:
    state = _state_of([_user("x" * 100), _usage(7), _user("abc"), _user("defg"), _user("h")])
    assert state.token_count == 7
    assert state.token_count_with_pending == 7 + 8 // 4
    state.apply_lines([_usage(3)])
    assert state.token_count_with_pending == 3


def test_the_history_is_the_messages_without_our_own_keys() -> None:
    line = _user("hi", _id="k1.0/2", _by="planner", _at="0:3", name="ada", x={"_id": 1})
    assert _state_of([line]).history == [
        {"role": "user", "content": "hi", "name": "ada", "x": {"_id": 1}}
    ]


def test_unknown_parts_and_keys_come_through() -> None:
    content = [{"type": "hologram", "data": [1, {"a": None}]}, {"type": "text", "text": "é"}]
    message = {"role": "tool", "content": content, "tool_call_id": "c1", "new": 1.5}
    assert _state_of([_line(message)]).history == [message]


@pytest.mark.parametrize(
    ("data", "meaning"),
    [
        (b'{"role":"_checkpoint","id":3}\n', Checkpoint(3)),
        (b'{"role":"_usage","token_count":0}', Usage(0)),
        (b'{"role":"_system_prompt","content":""}', SystemPrompt("")),
        (b'{"role":"user","content":"hi"}', MessageLine(2, {"role": "user", "content": "hi"})),
        (b'{"role":"user","content":5}', MessageLine(0, {"role": "user", "content": 5})),
        (b"", Blank()),
        (b" \t\r\n", Blank()),
    ],
)
def test_a_line_has_one_meaning(data: bytes, meaning: object) -> None:
    assert parse_line(data) == meaning


@pytest.mark.parametrize(
    "record",
    [
        [], 5, "x", None, {}, {"role": 7, "content": ""}, {"role": "_robot", "content": ""},
        {"role": "", "content": ""},
        {"role": "user"}, {"role": "_checkpoint"}, {"role": "_checkpoint", "id": True},
        {"role": "_checkpoint", "id": "0"}, {"role": "_checkpoint", "id": 0.0},
        {"role": "_checkpoint", "id": -1}, {"role": "_checkpoint", "id": limits.COUNT_MAX + 1},
        {"role": "_usage"}, {"role": "_usage", "token_count": None},
        {"role": "_usage", "token_count": -1}, {"role": "_usage", "token_count": 10**40},
        {"role": "_system_prompt"}, {"role": "_system_prompt", "content": ["x"]},
    ],
)  # fmt: skip
def test_a_record_that_readers_cannot_use_is_damaged(record: object) -> None:
    assert isinstance(parse_line(_line(record)), Damaged)


@given(data=st.binary(max_size=60))
def test_no_line_makes_a_reader_fail(data: bytes) -> None:
    parse_line(data)


def test_a_line_too_deep_for_the_reader_is_damaged() -> None:
    assert isinstance(parse_line(b'{"role":"user","content":' + b"[" * 100_000), Damaged)
