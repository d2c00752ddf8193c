"""Frames: what is sent arrives, and what is malformed is refused by name and with advice."""

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
    Command,
    Status,
    Subscribe,
    command_name,
    encode_command,
)
from steno_protocol.errors import (
    REFUSALS,
    BadRequest,
    Conflict,
    ErrorCode,
    Incompatible,
    Internal,
    Outcome,
    OutcomeUnknown,
    Refused,
    StenoError,
    TooLarge,
)
from steno_protocol.events import AnyEvent, Records
from steno_protocol.frames import (
    decode_answers,
    decode_request,
    encode_answer,
    encode_request,
    encode_together,
    request_id_of,
)
from steno_protocol.replies import AnyReply, Done, ErrorReply, Lines, Reply

RECORD = b'{"role":"user","content":"hi"}'

TAKE_RECORDS = {"append", "append_wire", "compact_commit"}
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
        decode_request(frames)
    return refused.value


def _refusal_of(header: bytes, *records: bytes) -> StenoError:
    return _refusal([PROTOCOL_MAGIC, b"r1", header, *records])


# --- requests ------------------------------------------------------------------------------------


@given(command=_any_of(AnyCommand))
def test_a_command_sent_is_the_command_that_arrives(command: Command) -> None:
    records = _records_for(command)
    request = decode_request(encode_request(b"r1", command, records))
    assert (request.id, request.command, list(request.records)) == (b"r1", command, records)


def test_every_command_is_in_the_table_by_its_name() -> None:
    assert {*COMMANDS.values()} == {*typing.get_args(AnyCommand)}
    assert all(command_name(command) == name for name, command in COMMANDS.items())


def test_a_header_has_no_field_that_has_its_default() -> None:
    header = encode_command(Append(session="demo", key="k1"))
    assert header == b'{"command":"append","session":"demo","key":"k1"}'


@given(count=st.integers(1, 50))
def test_the_records_of_an_append_arrive_in_their_order(count: int) -> None:
    records = [RECORD + b" " * index for index in range(count)]
    request = decode_request(encode_request(b"r1", Append(session="demo", key="k1"), records))
    assert list(request.records) == records


@pytest.mark.parametrize(
    "frames", [[], [b"STENO/2", b"r1", b"{}"], [b"", b"r1", b"{}"], [b"steno/1"], [b"\xff" * 1000]]
)
def test_another_magic_is_incompatible_and_both_are_named(frames: list[bytes]) -> None:
    error = _refusal(frames)
    assert type(error) is Incompatible
    assert "this daemon speaks b'STENO/1'" in error.message
    assert request_id_of(frames) is None


@pytest.mark.parametrize("frames", [[PROTOCOL_MAGIC], [PROTOCOL_MAGIC, b"r1"]])
def test_too_few_frames_are_refused_with_the_expected_ones(frames: list[bytes]) -> None:
    error = _refusal(frames)
    assert type(error) is BadRequest
    assert "a request id, a header, then the records" in error.message
    assert request_id_of(frames) is None


@pytest.mark.parametrize("request_id", [b"", b"i" * 65, b"a b", b"a\n", b"\0", b"\xff", b"a/b"])
def test_a_bad_request_id_is_refused_and_cannot_be_answered(request_id: bytes) -> None:
    frames = [PROTOCOL_MAGIC, request_id, b'{"command":"status"}']
    error = _refusal(frames)
    assert type(error) is BadRequest
    assert "1 to 64" in error.message
    assert request_id_of(frames) is None


@pytest.mark.parametrize("request_id", [b"1", b"i" * 64, b"a_b.c:d-e"])
def test_a_request_id_is_sent_back_as_it_came(request_id: bytes) -> None:
    frames = encode_request(request_id, Status(), [])
    assert decode_request(frames).id == request_id_of(frames) == request_id


def test_a_header_over_its_limit_is_refused_before_it_is_read() -> None:
    filling = b" " * (limits.HEADER_BYTES_MAX - len(b'{"command":"status"}'))
    assert decode_request([PROTOCOL_MAGIC, b"r1", b'{"command":"status"}' + filling])
    error = _refusal_of(b'{"command":"status"}' + filling + b" ")
    assert type(error) is TooLarge
    assert f"at most {limits.HEADER_BYTES_MAX}" in error.message
    assert "shorten its longest field" in error.message


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
    assert len(error.message) < 500


COMMAND_NAMES = pytest.mark.parametrize("name", COMMANDS)


def _smallest(name: str) -> dict[str, Any]:
    """A header of this command that has its required fields only."""
    values = {
        "session": "demo", "key": "k1", "protocol": 1, "checkpoint_id": 0, "token_count": 0,
        "prompt": "", "generation": 0, "subscription": "s1", "bytes": 1, "lease": "k1",
        "cut": "0:1", "at": "0:2", "message": "hi", "mail_id": "m1", "new_session": "other",
        "crc": 0,
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
        assert decode_request([PROTOCOL_MAGIC, b"r1", header, RECORD])
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
            assert decode_request([PROTOCOL_MAGIC, b"r1", header]).records == []


def test_a_long_field_name_does_not_make_a_long_message() -> None:
    error = _refusal_of(msgspec.json.encode({**_smallest("append"), "x" * 100_000: 1}))
    assert len(error.message) < 1000


def test_a_deep_header_is_refused() -> None:
    for header in (b"[" * 500_000, b'{"command":"status","x":' + b"[" * 500_000):
        assert type(_refusal_of(header)) is BadRequest


def test_an_append_without_a_record_is_refused() -> None:
    error = _refusal_of(b'{"command":"append","session":"demo","key":"k1"}')
    assert type(error) is BadRequest
    assert "at least one record" in error.message


def test_a_batch_at_its_limits_is_taken_and_beyond_them_is_not() -> None:
    header = b'{"command":"append","session":"demo","key":"k1"}'
    most = [RECORD] * limits.BATCH_RECORDS_MAX
    assert decode_request([PROTOCOL_MAGIC, b"r1", header, *most]).records == most
    error = _refusal_of(header, *most, RECORD)
    assert type(error) is TooLarge
    assert "send several batches" in error.message
    quarter = b" " * (limits.BATCH_BYTES_MAX // 4)
    assert decode_request([PROTOCOL_MAGIC, b"r1", header, *[quarter] * 4])
    error = _refusal_of(header, *[quarter] * 4, b" ")
    assert type(error) is TooLarge
    assert f"at most {limits.BATCH_BYTES_MAX}" in error.message


FRAMES = st.one_of(
    st.binary(max_size=40),
    st.just(PROTOCOL_MAGIC),
    st.sampled_from([b"r1", b"", b"{}", b"[]", RECORD]),
    _any_of(AnyCommand).map(encode_command),
    st.dictionaries(
        st.sampled_from(["command", "session", "key", "kind", "id", "after", "bytes"]),
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from([*COMMANDS]),
    ).map(msgspec.json.encode),
)  # fmt: skip


@given(frames=st.lists(FRAMES, max_size=6), magic=st.booleans())
@example(frames=[b"r1", b'{"command":"append","session":"a","key":"k"}', b"\xff"], magic=True)
def test_whatever_the_frames_are_only_a_refusal_is_raised(frames: list[bytes], magic: bool) -> None:
    frames = [PROTOCOL_MAGIC, *frames] if magic else frames
    refused = None
    try:
        request = decode_request(frames)
    except Refused as error:
        refused = error
    else:
        assert request.id == request_id_of(frames)
    if refused is not None:
        assert refused.code in {ErrorCode.BAD_REQUEST, ErrorCode.TOO_LARGE, ErrorCode.INCOMPATIBLE}
        assert refused.message.isprintable()
        assert decode_answers(encode_answer(b"r1", ErrorReply.of(refused)))


# --- answers -------------------------------------------------------------------------------------


@given(body=_any_of(AnyReply) | _any_of(AnyEvent), block=st.none() | st.binary(max_size=30))
def test_an_answer_sent_is_the_answer_that_arrives(body: Any, block: bytes | None) -> None:
    [answer] = decode_answers(encode_answer(b"r1", body, block))
    assert (answer.id, answer.body, answer.block) == (b"r1", body, block or b"")


@given(bodies=st.lists(_any_of(AnyReply), min_size=1, max_size=5))
def test_several_replies_arrive_with_their_ids(bodies: list[Reply]) -> None:
    bodies = [msgspec.structs.replace(body, id=None) for body in bodies]
    ids = [f"r{index}".encode() for index in range(len(bodies))]
    answers = decode_answers(encode_together(list(zip(ids, bodies, strict=True))))
    assert [answer.id for answer in answers] == ids
    assert [msgspec.structs.replace(answer.body, id=None) for answer in answers] == bodies


def test_replies_that_share_a_message_are_one_array_of_objects() -> None:
    error = ErrorReply.of(Conflict("another was faster", head="0:1"))
    magic, request_id, header = encode_together([(b"a", Done()), (b"b", error)])
    assert (magic, request_id) == (PROTOCOL_MAGIC, b"")
    assert [(body["id"], body["kind"]) for body in msgspec.json.decode(header)] == [
        ("a", "done"), ("b", "error")
    ]  # fmt: skip


def test_a_field_that_an_answer_has_and_the_client_does_not_know_is_passed_over() -> None:
    records = Records(first="0:0", next="0:1")
    for header, body in (
        (b'{"kind":"done","added":{"later":1}}', Done()),
        (b'{"kind":"records","first":"0:0","next":"0:1","added":1}', records),
    ):
        [answer] = decode_answers([PROTOCOL_MAGIC, b"r1", header])
        assert answer.body == body


def test_a_field_that_a_command_has_and_the_daemon_does_not_know_is_refused() -> None:
    assert type(_refusal_of(b'{"command":"status","added":1}')) is BadRequest


@pytest.mark.parametrize(
    "frames",
    [
        [], [PROTOCOL_MAGIC], [PROTOCOL_MAGIC, b"r1"], [b"STENO/2", b"r1", b'{"kind":"done"}'],
        [PROTOCOL_MAGIC, b"r1", b""], [PROTOCOL_MAGIC, b"r1", b"{}"],
        [PROTOCOL_MAGIC, b"r1", b"\xff"],
        [PROTOCOL_MAGIC, b"r1", b'{"kind":"invented"}'], [PROTOCOL_MAGIC, b"", b'{"kind":"done"}'],
        [PROTOCOL_MAGIC, b"r1", b'[{"kind":"done"}]'], [PROTOCOL_MAGIC, b"", b"[" * 500_000],
        [PROTOCOL_MAGIC, b"r1", b'{"kind":"timeline","entries":' + b"[" * 500_000],
        [PROTOCOL_MAGIC, b"r1", b'{"kind":"done","added":' + b"[" * 500_000],
        [
            PROTOCOL_MAGIC, b"r1",
            b'{"kind":"timeline","entries":[{"kind":"x","generation":0,"details":{"x":'
            + b"[" * 500_000,
        ],
        [PROTOCOL_MAGIC, b"", rb'[{"kind":"done","id":"\ud800"}]'],
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_incompatible_and_says_what_to_do(
    frames: list[bytes],
) -> None:
    with pytest.raises(Incompatible) as refused:
        decode_answers(frames)
    message = refused.value.message
    assert "restart it" in message or "the daemon speaks b'STENO/2'" in message


@given(frames=st.lists(FRAMES, max_size=5), magic=st.booleans())
@example(frames=[b"r1", '{"kind":"\ud7fc"}'.encode()], magic=True)
def test_whatever_the_daemon_sends_only_incompatible_is_raised(
    frames: list[bytes], magic: bool
) -> None:
    message = ""
    try:
        decode_answers([PROTOCOL_MAGIC, *frames] if magic else frames)
    except Incompatible as error:
        message = error.message
    assert message == "" or message.isprintable()


def test_a_block_may_hold_any_bytes() -> None:
    block = bytes(range(256)) * 10
    body = Lines(first="0:0", next="0:1", head="0:1", offset=9)
    assert decode_answers(encode_answer(b"r1", body, block))[0].block == block


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_arrives_as_the_exception_that_was_raised(code: ErrorCode) -> None:
    raised = REFUSALS[code]("what happened: what to do", session="demo", head="0:3")
    [answer] = decode_answers(encode_answer(b"r1", ErrorReply.of(raised)))
    assert isinstance(answer.body, ErrorReply)
    met = answer.body.exception("k1")
    assert type(met) is type(raised)
    assert (met.code, met.outcome) == (code, Outcome.NOT_APPLIED)
    assert (met.message, met.session, met.head) == (raised.message, "demo", "0:3")


def test_an_unknown_outcome_arrives_with_its_code_and_the_callers_key() -> None:
    raised = OutcomeUnknown("the disk failed", session="demo", code=ErrorCode.STORAGE_FAILED)
    [answer] = decode_answers(encode_answer(b"r1", ErrorReply.of(raised)))
    assert isinstance(answer.body, ErrorReply)
    met = answer.body.exception("k1")
    assert isinstance(met, OutcomeUnknown)
    assert (met.code, met.outcome, met.key) == (ErrorCode.STORAGE_FAILED, Outcome.UNKNOWN, "k1")


def test_an_error_without_a_session_gets_that_of_its_command() -> None:
    assert ErrorReply.of(Internal("a fault"), "demo").session == "demo"
    assert ErrorReply.of(Internal("a fault", session="other"), "demo").session == "other"
    assert str(ErrorReply.of(Internal("a fault"), "demo").exception()) == "a fault [session demo]"


def test_an_error_without_a_code_is_internal() -> None:
    assert ErrorReply.of(StenoError("no daemon")).code is ErrorCode.INTERNAL


def test_the_window_of_a_subscription_holds_at_least_one_block() -> None:
    assert Subscribe(session="demo", subscription="s1").window >= limits.BLOCK_BYTES
