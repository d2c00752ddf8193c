"""Messages: round trips, and refusals of malformed ones with advice."""

import tracemalloc
import typing
import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steno_protocol import PROTOCOL_MAGIC, limits
from steno_protocol.commands import (
    COMMANDS,
    AnyCommand,
    Append,
    AppendWire,
    Command,
    Grant,
    Read,
    Stat,
    Status,
    WriteSystemPrompt,
    command_name,
    encode_command,
)
from steno_protocol.errors import (
    REFUSALS,
    BadRequest,
    Conflict,
    ErrorCode,
    Held,
    Incompatible,
    Internal,
    Outcome,
    OutcomeUnknown,
    Refused,
    StenoError,
    TooLarge,
)
from steno_protocol.events import AnyEvent, Records
from steno_protocol.messages import (
    OutgoingRequest,
    Request,
    Unreadable,
    decode_answers,
    decode_requests,
    encode_replies,
    encode_request,
    encode_requests,
)
from steno_protocol.replies import AnyReply, Done, ErrorReply
from support.framing import answer_frames, only_request, request_frames

RECORD = b'{"role":"user","content":"hi"}'
STATUS = '["r1",0,{"command":"status"}]'

TAKE_RECORDS = {"append", "append_wire", "append_stream", "compact_commit"}
SIMPLE_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(codec="utf-8"), max_size=20),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Any: st.none() | st.text(st.characters(codec="utf-8"), max_size=5) | st.integers(0, 9),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field, its pattern and its bounds obeyed."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(arguments[0], arguments[1])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(_values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=3)
    if arguments:
        return st.one_of(*map(_values, arguments))
    if hint is type(None):
        return st.none()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _structs(hint)
    if isinstance(hint, type) and issubclass(hint, (ErrorCode, Outcome)):
        return st.sampled_from([*hint])
    return SIMPLE_TYPES[hint]


def _bounded(hint: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:
    if meta.pattern is not None:
        return st.from_regex(meta.pattern)
    if hint is str:
        text = st.characters(codec="utf-8")
        longest = min(meta.max_length or 20, 20)
        return st.text(text, min_size=meta.min_length or 0, max_size=longest)
    if hint is not int:
        return _values(hint)
    least, most = (typing.cast("int | None", bound) for bound in (meta.ge, meta.le))
    return st.integers(least, most if most is not None else 2**53)


def _structs(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(struct, include_extras=True)
    fields = {name: _values(hints[name]) for name in struct.__struct_fields__}
    return st.fixed_dictionaries(fields).map(lambda values: struct(**values))


def _any_of(union: Any) -> st.SearchStrategy[Any]:
    return st.one_of(*map(_structs, typing.get_args(union)))


def _records_for(command: Command) -> list[bytes]:
    return [RECORD] if command_name(command) in TAKE_RECORDS else []


def _refusal(frames: Sequence[bytes]) -> StenoError:
    with pytest.raises(Refused) as refused:
        only_request(frames)
    return refused.value


def _refusal_of(header: bytes, *records: bytes) -> StenoError:
    return _refusal(request_frames(b"r1", header, *records))


# --- requests ------------------------------------------------------------------------------------


@given(command=_any_of(AnyCommand))
def test_a_command_sent_is_the_command_that_arrives(command: Command) -> None:
    records = _records_for(command)
    request = only_request(encode_request(b"r1", command, records))
    assert (request.id, request.command, list(request.records)) == (b"r1", command, records)


def test_every_command_is_in_the_table_by_its_name() -> None:
    assert {*COMMANDS.values()} == {*typing.get_args(AnyCommand)}
    assert all(command_name(command) == name for name, command in COMMANDS.items())


@pytest.mark.parametrize(
    "frames", [[], [b"STENO/3\n[]"], [b"", b"r1"], [b"steno/2\n[]"], [b"\xff" * 1000]]
)
def test_another_magic_is_incompatible_and_both_are_named(frames: list[bytes]) -> None:
    error = _refusal(frames)
    assert type(error) is Incompatible
    assert error.message.startswith("the message begins with b'")
    assert "instead of the line STENO/2" in error.message


@pytest.mark.parametrize("request_id", [b"", b"i" * 65, b"a b", b"a\\n", b"\0", b"\xff", b"a/b"])
def test_a_request_with_a_bad_id_cannot_be_answered(request_id: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_requests(request_frames(request_id, b'{"command":"status"}'))


def test_a_command_over_its_limit_is_refused() -> None:
    error = _refusal_of(b'{"command":"status","x":"%b"}' % (b"x" * limits.HEADER_BYTES_MAX))
    assert type(error) is TooLarge
    assert f"at most {limits.HEADER_BYTES_MAX}" in error.message
    assert "shorten its longest field" in error.message


def test_a_header_over_the_limit_of_messages_is_refused_before_it_is_read() -> None:
    error = _refusal_of(b'{"command":"status"}' + b" " * limits.MESSAGE_HEADER_BYTES_MAX)
    assert type(error) is TooLarge
    assert "the header of the message has" in error.message


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"nonsense", b"\xff", b"\0", b'{"command":"status"}{}', b'{"command":NaN}',
        b'\xef\xbb\xbf{"command":"status"}', b'{"command":"stat","session":"\xff"}',
        rb'{"command":"stat","session":"\ud800"}', rb'{"command":"stat","session":"\udc00 "}',
    ],
)  # fmt: skip
def test_a_header_that_is_no_json_is_a_bad_request(header: bytes) -> None:
    error = _refusal_of(header)
    assert type(error) is BadRequest
    assert "not JSON in UTF-8" in error.message


@pytest.mark.parametrize(
    "header", [b"{}", b"[]", b"1", b"null", b'"status"', b'{"command":null}', b'{"command":7}']
)
def test_a_header_without_a_command_gets_the_list_of_commands(header: bytes) -> None:
    error = _refusal_of(header)
    assert type(error) is BadRequest
    assert ", ".join(COMMANDS) in error.message


@pytest.mark.parametrize("command", ["", "Append", "explode", "x" * 10_000, "a\nb", "\0"])
def test_an_unknown_command_gets_its_name_and_the_list_of_commands(command: str) -> None:
    error = _refusal_of(msgspec.json.encode({"command": command}))
    assert type(error) is BadRequest
    assert repr(command[:40]) in error.message
    assert ", ".join(COMMANDS) in error.message
    assert len(error.message) < 600


COMMAND_NAMES = pytest.mark.parametrize("name", COMMANDS)


def _smallest(name: str) -> dict[str, Any]:
    """A header of this command that has its required fields only."""
    values = {
        "session": "demo", "key": "k1", "protocol": 1, "checkpoint_id": 0, "token_count": 0,
        "prompt": "", "generation": 0, "subscription": "s1", "bytes": 1, "lease": "k1",
        "cut": "0:1", "at": "0:2", "message": "hi", "mail_id": "m1", "new_session": "other",
        "host": "h1", "sessions": ["s"], "crc": 0, "stream": "notes",
    }  # fmt: skip
    required = [field.name for field in msgspec.structs.fields(COMMANDS[name]) if field.required]
    return {"command": name, **{field: values[field] for field in required}}


@COMMAND_NAMES
def test_an_unknown_field_is_named_with_the_fields_that_there_are(name: str) -> None:
    header = {**_smallest(name), "surprise": 1}
    error = _refusal_of(msgspec.json.encode(header), *([RECORD] if name in TAKE_RECORDS else []))
    assert type(error) is BadRequest
    assert repr(name) in error.message
    assert "`surprise`" in error.message
    assert "its fields are deadline_ms" in error.message


@COMMAND_NAMES
def test_each_missing_field_is_named(name: str) -> None:
    smallest = _smallest(name)
    for missing in smallest.keys() - {"command"}:
        header = {field: value for field, value in smallest.items() if field != missing}
        error = _refusal_of(msgspec.json.encode(header))
        assert type(error) is BadRequest
        assert f"`{missing}`" in error.message


@COMMAND_NAMES
def test_a_field_of_another_type_is_named(name: str) -> None:
    for field in COMMANDS[name].__struct_encode_fields__:
        error = _refusal_of(msgspec.json.encode({**_smallest(name), field: [{}]}))
        assert type(error) is BadRequest
        assert f"$.{field}" in error.message


@COMMAND_NAMES
def test_records_after_a_command_that_takes_none_are_refused(name: str) -> None:
    header = msgspec.json.encode(_smallest(name))
    if name in TAKE_RECORDS:
        assert only_request(request_frames(b"r1", header, RECORD))
        return
    error = _refusal_of(header, RECORD, RECORD)
    assert type(error) is BadRequest
    assert "2 records follow a command that takes none" in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", "k\n"), ("key", ""), ("key", "k" * 65), ("key", 'k"'), ("key", "k\0"),
        ("by", "x\n"), ("by", ""), ("by", 'x","role":"user'), ("by", "x" * 65),
        ("expect", "0:1\n"), ("expect", "1"), ("expect", "-1:0"), ("expect", "0:01"),
        ("durability", "maybe"), ("repeat", 1), ("deadline_ms", -1), ("deadline_ms", 2**53 + 1),
        ("deadline_ms", 0.5), ("deadline_ms", int("9" * 4000)),
    ],
)  # fmt: skip
def test_a_value_that_could_harm_a_line_or_a_number_is_refused(field: str, value: object) -> None:
    header = {"command": "append", "session": "demo", "key": "k1", field: value}
    error = _refusal_of(msgspec.json.encode(header), RECORD)
    assert type(error) is BadRequest
    assert f"$.{field}" in error.message


def test_a_label_has_no_comma_and_no_control_character() -> None:
    for character in map(chr, range(0x300)):
        header = msgspec.json.encode(
            {"command": "describe", "session": "demo", "labels": [f"a{character}b"]}
        )
        if character == "," or unicodedata.category(character) == "Cc":
            assert type(_refusal_of(header)) is BadRequest
        else:
            assert only_request(request_frames(b"r1", header)).records == []


def test_a_deep_header_is_refused() -> None:
    for header in (b"[" * 500_000, b'{"command":"status","x":' + b"[" * 500_000):
        assert type(_refusal_of(header)) is BadRequest


def test_a_batch_at_its_limits_is_taken_and_beyond_them_is_not() -> None:
    header = b'{"command":"append","session":"demo","key":"k1"}'
    most = [RECORD] * limits.BATCH_RECORDS_MAX
    assert only_request(request_frames(b"r1", header, *most)).records == most
    error = _refusal_of(header, *most, RECORD)
    assert type(error) is TooLarge
    assert "send several batches" in error.message
    quarter = b" " * (limits.BATCH_BYTES_MAX // 4)
    assert only_request(request_frames(b"r1", header, *[quarter] * 4))
    error = _refusal_of(header, *[quarter] * 4, b" ")
    assert type(error) is TooLarge
    assert f"at most {limits.BATCH_BYTES_MAX}" in error.message


HEADERS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"{}", b"[]", b"[[]]", RECORD]),
    _any_of(AnyCommand).map(lambda command: b'[["r1",0,%b]]' % encode_command(command)),
    st.dictionaries(
        st.sampled_from(["command", "session", "key", "kind", "id", "after", "bytes"]),
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from([*COMMANDS]),
    ).map(lambda found: b'[["r1",1,%b]]' % msgspec.json.encode(found)),
)


@given(header=HEADERS, more=st.lists(st.binary(max_size=40), max_size=3), magic=st.booleans())
@example(
    header=b'[["r1",1,{"command":"append","session":"a","key":"k"}]]', more=[b"\xff"], magic=True
)
def test_any_frames_raise_only_a_refusal(header: bytes, more: list[bytes], magic: bool) -> None:
    first = b"%b\n%b" % (PROTOCOL_MAGIC, header) if magic else header
    try:
        found = decode_requests([first, *more])
    except Refused as error:
        found = [Unreadable(b"r1", error)]
    for each in found:
        if isinstance(each, Unreadable):
            error = each.error
            assert error.code in {
                ErrorCode.BAD_REQUEST,
                ErrorCode.TOO_LARGE,
                ErrorCode.INCOMPATIBLE,
            }
            assert error.message.isprintable()
            assert decode_answers(answer_frames(b"r1", ErrorReply.of(error)))


SOME_COMMANDS = st.sampled_from(
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


def _message(*entries: str, body: bytes = b"") -> list[bytes]:
    header = b"%b\n[%b]" % (PROTOCOL_MAGIC, ",".join(entries).encode())
    return [header, body] if body else [header]


def refusals_of(frames: list[bytes]) -> dict[bytes, StenoError]:
    return {each.id: each.error for each in decode_requests(frames) if isinstance(each, Unreadable)}


@given(sent=st.lists(st.tuples(IDS, SOME_COMMANDS, RECORDS), max_size=6))
def test_batched_requests_equal_single_ones(
    sent: list[tuple[str, Command, list[bytes]]],
) -> None:
    requests = [
        OutgoingRequest(name.encode(), encode_command(command), records)
        for name, command, records in sent
    ]
    found = decode_requests(encode_requests(requests))
    for got, request in zip(found, requests, strict=True):
        [alone] = decode_requests(encode_requests([request]))
        assert type(got) is type(alone)
        assert got.id == alone.id
        if isinstance(got, Request) and isinstance(alone, Request):
            assert (got.command, list(got.records)) == (alone.command, list(alone.records))
        elif isinstance(got, Unreadable) and isinstance(alone, Unreadable):
            assert (type(got.error), got.error.message) == (type(alone.error), alone.error.message)


def test_a_request_that_is_none_is_refused_and_its_neighbours_are_served() -> None:
    odd = '["r2",1,{"command":"append","session":"demo","key":"no key"}]'
    append = '["r3",1,{"command":"append","session":"demo","key":"k"}]'
    first, refused, second = decode_requests(_message(STATUS, odd, append, body=b"{1}\n{2}\n"))
    assert isinstance(refused, Unreadable)
    assert (refused.id, type(refused.error)) == (b"r2", BadRequest)
    assert "'append' is malformed" in refused.error.message
    assert isinstance(first, Request)
    assert first.records == []
    assert isinstance(second, Request)
    assert second.records == [b"{2}"]


@pytest.mark.parametrize("body", [b"", b"{}", b"{}\n", b"{}\n{}", b"{}\n{}\n{}\n", b"{}\n{}\n{"])
def test_wrong_number_of_lines_refuses_the_whole_message(body: bytes) -> None:
    append = '["r2",2,{"command":"append","session":"demo","key":"k"}]'
    refused = refusals_of(_message(STATUS, append, body=body))
    assert {*refused} == {b"r1", b"r2"}
    assert all("have 2 records" in error.message for error in refused.values())


def test_of_far_too_many_requests_only_the_first_is_answered() -> None:
    entries = ['["r",0,{"command":"status"}]'] * (limits.MESSAGE_REFUSALS_MAX + 1)
    assert len(decode_requests(_message(*entries[1:]))) == limits.MESSAGE_REFUSALS_MAX
    assert len(decode_requests(_message(*entries))) == 1


def test_of_a_message_that_is_no_json_the_first_request_is_answered() -> None:
    [refused] = decode_requests([b'STENO/2\n[["r7",0,{"command":"status"}],["r8"'])
    assert isinstance(refused, Unreadable)
    assert refused.id == b"r7"
    assert "is not JSON in UTF-8 of the form" in refused.error.message


def test_a_batch_of_too_many_records_is_refused_before_they_are_looked_for() -> None:
    count = limits.BATCH_RECORDS_MAX + 1
    append = f'["r1",{count},{{"command":"append","session":"demo","key":"k"}}]'
    refused = refusals_of(_message(append, body=b"{}\n" * count))[b"r1"]
    assert type(refused) is TooLarge
    assert "send several batches" in refused.message


def test_a_third_frame_is_refused() -> None:
    append = '["r1",1,{"command":"append","session":"demo","key":"k"}]'
    refused = refusals_of([*_message(append, body=b"{}\n"), b"{}\n"])[b"r1"]
    assert "the message has 3 frames" in refused.message


@pytest.mark.parametrize("records", [0, 1, limits.BATCH_RECORDS_MAX])
def test_only_as_many_lines_are_read_as_the_requests_announce(records: int) -> None:
    append = f'["r1",{records},{{"command":"append","session":"demo","key":"k"}}]'
    frame = _message(append, body=b"\n" * 2_000_000)
    tracemalloc.start()
    try:
        message = refusals_of(frame)[b"r1"].message
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert f"have {records} records, and its second frame has 2000000 lines that end" in message
    # The rest of the frame is copied twice; its lines would be 8 bytes more each.
    assert most < 6_000_000


@pytest.mark.parametrize(
    "header",
    [
        b"", b"\n", PROTOCOL_MAGIC, b"STENO/3\n[]", b"STENO/2 \n[]", b"STENO/2\n[7]",
        b"STENO/2\n{}", b"STENO/2\n[[]]", b'STENO/2\n[["",0,{"command":"status"}]]',
        b'STENO/2\n[["r 1",0,{"command":"status"}]]',
        b'STENO/2\n[["r1\\n",0,{"command":"status"}]]', b"STENO/2\n[\xff]",
        b"STENO/2\n" + b"[" * 100_000,
        b"STENO/2\n[" + b" " * limits.MESSAGE_HEADER_BYTES_MAX + b"]",
    ],
)  # fmt: skip
def test_a_message_without_a_readable_request_id_cannot_be_answered(header: bytes) -> None:
    with pytest.raises(Refused):
        decode_requests([header])


@pytest.mark.parametrize(
    "entry",
    [
        '["r1",-1,{"command":"status"}]', '["r1",0.5,{"command":"status"}]',
        '["r1",0,{"command":"status"},1]', '["r1",0]', '["r1",9007199254740993,{}]',
    ],
)  # fmt: skip
def test_an_entry_that_is_no_request_is_refused(entry: str) -> None:
    assert type(refusals_of(_message(entry))[b"r1"]) is BadRequest


# --- answers -------------------------------------------------------------------------------------


@given(body=_any_of(AnyReply) | _any_of(AnyEvent), block=st.none() | st.binary(max_size=30))
def test_an_answer_sent_is_the_answer_that_arrives(body: Any, block: bytes | None) -> None:
    [answer] = decode_answers(answer_frames(b"r1", body, block))
    assert (answer.id, answer.body, answer.block) == (b"r1", body, block or b"")


def test_replies_that_share_a_message_are_one_array() -> None:
    error = ErrorReply.of(Conflict("another was faster", head="0:1"))
    [frame] = encode_replies([(b"a", Done()), (b"b", error)])
    magic, _, header = frame.partition(b"\n")
    assert magic == PROTOCOL_MAGIC
    assert [(name, body["kind"]) for name, body in msgspec.json.decode(header)] == [
        ("a", "done"), ("b", "error")
    ]  # fmt: skip


def test_unknown_field_of_a_reply_is_ignored() -> None:
    records = Records(first="0:0", next="0:1")
    for header, body in (
        (b'{"kind":"done","added":{"later":1}}', Done()),
        (b'{"kind":"records","first":"0:0","next":"0:1","added":1}', records),
    ):
        [answer] = decode_answers(_answer(header))
        assert answer.body == body


def _answer(body: bytes, name: bytes = b"r1") -> list[bytes]:
    return [b'%b\n[["%b",%b]]' % (PROTOCOL_MAGIC, name, body)]


@pytest.mark.parametrize(
    "frames",
    [
        [], [PROTOCOL_MAGIC], [b"STENO/3\n[]"], [b"STENO/1", b"r1", b'{"kind":"done"}'],
        [PROTOCOL_MAGIC + b"\n{}"], [PROTOCOL_MAGIC + b"\n[" * 500_000],
        _answer(b""), _answer(b"{}"), _answer(b"\xff"), _answer(b'{"kind":"invented"}'),
        _answer(b'[{"kind":"done"}]'),
        _answer(b'{"kind":"timeline","entries":' + b"[" * 500_000),
        _answer(b'{"kind":"done","added":' + b"[" * 500_000),
        _answer(
            b'{"kind":"timeline","entries":[{"kind":"x","generation":0,"details":{"x":'
            + b"[" * 500_000
        ),
        _answer(b'{"kind":"done"}', rb"\ud800"),
    ],
)  # fmt: skip
def test_unreadable_reply_is_incompatible_with_the_remedy(
    frames: list[bytes],
) -> None:
    with pytest.raises(Incompatible) as refused:
        decode_answers(frames)
    message = refused.value.message
    assert "restart the daemon" in message or "the daemon speaks b'" in message


@given(header=HEADERS, more=st.lists(st.binary(max_size=40), max_size=2), magic=st.booleans())
@example(header='[["r1",{"kind":"\ud7fc"}]]'.encode(), more=[], magic=True)
def test_any_bytes_of_the_daemon_raise_only_incompatible(
    header: bytes, more: list[bytes], magic: bool
) -> None:
    message = ""
    try:
        decode_answers([b"%b\n%b" % (PROTOCOL_MAGIC, header) if magic else header, *more])
    except Incompatible as error:
        message = error.message
    assert message == "" or message.isprintable()


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_arrives_as_the_exception_that_was_raised(code: ErrorCode) -> None:
    raised = REFUSALS[code]("what happened: what to do", session="demo", head="0:3")
    [answer] = decode_answers(answer_frames(b"r1", ErrorReply.of(raised)))
    assert isinstance(answer.body, ErrorReply)
    met = answer.body.exception("k1")
    assert type(met) is type(raised)
    assert (met.code, met.outcome) == (code, Outcome.NOT_APPLIED)
    assert (met.message, met.session, met.head) == (raised.message, "demo", "0:3")


def test_an_unknown_outcome_arrives_with_its_code_and_the_callers_key() -> None:
    raised = OutcomeUnknown("the disk failed", session="demo", code=ErrorCode.STORAGE_FAILED)
    [answer] = decode_answers(answer_frames(b"r1", ErrorReply.of(raised)))
    assert isinstance(answer.body, ErrorReply)
    met = answer.body.exception("k1")
    assert isinstance(met, OutcomeUnknown)
    assert (met.code, met.outcome, met.key) == (ErrorCode.STORAGE_FAILED, Outcome.UNKNOWN, "k1")


def test_held_arrives_with_the_endpoint_of_the_owner() -> None:
    raised = Held("another daemon owns it", session="demo", endpoint="tcp://10.0.0.5:7117")
    [answer] = decode_answers(answer_frames(b"r1", ErrorReply.of(raised)))
    assert isinstance(answer.body, ErrorReply)
    met = answer.body.exception()
    assert isinstance(met, Held)
    assert met.endpoint == "tcp://10.0.0.5:7117"


def test_an_error_without_a_session_gets_that_of_its_command() -> None:
    assert ErrorReply.of(Internal("a fault"), "demo").session == "demo"
    assert ErrorReply.of(Internal("a fault", session="other"), "demo").session == "other"
    assert str(ErrorReply.of(Internal("a fault"), "demo").exception()) == "a fault [session demo]"


def test_an_error_without_a_code_is_internal() -> None:
    assert ErrorReply.of(StenoError("no daemon")).code is ErrorCode.INTERNAL
