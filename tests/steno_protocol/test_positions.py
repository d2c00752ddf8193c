"""Positions: one text each, ordered as the lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position, new_position

POSITIONS = st.builds(Position, st.integers(0, 10**9 - 1), st.integers(0, 10**15 - 1))


@given(position=POSITIONS)
def test_a_position_written_and_read_is_the_same(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(position=POSITIONS)
def test_a_position_that_is_made_quickly_is_one(position: Position) -> None:
    made = new_position(Position, (position.generation, position.line))
    assert type(made) is Position
    assert (made, made.generation, str(made)) == (position, position.generation, str(position))


@given(text=st.text(alphabet="0123456789:", max_size=30))
def test_a_position_that_can_be_read_is_written_as_it_was(text: str) -> None:
    try:
        position = Position.parse(text)
    except BadRequest:
        return
    assert str(position) == text


@given(one=POSITIONS, other=POSITIONS)
def test_a_larger_generation_is_later_and_then_the_line_decides(
    one: Position, other: Position
) -> None:
    later = one.generation > other.generation or (
        one.generation == other.generation and one.line > other.line
    )
    assert (one > other) == later


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "0", "0:", ":0", "0:0:0", "00:1", "0:01", "-1:0", "0:-1", "+0:1", " 0:1", "0:1 ",
        "0:1\n", "0:1\0", "0.5:1", "0x1:1", "٣:١", "1_0:1", "10000000000:0", "0:9999999999999999",
        "start", "0:" + "9" * 10_000,
    ],
)  # fmt: skip
def test_invalid_position_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        Position.parse(text)
    assert "for example 0:12" in refused.value.message
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("value", [5, None, b"0:1", 0.1, ["0:1"], {"0": 1}], ids=repr)
def test_only_text_is_a_position(value: object) -> None:
    with pytest.raises(BadRequest, match=r"is not a position: .*for example 0:12") as refused:
        Position.parse(value)  # type: ignore[arg-type]
    assert len(refused.value.message) < 200
