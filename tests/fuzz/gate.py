"""Generated records at the gates of both files: refused, or one good line."""

import json
from typing import Any

from fuzz.mutation import mutated
from fuzz.source import Source
from steno_protocol import limits, records, wire
from steno_protocol.context import ContextState, MessageLine, parse_line
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS, Stamp, is_message_role
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core.compaction import Conversation
from stenod.core.replay import Replay

MESSAGES = (
    b'{"role":"user","content":"hi"}',
    (
        b'{"role":"assistant","content":[{"type":"text","text":"Hello"},{"type":"think","think":"h"}],"'
        b'tool_calls":[{"type":"function","id":"t1","function":{"name":"f","arguments":"{}"}}]}'
    ),
    b'{ "role" : "tool", "content" : null, "tool_call_id" : "t1", "n" : [1, -0.5e-3, 1e20] }',
    b'{"role":"system","content":"\\u2028 \xe2\x80\xa8 \\n \xc2\x85","_id":"other.0/2","_by":"x"}',
    b'{"role":"user","content":[],"deep":{"a":{"b":[[[{"c":1}]]]}},"_at":"0:1"}',
)
EVENTS = (
    b'{"timestamp":1730000000.12,"message":{"type":"TurnBegin","payload":{"user_input":"hi"}}}',
    b'{"timestamp":1,"message":{"type":"TextPart","payload":{"text":"a\\nb"}},"_at":"0:7"}',
    b'{ "message" : {"payload" : {}, "type" : "X"}, "timestamp" : 0, "_id" : "k.1/2" }',
)


def check(data: bytes) -> bool:
    """Pass one generated record through each gate; True if any took it.

    Raises:
        AssertionError: the result is not one good line, or the refusal has no type.
    """
    source = Source(data)
    start = source.pick((*MESSAGES, *EVENTS, b""))
    record = mutated(start, source) if start else source.rest()
    key, by = source.pick(("k", "a-B_9" * 12)), source.pick((None, "planner"))
    taken = [
        _check_message(record, key, by),
        _check_verbatim(record),
        _check_event(record, key, by),
    ]
    return any(taken)


def _check_message(record: bytes, key: str, by: str | None) -> bool:
    try:
        checked = records.check_message(record)
    except (BadRequest, TooLarge):
        return False
    line = records.line(checked.data, records.stamp(key, by))
    found = _good_line(line)
    assert len(line.decode().splitlines()) == 1, f"some tools see several lines: {line!r}"
    assert (found.pop("_id"), found.pop("_by", None)) == (key, by), line
    assert records.stamp_of(line) == Stamp(key, 0, 1), line
    given = json.loads(record)
    assert found == {name: given[name] for name in given if name not in RESERVED_KEYS}, line
    _check_readers(line, checked.text_chars)
    return True


def _check_verbatim(record: bytes) -> bool:
    try:
        checked = records.check_message(record, verbatim=True)
    except (BadRequest, TooLarge):
        return False
    assert checked.data == record
    _good_line(record + b"\n")
    assert records.stamp_of(record + b"\n") is None, "it reads as a line of ours"
    _check_readers(record + b"\n", checked.text_chars)
    return True


def _check_event(record: bytes, key: str, by: str | None) -> bool:
    try:
        checked = wire.check_event(record)
    except (BadRequest, TooLarge):
        return False
    line = records.line(checked, b',"_at":"3:14"' + records.stamp(key, by))
    found = _one_line(line)
    parsed = parse_wire_line(line)
    assert isinstance(parsed, WireRecord), line
    assert parsed.at == found["_at"] == "3:14", line
    assert records.stamp_of(line) == Stamp(key, 0, 1), line
    return True


def _one_line(line: bytes) -> dict[str, Any]:
    """The object that any JSON program reads in a line that ends once, at its end."""
    assert line.endswith(b"\n"), line
    assert not set(b"\n\r\0") & set(line[:-1]), line
    assert len(line) <= limits.RECORD_BYTES_MAX + 1024
    found = json.loads(line.decode("utf-8"))
    assert isinstance(found, dict)
    return found


def _good_line(line: bytes) -> dict[str, Any]:
    found = _one_line(line)
    assert is_message_role(found["role"]), line
    assert found["content"] is None or isinstance(found["content"], (str, list)), line
    return found


def _check_readers(line: bytes, chars: int) -> None:
    """Every reader of ours takes a line for the same message."""
    parsed = parse_line(line)
    assert isinstance(parsed, MessageLine)
    assert parsed.text_chars == chars, line
    replay = Replay()
    replay.feed(line)
    assert (replay.lines, replay.counters.pending_chars) == (1, chars), line
    state = ContextState()
    state.apply_block(line)
    assert (state.head, len(state.history)) == (Position(0, 1), 1), line
    assert state.token_count_with_pending == chars // 4, line
    conversation = Conversation()
    conversation.feed(0, line)
    assert conversation.chars_from(0) == chars, line
