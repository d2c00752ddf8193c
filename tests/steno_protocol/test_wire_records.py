"""The gate and parser of wire files."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno_protocol import limits, records
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.wire import (
    LEGACY_VERSION,
    TYPE_CHARS_MAX,
    WIRE_VERSION,
    BlankLine,
    DamagedLine,
    Metadata,
    WireRecord,
    check_event,
    metadata_line,
    parse_wire_line,
)
from support.wire_writing import encode_event

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ODD_TEXT = st.text(alphabet='\u0085\u2028\u2029\n\r\0\t\x7f"\\{}[]:,é\U0001f600_at', max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT | ODD_TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
PAYLOADS = st.dictionaries(TEXT | ODD_TEXT, VALUES, max_size=4)
TYPES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=TYPE_CHARS_MAX)
TIMESTAMPS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":"), "ensure_ascii": False},
        {"ensure_ascii": True},
        {"indent": 2, "ensure_ascii": False},
    ]
)


def _event(**changes: Any) -> dict[str, Any]:
    return {
        "timestamp": 1764000000.5,
        "message": {"type": "TurnBegin", "payload": {"user_input": "hi"}},
        **changes,
    }


def _encoded(record: object, **style: Any) -> bytes:
    return json.dumps(record, **style).encode()


def _refusal(record: object) -> str:
    with pytest.raises(BadRequest) as refused:
        check_event(record if isinstance(record, bytes) else _encoded(record))
    return refused.value.message


# --- the gate ------------------------------------------------------------------------------------


@given(event_type=TYPES, payload=PAYLOADS, timestamp=TIMESTAMPS, style=STYLES)
def test_an_event_that_passes_is_one_line_that_reads_as_the_same_event(
    event_type: str, payload: dict[str, Any], timestamp: float, style: dict[str, Any]
) -> None:
    record = _event(timestamp=timestamp, message={"type": event_type, "payload": payload})
    data = check_event(_encoded(record, **style))
    assert json.loads(data) == record
    assert data.decode().splitlines() == [data.decode()]
    assert parse_wire_line(data) == WireRecord(timestamp, event_type, payload)
    assert check_event(data) == data


@given(event_type=TYPES, payload=PAYLOADS, timestamp=TIMESTAMPS)
def test_an_encoded_event_passes_the_gate(
    event_type: str, payload: dict[str, Any], timestamp: float
) -> None:
    data = check_event(encode_event(event_type, payload, timestamp))
    assert parse_wire_line(data) == WireRecord(timestamp, event_type, payload)


@pytest.mark.parametrize("timestamp", [b"1730000000.120", b"1730000000", b"1.73e9", b"-0.0"])
def test_a_timestamp_stays_as_it_was_given(timestamp: bytes) -> None:
    data = b'{"timestamp": %s, "message": {"type":"A","payload":{}}}' % timestamp
    assert b'"timestamp":' + timestamp + b"," in check_event(data)


@given(facts=st.dictionaries(st.sampled_from(records.RESERVED_KEYS), VALUES, min_size=1))
def test_facts_of_another_line_are_taken_out(facts: dict[str, Any]) -> None:
    assert check_event(_encoded({**facts, **_event()})) == check_event(_encoded(_event()))


def test_unknown_keys_are_kept() -> None:
    record = _event(message={"type": "A", "payload": {}, "extra": [1]}, source="sub-agent")
    assert json.loads(check_event(_encoded(record))) == record


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("timestamp", [None, "1730000000", True, [1], {"s": 1}]),
        ("message", [None, "TurnBegin", ["TurnBegin"], 1]),
        ("type", [None, "", 7, "x" * (TYPE_CHARS_MAX + 1)]),
        ("payload", [None, "hi", [], 1]),
    ],
)
def test_an_event_with_an_invalid_part_is_refused(part: str, values: list[object]) -> None:
    message = {"type": "A", "payload": {}}
    for value in values:
        is_within = part in message
        changed = _event(message={**message, part: value}) if is_within else _event(**{part: value})
        assert f'"{part}"' in _refusal(changed)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b'"event"', b"{", b"{}", metadata_line()[:-1], b'{"a":"\xff"}']
)
def test_invalid_event_is_refused(data: bytes) -> None:
    assert _refusal(data)


def test_an_event_that_is_too_large_or_too_deep_is_refused() -> None:
    with pytest.raises(TooLarge):
        check_event(encode_event("A", {"text": "x" * limits.RECORD_BYTES_MAX}, 1.0))
    deep: object = "end"
    for _ in range(limits.RECORD_DEPTH_MAX):
        deep = [deep]
    assert "deep" in _refusal(_event(message={"type": "A", "payload": {"value": deep}}))


# --- the parser ----------------------------------------------------------------------------------


@given(data=st.binary(max_size=200))
@example(data=b"\xff")
@example(data=b"[" * 100_000)
@example(data=b'{"timestamp":1,"message":{"type":"A","payload":{"text":"\xe4\xbd')
def test_no_line_makes_the_parser_raise(data: bytes) -> None:
    assert isinstance(parse_wire_line(data), BlankLine | Metadata | WireRecord | DamagedLine)


@given(
    payload=PAYLOADS,
    cut=st.integers(min_value=1, max_value=1000),
)
def test_an_event_that_is_cut_anywhere_is_damaged_or_blank(
    payload: dict[str, Any], cut: int
) -> None:
    data = check_event(encode_event("TurnBegin", {**payload, "text": "汉字"}, 1.5))
    parsed = parse_wire_line(data[: max(0, len(data) - cut)])
    assert isinstance(parsed, DamagedLine | BlankLine)


@given(value=VALUES)
def test_any_other_json_is_damage_with_a_reason(value: object) -> None:
    parsed = parse_wire_line(_encoded(value))
    assert isinstance(parsed, DamagedLine)
    assert parsed.reason


@pytest.mark.parametrize("data", [b"", b"\n", b"  \t\r\n"])
def test_a_line_of_whitespace_is_blank(data: bytes) -> None:
    assert parse_wire_line(data) == BlankLine()


def test_the_header_of_a_new_file_names_the_present_version() -> None:
    assert metadata_line() == b'{"type":"metadata","protocol_version":"1.10"}\n'
    assert parse_wire_line(metadata_line()) == Metadata(WIRE_VERSION)
    assert parse_wire_line(metadata_line({"protocol_version": LEGACY_VERSION})) == Metadata("1.1")


def test_header_may_have_unknown_keys() -> None:
    line = b'{"type": "metadata", "protocol_version": "1.3", "session_id": "s", "app": {"v": 2}}\n'
    assert parse_wire_line(line) == Metadata("1.3")


@pytest.mark.parametrize("version", [None, 1, ["1.3"], {}])
def test_a_header_without_a_text_as_its_version_is_damage(version: object) -> None:
    line = _encoded({"type": "metadata", "protocol_version": version})
    assert isinstance(parse_wire_line(line), DamagedLine)


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp": None},
        {"timestamp": True},
        {"message": None},
        {"message": {"type": "A"}},
        {"message": {"type": 1, "payload": {}}},
        {"message": {"payload": {}}},
    ],
)
def test_an_event_that_lacks_a_part_is_damage(changes: dict[str, Any]) -> None:
    assert isinstance(parse_wire_line(_encoded(_event(**changes))), DamagedLine)


def test_stamped_event_has_the_position_of_its_context() -> None:
    data = check_event(_encoded(_event()))
    stamp = records.stamp("k1", "planner")
    line = records.line(data, b',"_at":"2:17"' + stamp)
    parsed = parse_wire_line(line)
    assert isinstance(parsed, WireRecord)
    assert parsed.at == "2:17"
    assert records.stamp_of(line) == records.Stamp("k1", 0, 1)


def test_event_with_an_invalid_at_is_read_without_it() -> None:
    parsed = parse_wire_line(_encoded(_event(_at=7)))
    assert isinstance(parsed, WireRecord)
    assert parsed.at is None
