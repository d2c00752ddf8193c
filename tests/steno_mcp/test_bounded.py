"""Records that are cut to the size of an answer."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steno_mcp.bounded import around, bounded
from steno_mcp.limits import RECORD_BYTES_MAX, TEXT_CHARS_MAX

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def size_of(record: dict[str, Any]) -> int:
    return len(msgspec.json.encode(record))


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_a_small_record_stays_as_it_is(record: dict[str, Any]) -> None:
    assert bounded(record, size_of(record)) == (record, size_of(record), False)


def test_a_long_text_is_cut_and_says_how_much_is_missing() -> None:
    record = {"role": "user", "content": [{"type": "text", "text": "x" * (TEXT_CHARS_MAX + 777)}]}
    cut, size, is_cut = bounded(record, size_of(record))
    assert is_cut
    assert size == size_of(cut) < size_of(record)
    assert "(777 more characters)" in cut["content"][0]["text"]


def test_of_a_record_that_is_still_too_large_its_role_and_size_are_left() -> None:
    record = {"role": "user", "content": [{"text": "x" * 1000}] * 100}
    size = size_of(record)
    assert size > RECORD_BYTES_MAX
    assert bounded(record, size)[0] == {"role": "user", "omitted_bytes": size}


def test_a_record_of_any_depth_is_bounded() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    assert bounded({"role": 7, "content": value}, 10_000) == (
        {"role": None, "omitted_bytes": 10_000}, 35, True,
    )  # fmt: skip


@given(
    st.text(min_size=1, max_size=400), st.integers(0, 399), st.integers(1, 50), st.integers(20, 60)
)
def test_a_line_is_cut_around_its_match(line: str, start: int, length: int, room: int) -> None:
    start = min(start, len(line) - 1)
    end = min(start + length, len(line))
    shown = around(line, start, end, room)
    assert len(shown) <= max(room, 0) or shown == line
    assert shown.strip("…") in line
    if end - start <= room - 2 and "…" not in line:
        assert line[start:end] in shown
