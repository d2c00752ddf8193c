"""The cut of a conversation before a compaction."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol.context import MessageLine, parse_line
from stenod.core.compaction import Conversation, Cut
from support.lines import line

Record = dict[str, Any]

IDS = ("a", "b")
USAGE: Record = {"role": "_usage", "token_count": 7}
CHECKPOINT: Record = {"role": "_checkpoint", "id": 0}


def said(role: str, text: str = "x") -> Record:
    return {"role": role, "content": text}


def call(*ids: str) -> Record:
    calls = [{"type": "function", "id": each, "function": {"name": "f"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> Record:
    return {"role": "tool", "content": "done", "tool_call_id": call_id}


def notice(number: int = 0) -> Record:
    return said("user", f"<system>CHECKPOINT {number}</system>")


def conversation_of(records: Iterable[Record | bytes]) -> Conversation:
    conversation = Conversation()
    for number, record in enumerate(records):
        data = record if isinstance(record, bytes) else line(record)
        conversation.feed(number, data)
    return conversation


def cut_of(records: Sequence[Record | bytes], preserve: int = 2) -> Cut | None:
    return conversation_of(records).choose(preserve)


# --- kept part -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preserve", [0, -1, -5])
def test_nothing_is_cut_when_nothing_is_to_be_preserved(preserve: int) -> None:
    assert cut_of([said("user"), said("assistant")], preserve) is None


@pytest.mark.parametrize(
    "shown",
    [
        notice(),
        {"role": "user", "content": [{"type": "text", "text": "<system>CHECKPOINT 12</system>"}]},
        said("user", " <system>CHECKPOINT 3</system>\n"),
    ],
)
def test_checkpoint_notices_are_not_counted(shown: Record) -> None:
    records = [said("user"), said("assistant"), said("user"), shown, said("assistant"), shown]

    assert cut_of(records) == Cut(line=2, messages=2)


@pytest.mark.parametrize(
    "counted",
    [
        said("user", "what does <system>CHECKPOINT 0</system> mean?"),
        said("user", "<system>CHECKPOINT x</system>"),
        said("assistant", "<system>CHECKPOINT 0</system>"),
        {
            "role": "user",
            "content": [{"type": "text", "text": "<system>CHECKPOINT 0</system>"}] * 2,
        },
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": None},
    ],
)
def test_message_that_resembles_a_notice_is_counted(counted: Record) -> None:
    assert cut_of([said("user"), counted, said("assistant")]) == Cut(line=1, messages=1)


@pytest.mark.parametrize(
    "data",
    [
        b'{"role":"user"}\n',
        b'{"role":"assistant","tool_calls":[]}\n',
        b'{"role":"user","content":"x","more":"\xff"}\n',
        b'{"role":"user","content":"x","\xff":1}\n',
        b'{"role":"user","content":[{"type":"image","data":"\xff"}]}\n',
        b'{"role":"user","content":"x","more":1e999}\n',
        b'{"role":"_unknown","content":"x"}\n',
        b'{"role":"user","content":5}\n',
        b'{"role":"user","content":null,"tool_calls":5,"tool_call_id":5}\n',
        b'{"role":"user","content":"x","tool_calls":[{"id":null},{}]}\n',
    ],
)
def test_only_lines_that_every_reader_accepts_count_as_messages(data: bytes) -> None:
    is_message = isinstance(parse_line(data), MessageLine)
    records = [line(said("user")), line(said("user")), data, line(said("assistant"))]

    assert list(conversation_of(records).lines) == ([0, 1, 2, 3] if is_message else [0, 1, 3])
    assert cut_of(records) == (Cut(line=2, messages=2) if is_message else Cut(line=1, messages=1))


# --- calls and results ---------------------------------------------------------------------------


def test_an_id_that_is_used_again_belongs_to_the_newest_call() -> None:
    turn = [said("user"), call("a"), result("a"), said("assistant")]

    assert cut_of(turn * 3, 3) == Cut(line=8, messages=8)


def test_a_result_belongs_to_the_newest_call_of_its_id_without_one() -> None:
    records = [said("user"), call("a"), said("user"), call("a"), result("a"), said("user")]

    assert cut_of([*records, result("a"), said("user")]) == Cut(line=1, messages=1)


def test_a_result_that_came_after_the_cut_was_chosen_moves_it() -> None:
    records = [said("user"), call("a"), said("user"), said("assistant")]
    conversation = conversation_of(records)
    chosen = conversation.choose(2)
    assert chosen == Cut(line=2, messages=2)

    assert conversation.whole(2) == 2
    conversation.feed(4, line(result("a")))

    assert conversation.whole(2) == 1


def test_calls_of_a_shape_of_their_own_are_seen() -> None:
    odd = {"role": "assistant", "content": [{"type": 5}], "tool_calls": [{"id": "a"}, 7, {"id": 3}]}
    records = [said("user"), odd, said("user"), result("a"), said("user")]

    assert cut_of(records) == Cut(line=1, messages=1)


RECORDS = st.lists(
    st.one_of(
        st.sampled_from(["user", "assistant", "system"]).map(said),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=3).map(lambda ids: call(*ids)),
        st.sampled_from(IDS).map(result),
        st.just(notice()),
        st.sampled_from([USAGE, CHECKPOINT]),
        st.just(b"not JSON\n"),
    ),
    max_size=24,
)


def calls_in(record: Record | bytes) -> list[str]:
    return [each["id"] for each in record.get("tool_calls", ())] if is_record(record) else []


def is_record(record: Record | bytes) -> bool:
    return not isinstance(record, bytes)


def orphans(records: Sequence[Record | bytes]) -> set[int]:
    """Numbers of the results that come after no call of their id."""
    open_ids, found = set[str](), set[int]()
    for number, record in enumerate(records):
        is_result = is_record(record) and record.get("role") == "tool"
        if is_result and record["tool_call_id"] not in open_ids:
            found.add(number)
        open_ids.update(calls_in(record))
    return found


def is_counted(record: Record | bytes) -> bool:
    is_said = is_record(record) and record["role"] in ("user", "assistant")
    return is_said and not str(record["content"]).startswith("<system>CHECKPOINT")


@given(RECORDS, st.integers(1, 5), st.integers(0, 24))
def test_a_cut_leaves_no_result_without_its_call_whenever_it_is_asked_for(
    records: list[Record | bytes], preserve: int, known: int
) -> None:
    conversation = conversation_of(records[:known])
    chosen = conversation.choose(preserve)
    if chosen is None:
        return
    stays = sum(map(is_counted, records[chosen.line : known]))
    assert stays >= preserve
    for number in range(known, len(records)):
        record = records[number]
        conversation.feed(number, record if isinstance(record, bytes) else line(record))

    cut = conversation.whole(chosen.line)

    assert cut <= chosen.line
    kept = {number + cut for number in orphans(records[cut:])}
    assert kept <= orphans(records), "a result lost its call"
    assert conversation.whole(cut) == cut


@given(st.lists(st.sampled_from(["user", "assistant", "system"]).map(said)), st.integers(1, 5))
def test_without_calls_exactly_as_many_messages_stay_as_were_asked_for(
    records: list[Record], preserve: int
) -> None:
    counted = [number for number, record in enumerate(records) if is_counted(record)]
    first = counted[-preserve] if len(counted) >= preserve else 0

    assert cut_of(records, preserve) == (Cut(first, first) if first else None)


# --- sizes ---------------------------------------------------------------------------------------


def test_only_text_has_characters() -> None:
    parts = [{"type": "think", "think": "hmm"}, {"type": "text", "text": "abc"}, {"type": "image"}]
    records: list[Record | bytes] = [
        said("user", "12345"),
        USAGE,
        {"role": "assistant", "content": parts},
        {"role": "assistant", "content": None},
        {"role": "user", "content": ["odd", {"type": "text", "text": "four"}]},
        json.dumps({"role": "user", "content": "ä€"}).encode() + b"\n",
    ]
    conversation = conversation_of(records)

    assert [conversation.chars_from(number) for number in range(7)] == [14, 9, 9, 6, 6, 2, 0]
