"""A transcript that grows: its place in the file, and the messages that it adds."""

import json
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_agents.claude_code import ClaudeCode
from steno_agents.following import (
    Changed,
    Conversation,
    Cursor,
    Reading,
    agreement,
    lines_of,
    pieces_of,
)
from steno_agents.gemini_cli import GeminiCli
from steno_agents.json_lines import lenient_object
from steno_agents.limits import DAMAGED_NAMED_MAX, RAW_BYTES
from steno_agents.transcript import ForeignTranscript
from steno_protocol.limits import MIB


def node(uuid: str, parent: str | None, kind: str, content: object, **fields: Any) -> bytes:
    message = {"role": kind, "content": content, "id": fields.pop("answer", uuid)}
    record = {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "cwd": "/srv/shop",
        "isSidechain": False, "message": message, **fields,
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


class File:
    """A file that a test writes, with its reader."""

    def __init__(self, kind: type[ForeignTranscript]) -> None:
        self.reading = Reading(kind)
        self.conversation = Conversation()
        self.content = b""

    def grow(self, *lines: bytes, is_settled: bool = False) -> list[Any]:
        """The contents of the messages that lines add."""
        for line in lines:
            self.content += line
            self.reading.feed(line)
        more = self.conversation.more(
            self.reading.transcript, self.record_at, is_settled=is_settled
        )
        return [json.loads(each)["content"] for each in more]

    def record_at(self, place: int) -> dict[str, Any] | None:
        return self.reading.record_at(BytesIO(self.content), place)


def test_a_cursor_is_the_key_of_its_append() -> None:
    reading = Reading(ClaudeCode)
    reading.feed(b'{"type":"x"}\n')
    cursor = reading.cursor(3)
    assert Cursor.of_key(cursor.key) == cursor
    assert cursor.offset == 13
    assert len(cursor.key) <= 64
    assert Cursor.of_key("0199f1c2-5b50-7d9d-8000-5c6d7e8f9011") is None


def test_the_cursor_of_a_part_of_the_next_line_is_that_of_its_bytes() -> None:
    whole, begun = Reading(ClaudeCode), Reading(ClaudeCode)
    whole.feed(b"one\n")
    begun.feed(b"one\n")
    assert begun.cursor(0, b"tw") != whole.cursor(0)
    whole.feed(b"two\n")
    assert begun.cursor(0, b"two\n") == whole.cursor(0)


@given(
    st.lists(
        st.binary(max_size=30) | st.from_regex(rb"\{\"[a-z_]{0,9}\": ?[0-9]\}", fullmatch=True)
    )
)
def test_a_stream_keeps_the_bytes_of_any_lines(lines: list[bytes]) -> None:
    whole = [line.replace(b"\n", b"") + b"\n" for line in lines]
    pieces = [piece for line in whole for piece in pieces_of(line)]
    assert b"".join(lines_of(piece.record for piece in pieces)) == b"".join(whole)
    assert sum(piece.size for piece in pieces) == sum(map(len, whole))
    assert all(json.loads(piece.record).__class__ is dict for piece in pieces)


@pytest.mark.parametrize(
    "line",
    [
        b'{"_id":"x"}\n', b'{"a":1}\r\n', b' {"a":1}\n', b'{"a":NaN}\n', b"\n", b"[1]\n",
        b'{"steno_raw":"eA=="}\n', b'{"a":"\xff"}\n', b'{"a":"\\ud83d"}\n', b"{}\n",
    ],
)  # fmt: skip
def test_a_line_that_no_stream_takes_is_kept_otherwise(line: bytes) -> None:
    assert b"".join(lines_of(piece.record for piece in pieces_of(line))) == line


def test_a_long_line_becomes_pieces_that_go_on_anywhere() -> None:
    line = b"x" * (RAW_BYTES + 5) + b"\n"
    first, second = pieces_of(line)
    assert (first.size, second.size) == (RAW_BYTES, 6)
    rest = list(pieces_of(line[RAW_BYTES:], is_rest=True))
    assert rest == [second]


def test_what_hides_in_a_damaged_line_is_masked() -> None:
    [piece] = pieces_of(b"the password\n", lambda line: line.replace(b"password", b"***"))
    assert b"".join(lines_of([piece.record])) == b"the ***\n"
    assert piece.size == len(b"the password\n")


def test_damage_is_counted_and_its_first_places_are_kept() -> None:
    reading = Reading(ClaudeCode)
    reading.feed(node("1", None, "user", "one"))
    begin = reading.offset
    for _ in range(DAMAGED_NAMED_MAX + 1):
        reading.feed(b"torn\n")
    assert reading.damaged[0] == (begin, 5)
    assert (len(reading.damaged), reading.damaged_count) == (
        DAMAGED_NAMED_MAX, DAMAGED_NAMED_MAX + 1,
    )  # fmt: skip


def test_a_record_that_is_glued_to_a_torn_one_is_read() -> None:
    file = File(ClaudeCode)
    glued = b'{"type":"user","uuid":"torn' + node("1", None, "user", "whole")
    assert file.grow(glued) == ["whole"]


def test_messages_are_added_once_as_the_file_grows() -> None:
    file = File(ClaudeCode)
    assert file.grow(node("1", None, "user", "one")) == ["one"]
    assert file.grow() == []
    assert file.grow(node("2", "1", "assistant", text("two")), node("3", "2", "user", "three")) == [
        "two", "three",
    ]  # fmt: skip
    assert file.grow(is_settled=True) == []


def test_an_answer_waits_until_its_parts_are_there() -> None:
    file = File(ClaudeCode)
    thought = [{"type": "thinking", "thinking": "Look."}]
    file.grow(node("1", None, "user", "one"))
    assert file.grow(node("2", "1", "assistant", thought, answer="a")) == []
    assert file.grow(node("3", "2", "assistant", text("two"), answer="a")) == []
    [answer] = file.grow(is_settled=True)
    assert [part["type"] for part in answer] == ["think", "text"]
    assert file.grow(node("4", "3", "user", "three")) == ["three"]


def test_an_answer_that_was_added_too_early_ends_the_conversation() -> None:
    file = File(ClaudeCode)
    file.grow(node("1", None, "user", "one"))
    assert file.grow(node("2", "1", "assistant", text("two"), answer="a"), is_settled=True)
    # While the answer may grow, nothing is replaced.
    assert file.grow(node("3", "2", "assistant", text("more"), answer="a")) == []
    with pytest.raises(Changed):
        file.grow(is_settled=True)


def test_a_branch_ends_the_conversation() -> None:
    file = File(ClaudeCode)
    file.grow(node("1", None, "user", "one"), node("2", "1", "assistant", text("two")))
    file.grow(node("3", "2", "user", "three"))
    with pytest.raises(Changed):
        file.grow(node("4", "2", "user", "another three"))


def test_a_prompt_of_the_queue_that_comes_later_has_its_words() -> None:
    def queued(operation: str, **fields: str) -> bytes:
        record = {"type": "queue-operation", "operation": operation, "sessionId": "s-1", **fields}
        return json.dumps(record).encode() + b"\n"

    file = File(ClaudeCode)
    assert file.grow(node("1", None, "user", "one")) == ["one"]
    file.grow(queued("enqueue", content="and the lamp"))
    assert file.grow(queued("remove"), is_settled=True) == ["and the lamp"]


def test_all_but_the_last_answer_of_a_file_without_order_is_added() -> None:
    def message(identity: str, kind: str, words: str, **fields: Any) -> bytes:
        record = {
            "id": identity, "timestamp": "2026-01-02T03:04:05Z", "type": kind, "content": words,
            **fields,
        }  # fmt: skip
        return json.dumps(record).encode() + b"\n"

    head = b'{"sessionId":"s","projectHash":"p","startTime":"t"}\n'
    file = File(GeminiCli)
    assert file.grow(head, message("1", "user", "one")) == []
    assert file.grow(message("2", "gemini", "tw")) == ["one"]
    assert file.grow(message("2", "gemini", "two")) == []
    assert file.grow(is_settled=True) == ["two"]
    with pytest.raises(Changed):
        file.grow(message("1", "user", "other words"), is_settled=True)


def is_same(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return record == wanted


@pytest.mark.parametrize(
    ("present", "wanted", "same", "has_more", "missing"),
    [
        ([], [1, 2], 0, False, [1, 2]),
        ([1], [1, 2], 1, False, [2]),
        ([1, 2], [1, 2], 2, False, []),
        ([1, 2, 3], [1], 1, True, []),
        ([1, 2, 3], [1, 4, 5], 1, True, [4, 5]),
        ([3], [1, 2], 0, True, [1, 2]),
        ([1], [], 0, True, []),
    ],
)
def test_a_context_agrees_with_the_wanted_messages_up_to_a_line(
    present: list[int], wanted: list[int], same: int, has_more: bool, missing: list[int]
) -> None:
    lines: Iterator[bytes] = (json.dumps({"n": each}).encode() for each in wanted)
    found = agreement([{"n": each} for each in present], lines, is_same)
    assert (found.same, found.has_more) == (same, has_more)
    assert [json.loads(each)["n"] for each in found.missing] == missing


@pytest.mark.parametrize("wide", ["\U0001f600", "\\ud83d\\ude00"])
def test_a_line_is_left_out_whose_text_takes_more_memory_than_a_line_may(wide: str) -> None:
    """An emoji lets each character of its text take four bytes, and no other text."""
    many = "x" * (9 * MIB)
    beside = f'{{"image": "{many}", "text": "{wide}"}}'
    assert lenient_object(beside.encode()) == {"image": many, "text": "\U0001f600"}
    assert lenient_object(f'{{"text": "\\"{many}{wide}"}}'.encode()) is None
    assert lenient_object(f'{{"text": "\\"{many}\u00e9"}}'.encode()) is not None


@pytest.mark.parametrize("odd", [b'"', b'\\"', b"\\"])
def test_odd_texts_of_a_long_line_take_linear_time(odd: bytes) -> None:
    begun = time.process_time()
    assert lenient_object(b'{"a":"' + odd * (10 * MIB)) is None
    # A look at the rest of the line for each of them takes hours.
    assert time.process_time() - begun < 20
