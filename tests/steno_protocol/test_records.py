"""The append gate: an accepted record is one good line."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno_protocol import limits, records
from steno_protocol.context import Damaged, MessageLine, parse_line
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.records import (
    KIMI_ROLES,
    RESERVED_KEYS,
    Stamp,
    batch_lines,
    check_message,
    line,
    plain_chars,
    stamp_of,
)
from support.lines import stamps

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
ODD_TEXT = st.text(
    alphabet='\u0085\u2028\u2029\n\r\0\t\x7f\x1c"\\{}[]:,é\U0001f600_id', max_size=20
)
SCALARS = st.none() | st.booleans() | st.integers() | TEXT | ODD_TEXT | st.floats(
    allow_nan=False, allow_infinity=False
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)
PARTS = st.lists(
    st.dictionaries(TEXT, VALUES, max_size=3).flatmap(
        lambda extra: st.sampled_from(["text", "think", "image_url", "invented"]).map(
            lambda kind: {**extra, "type": kind, "text": "some text"}
        )
    ),
    max_size=3,
)
KEYS = TEXT | ODD_TEXT | st.sampled_from(RESERVED_KEYS)
MESSAGES = st.builds(
    lambda extra, role, content, calls: {**extra, "role": role, "content": content, **calls},
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.sampled_from([*sorted(KIMI_ROLES), "developer", "function", "Rôle 1", "a_b"]),
    st.none() | TEXT | ODD_TEXT | PARTS,
    st.sampled_from([{}, {"tool_calls": None}, {"tool_calls": [{"id": "c1", "function": {}}]}]),
)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":"), "ensure_ascii": False},
        {"separators": (",", ":"), "ensure_ascii": True},
        {"ensure_ascii": False},
        {"indent": 2, "ensure_ascii": True},
        {"indent": "\t", "ensure_ascii": False},
    ]
)

CLIENT_KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
NAMES = st.none() | st.from_regex(r"[A-Za-z0-9_.@:/+-]{1,64}", fullmatch=True)


def _without_reserved(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in RESERVED_KEYS}


def _encoded(message: dict[str, Any], style: dict[str, Any]) -> bytes:
    return json.dumps(message, allow_nan=False, **style).encode()


def _refusal(data: bytes, *, verbatim: bool = False) -> BadRequest | TooLarge:
    with pytest.raises((BadRequest, TooLarge)) as refused:
        check_message(data, verbatim=verbatim)
    return refused.value


def _message(**fields: Any) -> bytes:
    return json.dumps({"role": "user", "content": "hi", **fields}).encode()


def _nested(depth: int) -> bytes:
    """A record that is nested exactly so deep."""
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    return b'{"role":"user","content":"hi","x":' + inner + b"}"


# --- accepted ------------------------------------------------------------------------------------


@given(message=MESSAGES, style=STYLES, key=CLIENT_KEYS, by=NAMES)
def test_accepted_record_is_one_compact_line_that_readers_take_for_the_message(
    message: dict[str, Any], style: dict[str, Any], key: str, by: str | None
) -> None:
    checked = check_message(_encoded(message, style))
    text = checked.data.decode()
    assert json.loads(text) == _without_reserved(message)
    assert text.splitlines() == [text]
    assert b"\0" not in checked.data
    # Whitespace may remain in strings only.
    assert len(text) <= len(_encoded(_without_reserved(message), {"separators": (",", ":")}))
    assert check_message(checked.data) == checked
    assert stamp_of(checked.data + b"\n") is None

    written = line(checked.data, stamps(key, 1, by)[0])
    assert written.endswith(b"}\n")
    meaning = parse_line(written)
    assert isinstance(meaning, MessageLine)
    assert meaning.text_chars == checked.text_chars
    expected = {**_without_reserved(message), "_id": key}
    assert meaning.record == ({**expected, "_by": by} if by else expected)
    assert stamp_of(written) == Stamp(key, 0, 1)


@given(data=st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
@example(data=b'{"role":"user","content":"\xff"}')
def test_any_bytes_raise_only_a_refusal(data: bytes) -> None:
    for verbatim in (False, True):
        message = "refused"
        try:
            checked = check_message(data, verbatim=verbatim)
        except (BadRequest, TooLarge) as error:
            message = error.message
        else:
            assert not isinstance(parse_line(checked.data), Damaged)
        assert message.isprintable()
        assert len(message) < 400


@given(batch=st.lists(st.tuples(MESSAGES, STYLES), min_size=1, max_size=2))
def test_messages_that_are_plain_together_are_so_one_by_one(
    batch: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    data = [_encoded(message, style) for message, style in batch]
    checked = [check_message(each) for each in data]
    chars = plain_chars(data)
    if chars is not None:
        assert [each.data for each in checked] == data
        assert chars == sum(each.text_chars for each in checked)


GOOD = b'{"role":"user","content":"hi"}'


@pytest.mark.parametrize(
    "odd",
    [
        GOOD + b"\n" + GOOD, GOOD + GOOD, b"", b"\n", b"{}", b"[]", b"null", b" " + GOOD,
        GOOD + b" ",
        GOOD + b"\n", b'{"role":"user"}', b'{"role":"_usage","content":"hi"}',
        b'{"role":["user"],"content":"hi"}', b'{"role":{},"content":"hi"}',
        b'{"role":"user","content":7}', b'{"role":"user","content":["hi"]}',
        b'{"role":"user","content":"hi","_id":"k"}', b'{"role":"user","content":"hi","_at":1}',
        b'{"role":"user","content":"hi","tool_calls":7}', b'{"role":"user","content":"\xff"}',
        b'{"role":"user","role":"user","content":"hi"}', _nested(limits.RECORD_DEPTH_MAX + 1),
        '{"role":"user","content":"\u2028"}'.encode(),
        b'{"role":"user","content":"\xed\xa0\x80"}',
        b'{"role":"user","content":"hi","n":1.0e5}',
        _message(content="x" * limits.FAST_CHECK_BYTES_MAX),
    ],
)  # fmt: skip
def test_one_record_that_is_not_plain_leaves_all_to_the_gate(odd: bytes) -> None:
    assert plain_chars([GOOD, GOOD]) == 4
    assert plain_chars([GOOD, odd]) is None
    assert plain_chars([odd, GOOD]) is None
    assert plain_chars([odd]) is None
    assert plain_chars([GOOD + b"\n" + GOOD, b""]) is None


@pytest.mark.parametrize(
    "value",
    ["1E+5", "1e5", "-0", "-0.0", "0.10", "1e-400", "0." + "1" * 100, "9" * 400, "-" + "9" * 30],
)
@pytest.mark.parametrize("reserved", ["", ',"_id":"theirs"'])
def test_a_number_stays_as_the_caller_wrote_it(value: str, reserved: str) -> None:
    kept = f'{{"role":"user","content":"hi","n":{value}}}'
    data = kept[:-1] + reserved + "}"
    assert check_message(data.encode()).data == kept.encode()


@pytest.mark.parametrize(
    "written", [r"\/", r"\u00e9", r"\ud83d\ude00", r"\u0000", r"\n", r"\u2028"]
)
def test_an_escape_stays_as_the_caller_wrote_it(written: str) -> None:
    data = f'{{"role":"user","content":"{written}"}}'.encode()
    assert check_message(data).data == data


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029"])
def test_unicode_line_separators_are_escaped(separator: str) -> None:
    data = f'{{"role":"user","content":"a{separator}b","k{separator}":1}}'.encode()
    kept = check_message(data).data
    assert separator.encode() not in kept
    assert json.loads(kept) == json.loads(data)


@pytest.mark.parametrize("before", range(1, 4))
def test_a_separator_at_any_place_of_a_long_record_is_escaped(before: int) -> None:
    head = b'{"role":"user","content":"'
    text = "x" * (limits.MIB - len(head) - before) + "\u2028" + "\u0085"
    data = head + text.encode() + b'"}'
    kept = check_message(data).data
    assert kept.endswith(rb'x\u2028\u0085"}')
    assert json.loads(kept)["content"] == text


@pytest.mark.parametrize("key", RESERVED_KEYS)
@pytest.mark.parametrize("spelling", ["{}", "\\u005f{}"])
def test_reserved_key_is_dropped_in_any_spelling(key: str, spelling: str) -> None:
    name = spelling.format(key if spelling == "{}" else key[1:])
    data = f'{{"{name}":{{"x":[1]}},"role":"user","content":"hi","k":{{"_id":1}}}}'.encode()
    assert check_message(data).data == b'{"role":"user","content":"hi","k":{"_id":1}}'


@pytest.mark.parametrize(
    ("content", "characters"),
    [
        (None, 0), ("", 0), ("hi", 2), ("é\U0001f600", 2), ([], 0),
        ([{"type": "text", "text": "hello"}, {"type": "text", "text": "you"}], 8),
        ([{"type": "think", "think": "hm", "text": "hm"}, {"type": "text"}], 0),
        ([{"type": "text", "text": 5}, {"type": "text", "text": None}, {}], 0),
    ],
)  # fmt: skip
def test_only_text_is_counted(content: object, characters: int) -> None:
    assert check_message(_message(content=content)).text_chars == characters
    assert records.text_chars(content) == characters


@pytest.mark.parametrize("depth", [2, 50, limits.RECORD_DEPTH_MAX])
def test_a_record_as_deep_as_allowed_passes(depth: int) -> None:
    assert check_message(_nested(depth)).data == _nested(depth)


def test_many_brackets_that_are_not_deep_pass() -> None:
    wide = _message(x=[[] for _ in range(1000)], y="[" * 1000)
    assert json.loads(check_message(wide).data) == json.loads(wide)


def test_a_record_of_the_largest_size_passes() -> None:
    data = b'{"role":"user","content":"' + b"x" * (limits.RECORD_BYTES_MAX - 28) + b'"}'
    assert len(check_message(data).data) == limits.RECORD_BYTES_MAX


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verbatim", [False, True])
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b'\xef\xbb\xbf{"role":"user","content":"hi"}', "byte order mark"),
        (b'{"role":"user","content":"hi"', "not JSON"),
        (b'{"role":"user","content":"hi"}}', "not JSON"),
        (b'{"role":"user","content":"hi"}\n{"role":"user","content":"ho"}', "not JSON"),
        (b'{"role":"user","content":"hi"}\0', "not JSON"),
        (b'{"role":"user","content":"a\nb"}', "not JSON"),
        (b'{"role":"user","content":"a\rb"}', "not JSON"),
        (b'{"role":"user","content":"a\0b"}', "not JSON"),
        (b'{"role":"user","content":"a\tb"}', "not JSON"),
        (b'{"role":"user","content":"a","b\n":1}', "not JSON"),
        (b'{"role":"user","content":"\xff"}', "not JSON in UTF-8"),
        (b'{"role":"user","content":"\xc0\x80"}', "not JSON in UTF-8"),
        (b'{"role":"user","content":"\xed\xa0\x80"}', "not JSON in UTF-8"),
        (b'{"role":"user","content":"a","\xff":1}', "not JSON in UTF-8"),
        (rb'{"role":"user","content":"\ud800"}', "not JSON"),
        (rb'{"role":"user","content":"\udc00 and more"}', "not JSON"),
        (rb'{"role":"user","content":"\ud800\u0041 and more"}', "not JSON"),
        (rb'{"role":"user","content":"a","\ud800":1}', "not JSON"),
        (b'\xef\xbb\xbf{"role":"user","content":"a"}', "not JSON"),
        (b'{"role":"user","content":NaN}', "not JSON"),
        (b'{"role":"user","content":"a","x":[Infinity]}', "not JSON"),
        (b'{"role":"user","content":"a","x":-Infinity}', "not JSON"),
        (b'{"role":"user","content":"a","x":1e999}', "out of range"),
        (b'{"role":"user","content":"a","x":' + b"9" * 5000 + b"}", "out of range"),
        (b'{"role":"user","content":"a","x":01}', "not JSON"),
        (b'{"role":"user","content":"a",}', "not JSON"),
        (b"{'role':'user'}", "not JSON"),
        (b"null", "a JSON null, it has to be an object"),
        (b"[]", "a JSON array, it has to be an object"),
        (b'"text"', "a JSON string, it has to be an object"),
        (b"12", "a JSON number, it has to be an object"),
        (b"true", "a JSON boolean, it has to be an object"),
        (b"{}", 'no "role": use system, user, assistant, tool or another name'),
        (b'{"content":"hi"}', 'no "role"'),
        (b'{"role":"user"}', 'no "content": use a string, a list of parts, or null'),
        (b'{"role":"","content":"hi"}', "'' is no text of 1 to 64 bytes"),
        (b'{"role":"%b","content":"hi"}' % (b"r" * 65), "no text of 1 to 64 bytes"),
        (b'{"role":"%b","content":"hi"}' % ("é" * 33).encode(), "no text of 1 to 64 bytes"),
        (rb'{"role":"us\ner","content":"hi"}', "without control characters"),
        (b'{"role":"us\xc2\x85er","content":"hi"}', "without control characters"),
        (rb'{"role":"user\u2028","content":"hi"}', "without control characters"),
        (b'{"role":"user\x7f","content":"hi"}', "without control characters"),
        (b'{"role":null,"content":"hi"}', "no text of"),
        (b'{"role":["user"],"content":"hi"}', "no text of"),
        (b'{"role":{},"content":"hi"}', "no text of"),
        (b'{"role":"_checkpoint","id":0}', "written by its own command"),
        (b'{"role":"_usage","token_count":1}', "written by its own command"),
        (b'{"role":"_system_prompt","content":"x"}', "written by its own command"),
        (b'{"role":"_other","content":"x"}', "begins with an underscore"),
        (b'{"role":"_","content":"x"}', "begins with an underscore"),
        (b'{"role":"user","content":5}', "a JSON number: use a string, a list of parts, or null"),
        (b'{"role":"user","content":true}', "a JSON boolean"),
        (b'{"role":"user","content":{}}', "a JSON object"),
        (b'{"role":"user","content":["a"]}', "a content part is a JSON string: use objects"),
        (b'{"role":"user","content":[null]}', "a content part is a JSON null"),
        (b'{"role":"user","content":[[]]}', "a content part is a JSON array"),
        (b'{"role":"assistant","content":null,"tool_calls":"x"}', "tool_calls has to be a list"),
        (b'{"role":"assistant","content":null,"tool_calls":{}}', "tool_calls has to be a list"),
        (b'{"role":"assistant","content":null,"tool_calls":[1]}', "tool_calls has to be a list"),
        (_nested(limits.RECORD_DEPTH_MAX + 1), "more than 100 deep"),
        (_nested(500), "more than 100 deep"),
        (_nested(100_000), "more than 100 deep"),
        (b'{"role":"user","content":' + b'{"a":' * 100_000, "more than 100 deep"),
    ],
    ids=lambda value: repr(value[:48]) if isinstance(value, bytes) else "",
)
def test_a_bad_record_is_refused_with_its_reason(data: bytes, says: str, verbatim: bool) -> None:
    error = _refusal(data, verbatim=verbatim)
    assert type(error) is BadRequest
    assert says in error.message
    assert len(error.message) < 300


def test_a_record_over_the_limit_is_refused_before_it_is_read() -> None:
    for data in (b"x" * (limits.RECORD_BYTES_MAX + 1), b"[" * (limits.RECORD_BYTES_MAX + 1)):
        error = _refusal(data)
        assert type(error) is TooLarge
        assert f"{limits.RECORD_BYTES_MAX + 1} bytes" in error.message
        assert "split it" in error.message


def test_a_record_that_grows_over_the_limit_when_it_is_escaped_is_refused() -> None:
    separators = "\u2028".encode() * (limits.RECORD_BYTES_MAX // 4)
    error = _refusal(b'{"role":"user","content":"' + separators + b'"}')
    assert type(error) is TooLarge


# --- sessions without stamps ---------------------------------------------------------------------


@given(message=MESSAGES, style=STYLES)
def test_verbatim_keeps_every_byte_or_refuses(
    message: dict[str, Any], style: dict[str, Any]
) -> None:
    data = _encoded(message, style)
    if b"\n" in data:
        assert "spans several lines" in _refusal(data, verbatim=True).message
    else:
        assert check_message(data, verbatim=True).data == data


@pytest.mark.parametrize(
    "data", [b'{"role":"user",\n"content":"hi"}', b'{"role":"user","content":"hi"}\r']
)
def test_verbatim_takes_nothing_that_would_be_two_lines(data: bytes) -> None:
    assert "send it as compact JSON" in _refusal(data, verbatim=True).message
    assert check_message(data).data == b'{"role":"user","content":"hi"}'


# --- stamps --------------------------------------------------------------------------------------


@given(key=CLIENT_KEYS, count=st.integers(1, limits.BATCH_RECORDS_MAX), by=NAMES)
def test_a_stamp_read_is_the_stamp_that_was_written(key: str, count: int, by: str | None) -> None:
    written = [line(b'{"role":"user","content":""}', stamp) for stamp in stamps(key, count, by)]
    assert len(written) == count
    assert [stamp_of(data) for data in written] == [
        Stamp(key, index, count) for index in range(count)
    ]
    assert stamp_of(written[0].removesuffix(b"\n")) == Stamp(key, 0, count)
    assert stamp_of(written[0].removesuffix(b"\n") + b"\r\n") == Stamp(key, 0, count)


@given(
    key=CLIENT_KEYS,
    count=st.integers(2, 5),
    by=NAMES,
    facts=st.sampled_from([b"", b',"_at":"0:1"']),
)
def test_the_lines_of_a_batch_are_those_of_its_records(
    key: str, count: int, by: str | None, facts: bytes
) -> None:
    data = [b'{"role":"user","content":"%d"}' % number for number in range(count)]
    by_one = [
        line(each, facts + mark) for each, mark in zip(data, stamps(key, count, by), strict=True)
    ]
    assert batch_lines(data, facts, key, by) == b"".join(by_one)


def test_the_longest_stamp_is_found_behind_a_long_record() -> None:
    key, by = "k" * limits.KEY_CHARS_MAX, "n" * limits.NAME_CHARS_MAX
    record = b'{"role":"user","content":"' + b"x" * 10_000 + b'"}'
    *_, last = stamps(key, limits.BATCH_RECORDS_MAX, by)
    assert stamp_of(line(record, last)) == Stamp(key, 4095, 4096)


def test_nothing_in_a_message_looks_like_a_stamp() -> None:
    forged = _message(x={"_id": "k1"}, content='"_id":"k1"}', y=[{"_id": "k1.0/2"}])
    assert stamp_of(check_message(forged).data + b"\n") is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"{}", b'{"_id":"k1"', b'{"_id":"k1"}}', b'{"_id":"k 1"}', b'{"_id":"k1.0"}',
        b'{"_id":"k1.0/2","x":1}', b'{"_id":"k1.00000/2"}', b'{"_id": "k1"}', b'{"_id":"k1"}\n\n',
    ],
)  # fmt: skip
def test_a_line_without_our_stamp_at_its_end_has_none(data: bytes) -> None:
    assert stamp_of(data) is None


# --- control records -----------------------------------------------------------------------------


@given(number=st.integers(0, 2**53))
def test_control_records_equal_those_of_kimi_cli(number: int) -> None:
    assert json.loads(records.checkpoint_record(number)) == {"role": "_checkpoint", "id": number}
    assert json.loads(records.usage_record(number)) == {"role": "_usage", "token_count": number}
    notice = check_message(records.checkpoint_notice(number))
    shown = f"<system>CHECKPOINT {number}</system>"
    assert json.loads(notice.data) == {"role": "user", "content": shown}
    assert notice.text_chars == len(shown)
    assert records.is_checkpoint_notice(f" {shown}\n")
    assert not records.is_checkpoint_notice(f"{shown} Go on.")


@given(prompt=TEXT | ODD_TEXT)
def test_a_system_prompt_is_one_line_of_the_same_text(prompt: str) -> None:
    record = records.system_prompt_record(prompt)
    assert json.loads(record) == {"role": "_system_prompt", "content": prompt}
    assert record.decode().splitlines() == [record.decode()]


def test_a_system_prompt_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(BadRequest, match="not valid Unicode"):
        records.system_prompt_record("a\ud800b")


@pytest.mark.parametrize("stamp", ["k1", "k1.0/2", "0199f1c2-5b28-7175-8000-c3d4e5f60718.3/4"])
def test_verbatim_takes_nothing_that_would_be_read_as_a_line_of_ours(stamp: str) -> None:
    data = b'{"role":"user","content":"x","_id":"%b"}' % stamp.encode()
    assert "leave it out" in _refusal(data, verbatim=True).message
    assert check_message(data).data == b'{"role":"user","content":"x"}'


@given(
    data=st.dictionaries(ODD_TEXT, TEXT | ODD_TEXT, max_size=3),
    by=st.none() | st.sampled_from(["laptop", records.claimed("laptop", "planner")]),
    at=st.sampled_from([b"", b',"_at":"0:1"']),
)
@example(data={}, by=None, at=b"")
@example(data={"a": '{"_id":"k1"}'}, by="laptop", at=b"")
@example(data={"a": ',"_by":"x","_id":"y"}'}, by=None, at=b',"_at":"0:1"')
@example(data={"a_id": "b"}, by=None, at=b"")
def test_the_stamp_of_any_record_comes_off_again(
    data: dict[str, str], by: str | None, at: bytes
) -> None:
    record = msgspec.json.encode({key: each for key, each in data.items() if key[:1] != "_"})
    if record == b"{}":
        # The first of the keys has no comma before it.
        stamped = b'{"_id":"k1"}\n'
        assert records.record_and_author(stamped) == (record, None)
        return
    stamped = records.stamped_line(record, at, "k1", by)
    assert records.record_and_author(stamped) == (record, None if by is None else "laptop")
    assert records.record_and_author(record + b"\n") == (record, None)
