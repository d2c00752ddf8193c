"""Bundles: what is sent as lines arrives as if it had come in frames, and one is no other's end."""

import json
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno_protocol import PROTOCOL_MAGIC, limits
from steno_protocol.bundles import can_be_bundled, decode_bundle, encode_bundle
from steno_protocol.commands import (
    Append,
    AppendWire,
    Command,
    Grant,
    Read,
    Stat,
    Status,
    WriteSystemPrompt,
)
from steno_protocol.errors import BadRequest, Refused, StenoError, TooLarge
from steno_protocol.frames import (
    Request,
    Unreadable,
    bundle_answers,
    decode_answers,
    decode_message,
    encode_request,
    encode_together,
)
from steno_protocol.replies import Ack, Done, ErrorReply

RECORD = b'{"role":"user","content":"hi"}'
STATUS = '["r1",0,{"command":"status"}]'

COMMANDS = st.sampled_from(
    [
        Status(),
        Stat(session="demo"),
        Read(session="demo", after="0:1"),
        Append(session="demo", key="k1", by="planner"),
        AppendWire(session="demo", key="k2"),
        Grant(subscription="s1", bytes=7),
        WriteSystemPrompt(session="demo", key="k3", prompt='a\nb"]\u2028'),
    ]
)
RECORDS = st.lists(st.binary(max_size=20).filter(lambda record: b"\n" not in record), max_size=4)
IDS = st.from_regex(r"[A-Za-z0-9_.:-]{1,64}", fullmatch=True)


def bundle(*entries: str, body: bytes = b"") -> bytes:
    return b"%b\n[%b]\n%b" % (PROTOCOL_MAGIC, ",".join(entries).encode(), body)


def requests_of(frame: bytes) -> list[Request]:
    found = decode_bundle(frame)
    requests = [each for each in found if isinstance(each, Request)]
    assert len(requests) == len(found), found
    return requests


def refusals_of(frame: bytes) -> dict[bytes, StenoError]:
    return {each.id: each.error for each in decode_bundle(frame) if isinstance(each, Unreadable)}


@given(sent=st.lists(st.tuples(IDS, COMMANDS, RECORDS), max_size=6))
def test_a_bundle_is_what_its_requests_are_in_frames(
    sent: list[tuple[str, Command, list[bytes]]],
) -> None:
    messages = [encode_request(name.encode(), command, taken) for name, command, taken in sent]
    assert all(map(can_be_bundled, messages))
    for got, message in zip(decode_bundle(encode_bundle(messages)), messages, strict=True):
        alone = decode_message(message)
        assert type(got) is type(alone)
        assert got.id == alone.id
        if isinstance(got, Request) and isinstance(alone, Request):
            assert (got.command, list(got.records)) == (alone.command, list(alone.records))
        elif isinstance(got, Unreadable) and isinstance(alone, Unreadable):
            assert (type(got.error), got.error.message) == (type(alone.error), alone.error.message)


def test_a_record_of_several_lines_cannot_be_bundled() -> None:
    append = Append(session="demo", key="k1")
    assert can_be_bundled(encode_request(b"r1", append, [RECORD, RECORD]))
    assert not can_be_bundled(encode_request(b"r1", append, [RECORD, b"{\n}"]))


def test_a_request_that_is_none_is_refused_and_its_neighbours_are_served() -> None:
    odd = '["r2",1,{"command":"append","session":"demo","key":"no key"}]'
    append = '["r3",1,{"command":"append","session":"demo","key":"k"}]'
    first, refused, second = decode_bundle(bundle(STATUS, odd, append, body=b"{1}\n{2}\n"))
    assert isinstance(refused, Unreadable)
    assert (refused.id, type(refused.error)) == (b"r2", BadRequest)
    assert "'append' is malformed" in refused.error.message
    assert isinstance(first, Request)
    assert first.records == []
    assert isinstance(second, Request)
    assert second.records == [b"{2}"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('["r2",0,{"command":"stat"}]', "malformed"),
        ('["r2",0,{"command":"nonsense"}]', "unknown"),
        ('["r2",0,{}]', 'no "command"'),
        ('["r2",0,7]', 'no "command"'),
        ('["r2",0,{"command":"append","session":"demo","key":"k"}]', "at least one record"),
    ],
)
def test_what_is_wrong_with_a_request_is_said_as_in_frames(entry: str, message: str) -> None:
    [(name, error)] = refusals_of(bundle(STATUS, entry)).items()
    assert name == b"r2"
    assert message in error.message


def test_a_command_that_takes_no_records_is_refused_with_some() -> None:
    [error] = refusals_of(bundle('["r1",2,{"command":"status"}]', body=b"{}\n{}\n")).values()
    assert "2 records follow a command that takes none" in error.message


@pytest.mark.parametrize("body", [b"", b"{}", b"{}\n", b"{}\n{}", b"{}\n{}\n{}\n", b"{}\n{}\n{"])
def test_lines_that_are_not_as_many_as_records_refuse_the_whole_bundle(body: bytes) -> None:
    append = '["r2",2,{"command":"append","session":"demo","key":"k"}]'
    refused = refusals_of(bundle(STATUS, append, body=body))
    assert {*refused} == {b"r1", b"r2"}
    assert all("have 2 records" in error.message for error in refused.values())


@pytest.mark.parametrize("body", [b"{}", b"", b"{}\n{}\n", b"\n{}\n"])
def test_one_record_is_one_line_that_ends(body: bytes) -> None:
    append = '["r1",1,{"command":"append","session":"demo","key":"k"}]'
    assert "have 1 records" in refusals_of(bundle(append, body=body))[b"r1"].message
    assert requests_of(bundle(append, body=b"{}\n"))[0].records == [b"{}"]
    assert requests_of(bundle(append, body=b"\n"))[0].records == [b""]


def test_a_line_that_does_not_end_is_told_from_one_that_is_missing() -> None:
    append = '["r1",1,{"command":"append","session":"demo","key":"k"}]'
    told = refusals_of(bundle(append, body=b"{}"))[b"r1"].message
    assert "have 1 records, and 0 lines that end follow, and one that does not" in told


def test_a_bundle_of_too_many_requests_is_refused_and_one_less_is_not() -> None:
    entries = [f'["r{number}",0,{{"command":"status"}}]' for number in range(257)]
    assert len(requests_of(bundle(*entries[: limits.BUNDLE_REQUESTS_MAX]))) == 256
    refused = refusals_of(bundle(*entries))
    assert len(refused) == 257
    assert {type(error) for error in refused.values()} == {TooLarge}


def test_a_bundle_of_so_many_requests_that_telling_them_takes_long_is_told_nothing() -> None:
    entries = ['["r",0,{"command":"status"}]'] * (limits.BUNDLE_REFUSALS_MAX + 1)
    assert len(decode_bundle(bundle(*entries[1:]))) == limits.BUNDLE_REFUSALS_MAX
    with pytest.raises(BadRequest):
        decode_bundle(bundle(*entries))


@pytest.mark.parametrize("records", [0, 1, limits.BATCH_RECORDS_MAX])
def test_lines_are_not_looked_for_beyond_those_that_the_requests_tell_of(records: int) -> None:
    append = f'["r1",{records},{{"command":"append","session":"demo","key":"k"}}]'
    frame = bundle(append, body=b"\n" * 2_000_000)
    tracemalloc.start()
    try:
        told = refusals_of(frame)[b"r1"].message
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert f"have {records} records, and 2000000 lines that end" in told
    # What is left of the frame is copied twice; its lines would be 8 bytes more each.
    assert most < 6_000_000


def test_a_bundle_without_a_request_asks_for_nothing() -> None:
    assert decode_bundle(bundle()) == []


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"\n", PROTOCOL_MAGIC, b"STENO/2\n[]\n", b"STENO/1 \n[]\n", bundle("7"), bundle("[]"),
        bundle('["r1"]'), bundle('["r1",0]'), bundle('["",0,{"command":"status"}]'),
        bundle('["r 1",0,{"command":"status"}]'), bundle('["r1\\n",0,{"command":"status"}]'),
        bundle('["r1",-1,{"command":"status"}]'), bundle('["r1",0.5,{"command":"status"}]'),
        bundle('["r1",4097,{"command":"status"}]'), bundle('["r1",0,{"command":"status"},1]'),
        b"STENO/1\n{}\n", b"STENO/1\n[" + b"\xff]\n",
        b"STENO/1\n" + b"[" * 100_000 + b"\n",
        b"STENO/1\n[" + b" " * limits.HEADER_BYTES_MAX + b"]\n",
    ],
)  # fmt: skip
def test_nobody_can_be_told_of_a_bundle_without_readable_request_ids(frame: bytes) -> None:
    with pytest.raises(Refused):
        decode_bundle(frame)


@given(frame=st.binary(max_size=60) | st.binary(max_size=60).map(lambda body: bundle(body=body)))
@example(frame=bundle(STATUS, body=b"\xff"))
def test_whatever_a_frame_holds_only_a_refusal_is_raised(frame: bytes) -> None:
    try:
        found = decode_bundle(frame)
    except Refused as error:
        found = [Unreadable(b"", error)]
    for each in found:
        if isinstance(each, Unreadable):
            assert each.error.message.isprintable()


@given(data=st.data())
def test_a_bundle_cut_or_changed_anywhere_is_refused_or_still_one(data: st.DataObject) -> None:
    message = encode_request(b"r1", Append(session="demo", key="k1"), [RECORD, RECORD])
    whole = bytearray(encode_bundle([message, encode_request(b"r2", Status(), ())]))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    for changed in (bytes(whole), bytes(whole[:place])):
        try:
            found = decode_bundle(changed)
        except Refused:
            continue
        assert len(found) == 2


# --- answers -------------------------------------------------------------------------------------


def test_replies_in_a_bundle_are_those_that_travel_together() -> None:
    ack = Ack(first="0:0", last="0:0", head="0:1")
    answers = [(b"r1", ack), (b"r2", Done()), (b"r3", ErrorReply.of(BadRequest("a\nb")))]
    [frame] = bundle_answers(answers)
    assert decode_answers([frame]) == decode_answers(encode_together(answers))
    magic, _, array = frame.partition(b"\n")
    assert magic == PROTOCOL_MAGIC
    assert [each["id"] for each in json.loads(array)] == ["r1", "r2", "r3"]


def test_a_bundle_of_one_reply_and_of_none_is_decoded() -> None:
    assert [answer.id for answer in decode_answers(bundle_answers([(b"r1", Done())]))] == [b"r1"]
    assert decode_answers(bundle_answers([])) == []
