"""Damage in a file: findings and repairs."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits
from steno_protocol.damage import DAMAGES, NOTES, Edit, Finding, Scanner, kept_pieces, merged
from steno_protocol.line_schemas import ContextSchema, LineSchema, OtherSchema, schema_of
from support.protocol_document import chapters, code

DIALECTS = {
    "context": lambda: schema_of("context.jsonl", in_session=True),
    "wire": lambda: schema_of("wire.jsonl", in_session=True),
    "timeline": lambda: schema_of("timeline.jsonl", in_session=True),
    "other": OtherSchema,
}


def scan(data: bytes, schema: LineSchema, block: int = 1 << 20) -> tuple[Scanner, list[Finding]]:
    """Everything that is found in a file, fed in blocks of this size."""
    scanner = Scanner(schema)
    found: list[Finding] = []
    for start in range(0, len(data), block):
        found += scanner.feed(data[start : start + block])
    found += scanner.finish()
    return scanner, found


def repaired(data: bytes, schema: LineSchema) -> bytes:
    """The file as a repair leaves it."""
    _, found = scan(data, schema)
    edits = merged(edit for finding in found for edit in finding.edits)
    pieces = kept_pieces(edits, len(data))
    return b"".join(
        piece if isinstance(piece, bytes) else data[piece.start : piece.end] for piece in pieces
    )


def kinds(data: bytes, schema: LineSchema | None = None) -> list[tuple[str, int, int, int]]:
    """Kind, offset, size and line of each finding."""
    _, found = scan(data, schema or ContextSchema())
    return [(each.kind, each.offset, each.size, each.line) for each in found]


def line(value: object) -> bytes:
    """One compact line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


HI = line({"role": "user", "content": "hi"})
YO = line({"role": "assistant", "content": [{"type": "text", "text": "yo"}], "tool_calls": [{}]})

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['{"role":"user","content":"x"}', "{}", '"}', "\\", '{"', "a{b}c", "\x00\n"]
)
parts = st.builds(lambda text: {"type": "text", "text": text}, texts)
messages = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    st.sampled_from(["user", "assistant", "system", "tool"]),
    texts | st.lists(parts, max_size=3),
    st.fixed_dictionaries({}, optional={"tool_calls": st.lists(parts, max_size=2), "n": texts}),
)
lines = st.builds(line, messages)


@given(st.lists(lines, max_size=6), st.integers(1, 40))
def test_a_file_of_whole_records_has_no_finding(records: list[bytes], block: int) -> None:
    data = b"".join(records)
    scanner, found = scan(data, ContextSchema(), block)
    assert found == []
    assert (scanner.records, scanner.lines, scanner.size) == (len(records), len(records), len(data))
    assert repaired(data, ContextSchema()) == data


@given(st.lists(st.tuples(lines, lines, st.floats(0, 0.999)), min_size=1, max_size=4))
def test_record_behind_a_half_record_is_found_whole(
    welds: list[tuple[bytes, bytes, float]],
) -> None:
    broken = [half[: int((len(half) - 1) * share)] + whole for half, whole, share in welds]
    wholes = [whole for _, whole, _ in welds]
    assert repaired(b"".join(broken), ContextSchema()) == b"".join(wholes)


@given(st.lists(lines, min_size=2, max_size=8))
def test_records_that_share_a_line_are_parted(records: list[bytes]) -> None:
    data = b"".join(record[:-1] for record in records) + b"\n"
    (found,) = scan(data, ContextSchema())[1]
    assert (found.kind, found.records, found.remedy) == ("welded", len(records), "split")
    assert repaired(data, ContextSchema()) == b"".join(records)


@given(st.lists(lines, max_size=4), lines, st.floats(0, 0.999))
def test_a_file_cut_at_any_byte_keeps_its_whole_lines(
    records: list[bytes], last: bytes, share: float
) -> None:
    half = last[: int((len(last) - 1) * share)]
    assert repaired(b"".join(records) + half, ContextSchema()) == b"".join(records)


pieces = st.one_of(
    st.binary(max_size=12),
    lines,
    st.builds(lambda data: data[:-1], lines),
    st.sampled_from(
        [b"\n", b"{", b'{"', b'"', b"\0" * 5, b"\xef\xbb\xbf", b"[", b"\r\n", b"1e999"]
    ),
)


@given(st.lists(pieces, max_size=10), st.sampled_from(sorted(DIALECTS)), st.integers(1, 30))
def test_any_bytes_are_lines_or_damage_and_a_repair_leaves_nothing_to_repair(
    parts: list[bytes], name: str, block: int
) -> None:
    data = b"".join(parts)
    scanner, found = scan(data, DIALECTS[name]())
    assert scan(data, DIALECTS[name](), block)[1] == found
    assert {each.kind for each in found} <= DAMAGES | NOTES
    assert all(0 <= each.offset <= len(data) for each in found)
    once = repaired(data, DIALECTS[name]())
    assert not any(each.edits for each in scan(once, DIALECTS[name]())[1])
    assert scan(once, DIALECTS[name]())[0].records == scanner.records


@given(st.lists(lines, min_size=1, max_size=5), st.data())
def test_a_flipped_byte_costs_no_other_record(records: list[bytes], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(records) - 1))
    at = data.draw(st.integers(0, len(records[number]) - 2))
    broken = bytearray(records[number])
    broken[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != 0x0A))
    rest = [record for other, record in enumerate(records) if other != number]
    file = b"".join([*records[:number], bytes(broken), *records[number + 1 :]])
    left = iter(repaired(file, ContextSchema()).splitlines(keepends=True))
    assert all(record in left for record in rest)  # in order: each one is looked for further on


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (HI + b"garbage\n" + HI, ("not_json", 31, 8, 2)),
        (HI + b'{"role":"us', ("torn", 31, 11, 2)),
        (HI + b"\0\0\0\0\n" + HI, ("nul", 31, 5, 2)),
        (HI + b"\0\0\0\0" + HI, ("nul", 31, 35, 2)),
        (HI + b'{"role":"us' + YO, ("welded", 31, 11 + len(YO), 2)),
        (HI + b'{"a":"\xff\xfe"}\n' + HI, ("bad_utf8", 31, 11, 2)),
        (b"\xef\xbb\xbf" + HI, ("bom", 0, 3, 1)),
        (HI + b"[1,2]\n", ("not_object", 31, 6, 2)),
        (HI + b'{"role":"_boss","content":1}\n', ("unknown_record", 31, 29, 2)),
        (HI + HI[:-1], ("unended", 61, 0, 2)),
        (HI + HI[:-1] + b"\r\n", ("crlf", 0, 0, 0)),
        (HI + b'{"role":"user","content":"\\ud800"}\n', ("odd_value", 31, 35, 2)),
        # Python 3.11 gives up a thousand deep, 3.13 ten thousand, 3.14 at the end of its stack.
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"\n", ("too_deep", 0, 1_200_002, 1)),
        (
            b'{"role":"_checkpoint","id":1}\n{"role":"_checkpoint","id":1}\n',
            ("checkpoint_order", 30, 30, 2),
        ),
        (
            b'{"role":"user","content":"a","_id":"k.0/2"}\n' + HI,
            ("torn_batch", 0, 44, 1),
        ),
        (
            HI + b'{"role":"user","content":"a","_id":"k.0/2"}\n',
            ("torn_batch", 31, 44, 2),
        ),
        (
            b'{"role":"user","content":"a","_id":"k"}\n' * 2,
            ("duplicate", 40, 40, 2),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_kind_of_damage_is_reported_with_its_place(
    data: bytes, expected: tuple[str, int, int, int]
) -> None:
    assert kinds(data) == [expected]


def test_the_token_count_of_a_compaction_has_the_key_of_its_batch() -> None:
    begin = (
        b'{"role":"_checkpoint","id":1,"_id":"k.0/2"}\n{"role":"user","content":"","_id":"k.1/2"}\n'
    )
    count = b'{"role":"_usage","token_count":5,"_id":"k"}\n'
    assert kinds(begin + HI + count) == []
    assert [kind for kind, *_ in kinds(count + HI + count)] == ["duplicate"]


def test_falling_positions_and_a_second_header_of_wire_events_are_reported() -> None:
    header = b'{"type":"metadata","protocol_version":"1.10"}\n'
    event = b'{"timestamp":1,"message":{"type":"A","payload":{}},"_at":"%b"}\n'
    data = header + event % b"0:4" + event % b"0:3" + header + event % b"0:4"
    found = scan(data, schema_of("wire.jsonl", in_session=True))[1]
    assert [(each.kind, each.line) for each in found] == [("at_order", 3), ("second_header", 4)]


def test_wire_events_with_falling_times_are_noted_without_damage() -> None:
    header = b'{"type":"metadata","protocol_version":"1.10"}\n'
    event = b'{"timestamp":%b,"message":{"type":"A","payload":{}}}\n'
    times = (b"5", b"5.0", b"7.5", b"6", b"6.5", b"8", b"7.0")
    data = header + b"".join(event % each for each in times)
    (found,) = scan(data, schema_of("wire.jsonl", in_session=True))[1]
    assert (found.kind, found.is_damage, found.line) == ("time_order", False, 5)
    assert data[found.offset : found.offset + found.size] == event % b"6"
    assert found.what == "the timestamp falls from 7.5 to 6"


def test_object_inside_a_half_record_is_no_record_of_a_foreign_transcript() -> None:
    whole = line({"uuid": "1", "type": "user", "parts": [{"type": "text", "text": "a"}]})
    half = b'{"uuid":"2","type":"user","parts":[{"type":"text","text":"a"}'
    assert repaired(whole + half + b"\n" + whole, OtherSchema()) == whole + whole
    assert repaired(whole + half, OtherSchema()) == whole
    assert repaired(whole + half + whole, OtherSchema()) == whole + whole


def test_object_behind_the_damage_of_its_own_record_is_no_record() -> None:
    whole = line({"type": "a", "x": 1})
    broken = b'{"type":"a","x":"\x01","parts":[{"type":"a","x":1}],"y":2}\n'
    assert repaired(whole + broken + whole, OtherSchema()) == whole + whole


def test_a_transcript_may_hold_other_values_than_objects() -> None:
    _, found = scan(b'[1]\n"text"\n{"a":1}\n', OtherSchema())
    assert [(each.kind, each.is_damage, each.edits) for each in found] == [
        ("plain_value", False, ()),
        ("plain_value", False, ()),
    ]


def test_a_line_that_is_too_long_is_passed_over_in_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LINE_CHECKED_BYTES_MAX", 1000)
    data = HI + b"{" * 5000 + b"\n" + HI
    scanner = Scanner(ContextSchema())
    found = [each for start in range(0, len(data), 7) for each in scanner.feed(data[start:][:7])]
    assert [(each.kind, each.offset, each.size, each.edits) for each in found] == [
        ("oversized", 31, 5001, ())
    ]
    assert scanner.records == 2


@pytest.mark.parametrize(
    "piece",
    [b"{", b"[", b'{"', b'{"a":', b'{"a":[', b'"', b'{"a":{"b":1},"c":', b"\0", b'{"x', b"\\"],
    ids=repr,
)
def test_a_hostile_line_takes_time_in_proportion_to_its_length(piece: bytes) -> None:
    size = 1 << 18
    data = piece * (size // len(piece)) + b"\n"
    began = time.process_time()
    scan(data, OtherSchema())
    # A quadratic look at so much takes minutes; this bound only has to be far below that.
    assert time.process_time() - began < 30


def test_edits_that_meet_become_one() -> None:
    edits = [Edit(10, 5), Edit(0, 4), Edit(4, 6), Edit(20, 0, b"\n"), Edit(15, 0, b"\n")]
    assert merged(edits) == [Edit(0, 15), Edit(20, 0, b"\n")]
    assert list(kept_pieces(merged(edits), 30)) == [(15, 20), b"\n", (20, 30)]


@pytest.mark.parametrize(("title", "kinds"), [("damage", DAMAGES), ("note", NOTES)])
def test_the_protocol_lists_every_kind_of_finding(title: str, kinds: frozenset[str]) -> None:
    rows = chapters()["Files"].sections["What a check finds"].table(title)
    documented = [code(row[title]) for row in rows]
    assert sorted(documented) == sorted(kinds)
