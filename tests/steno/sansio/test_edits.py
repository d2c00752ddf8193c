"""The list that edits make, read from its beginning and from its end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno._sansio.edits import StoredEdit, is_enough, names_item, spans, state_of
from steno_protocol.positions import Position

HEAD = Position(0, 0)
NAMES = st.sampled_from(["a", "b", ""])
FROM_END = st.integers(-5, 1)
UNNAMED = (
    st.just({"item": 0})
    | st.builds(lambda at: {"item": 0, "at": at}, FROM_END)
    | st.builds(lambda at: {"delete": at}, FROM_END)
    | st.just({"clear": True})
    | st.just({"of another program": 1})
)
NAMED = st.builds(lambda name: {"item": 0, "name": name}, NAMES) | st.builds(
    lambda name: {"delete": name}, NAMES
)


def numbered(edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same edits, each with an item of its own."""
    return [
        {**edit, "item": {"n": number}} if "item" in edit else edit
        for number, edit in enumerate(edits)
    ]


def plain(edits: list[dict[str, Any]]) -> list[tuple[str | None, Any]]:
    """The list as a list of Python would have it."""
    items: list[tuple[str | None, Any]] = []
    for edit in edits:
        names = [name for name, _ in items]
        match edit:
            case {"clear": _}:
                items = []
            case {"item": item, "at": at}:
                if at < 0 and -at <= len(items):
                    items[at] = items[at][0], item
            case {"item": item, "name": name} if name in names:
                items[names.index(name)] = name, item
            case {"item": item}:
                items.append((edit.get("name"), item))
            case {"delete": str(name)} if name in names:
                del items[names.index(name)]
            case {"delete": int(at)} if at < 0 and -at <= len(items):
                del items[at]
    return items


def latest_first(edits: list[dict[str, Any]]) -> list[StoredEdit]:
    return [StoredEdit(None, edit) for edit in reversed(edits)]


@given(st.lists(UNNAMED | NAMED, max_size=30).map(numbered))
def test_edits_make_the_list_that_python_makes(edits: list[dict[str, Any]]) -> None:
    state = state_of(latest_first(edits), HEAD, None)
    assert list(zip(state.names, state.items, strict=True)) == plain(edits)


@given(st.lists(UNNAMED, max_size=30).map(numbered), st.integers(0, 6))
def test_the_last_items_follow_from_the_last_edits(edits: list[dict[str, Any]], last: int) -> None:
    latest = latest_first(edits)
    wanted = [item for _, item in plain(edits)][max(0, len(plain(edits)) - last) :]
    enough = next((n for n in range(len(latest) + 1) if is_enough(latest[:n], last)), len(latest))
    assert state_of(latest[:enough], HEAD, last).items == wanted


@given(st.lists(UNNAMED | NAMED, max_size=30).map(numbered), NAMES)
def test_the_item_of_a_name_follows_from_the_last_edits(
    edits: list[dict[str, Any]], name: str
) -> None:
    latest = latest_first(edits)
    enough = next((n for n in range(len(latest) + 1) if names_item(latest[:n], name)), len(latest))
    state = state_of(latest[:enough], HEAD, None)
    found = dict(zip(state.names, state.items, strict=True)).get(name)
    assert found == dict(plain(edits)).get(name)


def test_the_end_of_a_long_list_needs_no_more_than_its_last_edits() -> None:
    latest = latest_first([{"item": {"n": number}} for number in range(100)])
    assert is_enough(latest[:3], 3)
    assert not is_enough(latest[:2], 3)


@pytest.mark.parametrize("line", [0, 1, 64, 65, 5000])
def test_spans_cover_a_stream_once(line: int) -> None:
    found = [*spans(Position(2, line))]
    lines = [n for start, end in found[::-1] for n in range(start.line, end.line)]
    assert lines == [*range(line)]
