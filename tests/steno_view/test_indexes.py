"""The outline of a session, the index of its events, and the comparison of two states."""

import json
from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.values import WireRecord
from steno_protocol.positions import Position
from steno_view.compare import differences
from steno_view.limits import DIFF_LINES_MAX
from steno_view.outline import Outline
from steno_view.turns import EventIndex

LINES = [
    b'{"role":"_checkpoint","id":0}\n',
    b'{"role":"user","content":"the word _usage is in me"}\n',
    b'{"role": "_usage", "token_count": 70}\n',
    b'{"role":"_checkpoint","id":1}\n',
    b"\n",
    b'{"role":"_usage","token_count":"many"}\n',
]


def marks(outline: Outline) -> list[tuple[int, int]]:
    return [(mark.line, mark.value) for mark in outline.marks]


@pytest.mark.parametrize("cut", range(len(LINES) + 1))
def test_an_outline_is_the_same_in_any_pieces(cut: int) -> None:
    outline = Outline()
    outline.apply(0, LINES[:cut])
    outline.apply(cut, LINES[cut:])
    assert (marks(outline), outline.end) == ([(0, 0), (2, 70), (3, 1)], 6)


def test_a_cut_outline_gives_the_rest_away() -> None:
    outline = Outline()
    outline.apply(0, LINES)
    rest = outline.cut(2)
    assert (marks(outline), outline.end) == ([(0, 0)], 2)
    assert (marks(rest), rest.end) == ([(2, 70), (3, 1)], 6)
    outline.apply(2, [b'{"role":"_usage","token_count":5}\n'])
    assert (marks(outline), outline.end) == ([(0, 0), (2, 5)], 3)


def event(line: int, kind: str, payload: dict[str, object], timestamp: float) -> WireRecord:
    return WireRecord(Position(0, line), timestamp, kind, payload, None, b"")


EVENTS = [
    event(1, "TurnBegin", {"user_input": "x"}, 10.0),
    event(2, "ToolCall", {"id": "c", "function": {"name": "Shell"}}, 11.0),
    event(3, "ApprovalRequest", {}, 11.5),
    event(4, "ToolResult", {"tool_call_id": "c", "return_value": {"is_error": True}}, 13.25),
    event(5, "StepRetry", {}, 14.0),
    event(6, "StatusUpdate", {"context_tokens": 900}, 15.0),
]


def test_events_have_durations_names_and_marks() -> None:
    index = EventIndex()
    for each in EVENTS:
        index.add(each)
    found = json.loads(json.dumps(index.document()))
    assert found["end"] == 7
    assert found["events"] == [
        [1, 0, 10.0, None, "", "turn", None],
        [2, 1, 11.0, 2.25, "Shell", "", None],
        [3, 2, 11.5, None, "", "approval", None],
        [4, 3, 13.25, 2.25, "Shell", "trouble", None],
        [5, 4, 14.0, None, "", "trouble", None],
        [6, 5, 15.0, None, "", "", 900],
    ]


def test_a_cut_index_forgets_the_calls_that_are_gone() -> None:
    index = EventIndex()
    for each in EVENTS[:2]:
        index.add(each)
    index.cut(2)
    index.add(EVENTS[3])
    assert [each[0] for each in index.document()["events"]] == [1, 4]
    assert index.document()["events"][1][3] is None


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12),
       st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12))  # fmt: skip
def test_a_comparison_covers_both_states_once(left: list[bytes], right: list[bytes]) -> None:
    parts = differences(left, right)
    for side, lines in (("left", left), ("right", right)):
        spans = list(starmap(range, (part[side] for part in parts)))
        assert [line for span in spans for line in span] == list(range(len(lines)))
    for part in parts:
        if part["same"]:
            assert left[slice(*part["left"])] == right[slice(*part["right"])]


def test_very_long_differences_are_one_part() -> None:
    left = [b"x", *(b"%d" % number for number in range(DIFF_LINES_MAX + 1)), b"y"]
    assert differences(left, [b"x", b"other", b"y"]) == [
        {"same": True, "left": [0, 1], "right": [0, 1]},
        {"same": False, "left": [1, len(left) - 1], "right": [1, 2]},
        {"same": True, "left": [len(left) - 1, len(left)], "right": [2, 3]},
    ]
