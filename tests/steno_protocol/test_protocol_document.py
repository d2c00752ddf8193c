"""PROTOCOL.md against the code: every example is decoded, every table compared."""

import inspect as python_inspect
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import PROTOCOL_MAGIC, PROTOCOL_VERSION, limits, paths, records, wire
from steno_protocol.commands import (
    COMMANDS,
    Append,
    Command,
    CompactAbort,
    Grant,
    Mutation,
    SessionCommand,
    Stat,
)
from steno_protocol.context import Damaged, parse_line
from steno_protocol.credentials import ClientKey, KeyPair, encode_client_key
from steno_protocol.errors import BadRequest, ErrorCode, Outcome, Refused
from steno_protocol.events import AnyEvent
from steno_protocol.limits import limits_in_hello
from steno_protocol.messages import Answer, Request, decode_answers, decode_requests
from steno_protocol.positions import Position
from steno_protocol.replies import (
    Ack,
    AnyReply,
    CheckedFile,
    CheckFinding,
    ClientEntry,
    ClusterHost,
    ClusterReplica,
    ClusterSession,
    ClusterStream,
    ErrorReply,
    GarbageEntry,
    HistogramReport,
    Lines,
    Mail,
    OpenSession,
    OptionEntry,
    RepairedFile,
    Reply,
    SessionEntry,
    SessionStat,
    Source,
    StreamEntry,
    TrashEntry,
)
from steno_protocol.rights import Right, right_needed
from steno_protocol.timeline_entries import REWRITES, TimelineEntry
from support import abnf
from support.framing import only_request, request_frames
from support.happenings import FACTS, check_facts
from support.project import PROJECT
from support.protocol_document import Example, Section, chapters, code, codes, fields_of

CHAPTERS = chapters()
COMMAND_SECTIONS = CHAPTERS["Commands"].sections
COMMAND_ROWS = {code(row["command"]): row for row in CHAPTERS["Commands"].table("command")}
REPLY_SECTIONS = CHAPTERS["Replies"].sections
EVENT_SECTIONS = CHAPTERS["Events"].sections
EXAMPLES = [example for chapter in CHAPTERS.values() for example in chapter.examples]
GRAMMAR = abnf.rules_of(next(each.text for each in EXAMPLES if each.kind == "grammar"))


def _kind(struct: type[msgspec.Struct]) -> str:
    return str(struct.__struct_config__.tag)


REPLIES: dict[str, type[msgspec.Struct]] = {_kind(cls): cls for cls in AnyReply.__args__}
EVENTS: dict[str, type[msgspec.Struct]] = {_kind(cls): cls for cls in AnyEvent.__args__}
ENTRIES: dict[str, type[msgspec.Struct]] = {
    cls.__name__: cls
    for cls in (
        SessionEntry,
        TimelineEntry,
        ClientEntry,
        HistogramReport,
        OptionEntry,
        OpenSession,
        RepairedFile,
        GarbageEntry,
        Source,
        Mail,
        CheckedFile,
        StreamEntry,
        CheckFinding,
        TrashEntry,
        ClusterHost,
        ClusterReplica,
        ClusterStream,
        ClusterSession,
    )
}


def _examples(*kinds: str) -> Any:
    found = [each for each in EXAMPLES if each.kind in kinds]
    return pytest.mark.parametrize(
        "example", found, ids=[f"line {each.line} {each.name}" for each in found]
    )


def _answer(example: Example) -> Answer:
    [answer] = decode_answers([b'%b\n[["r1",%b]]' % (PROTOCOL_MAGIC, example.text.encode())])
    return answer


def _request(example: Example, taken: list[Example]) -> Request:
    header = example.text.encode()
    return only_request(request_frames(b"r1", header, *(each.text.encode() for each in taken)))


# --- examples ------------------------------------------------------------------------------------


def test_every_block_of_code_is_of_a_kind_that_is_tested_here() -> None:
    tested = {"request", "record", "reply", "event", "message", "lines", "lock", "grammar"}
    assert {each.kind for each in EXAMPLES} == {
        *tested, "block", "line", "happening", "text", "wire-event", "wire-line", "node-client",
        "stream-record", "stream-line",
    }  # fmt: skip


@_examples("request")
def test_an_example_of_a_request_is_its_command_with_a_valid_session_and_key(
    example: Example,
) -> None:
    kind = {
        "append": "record", "append_wire": "wire-event", "append_stream": "stream-record",
        "compact_commit": "record",
    }.get(example.name)  # fmt: skip
    # A field that the command does not have is refused.
    request = _request(example, [each for each in EXAMPLES if each.kind == kind][:1])
    assert type(request.command) is COMMANDS[example.name]
    header = msgspec.json.decode(example.text)
    paths.split_session(header.get("session", "demo"))
    paths.check_key(header.get("key", "k"))
    assert paths.key_time_ms(header["key"]) if "key" in header else True


@_examples("reply", "event")
def test_an_example_of_an_answer_is_of_its_kind_and_has_no_other_field(example: Example) -> None:
    struct = {"reply": REPLIES, "event": EVENTS}[example.kind][example.name]
    assert type(_answer(example).body) is struct
    header = msgspec.json.decode(example.text)
    assert header.keys() <= {"kind", *struct.__struct_encode_fields__}


GATES = {
    "record": records.check_message,
    "wire-event": wire.check_event,
    "stream-record": records.check_record,
}


@_examples(*GATES)
def test_an_example_of_a_record_passes_its_gate(example: Example) -> None:
    GATES[example.kind](example.text.encode())


@_examples("wire-line")
def test_an_example_of_a_wire_line_is_a_header_or_a_stamped_event(example: Example) -> None:
    for line in example.text.encode().splitlines():
        parsed = wire.parse_wire_line(line)
        if isinstance(parsed, wire.Metadata):
            assert line + b"\n" == wire.metadata_line()
        else:
            assert isinstance(parsed, wire.WireRecord)
            assert parsed.at is not None
            assert records.stamp_of(line) is not None


def test_the_example_of_a_wire_event_becomes_the_line_that_read_wire_shows() -> None:
    [event] = [each for each in COMMAND_SECTIONS["append_wire"].examples if not each.name]
    [block] = [each for each in COMMAND_SECTIONS["read_wire"].examples if each.kind == "block"]
    header, line = block.text.encode().splitlines()
    stamp = records.stamp_of(line)
    assert stamp is not None
    facts = b',"_at":"0:4"' + records.stamp(stamp.key, "planner")
    assert header + b"\n" == wire.metadata_line()
    assert records.line(wire.check_event(event.text.encode()), facts) == line + b"\n"


@_examples("stream-line")
def test_an_example_of_a_stream_line_holds_a_record(example: Example) -> None:
    for line in example.text.encode().splitlines():
        assert records.stamp_of(line) is not None
        assert records.check_record(records.unstamped(line))


def test_the_example_of_a_stream_record_becomes_the_line_that_read_stream_shows() -> None:
    [record] = [each for each in COMMAND_SECTIONS["append_stream"].examples if not each.name]
    [block] = [each for each in COMMAND_SECTIONS["read_stream"].examples if each.kind == "block"]
    line = block.text.encode().strip()
    stamp = records.stamp_of(line)
    assert stamp is not None
    data = records.check_record(record.text.encode())
    assert records.stamped_line(data, b"", stamp.key, "planner") == line + b"\n"
    assert records.unstamped(line) == data


@_examples("line")
def test_an_example_of_a_line_has_a_meaning_and_a_stamp(example: Example) -> None:
    for line in example.text.encode().splitlines():
        assert not isinstance(parse_line(line), Damaged)
        assert records.stamp_of(line) is not None


@_examples("block")
def test_an_example_of_a_block_has_as_many_lines_as_its_header_says(example: Example) -> None:
    header = _header_before(example)
    first, following = Position.parse(header["first"]), Position.parse(header["next"])
    assert following.line - first.line == len(example.text.splitlines())


@pytest.mark.parametrize("command", ["read", "read_wire"])
def test_offset_in_the_read_example_is_the_size_of_its_block(command: str) -> None:
    example = next(each for each in COMMAND_SECTIONS[command].examples if each.kind == "block")
    offset = _header_before(example)["offset"]
    assert len(example.text.encode()) + 1 == offset


def _header_before(example: Example) -> dict[str, Any]:
    headers = [
        each for each in EXAMPLES if each.kind in {"reply", "event"} and each.line < example.line
    ]
    header = msgspec.json.decode(headers[-1].text)
    assert isinstance(header, dict)
    return header


def test_table_of_the_timeline_has_every_kind_with_its_facts() -> None:
    section = CHAPTERS["Files"].sections["The timeline"]
    rows = {code(row["kind"]): row for row in section.table("kind")}
    documented = {kind: facts.always | facts.perhaps for kind, facts in FACTS.items()}
    # The text describes these for many kinds at once.
    common = {"expired_mail", "next_id"}
    assert common <= set(codes(section.text))
    assert {kind: {*codes(row["details"])} for kind, row in rows.items()} == {
        kind: facts - (common if kind != "counted" else set()) for kind, facts in documented.items()
    }
    for kind, command in REWRITES.items():
        assert command in codes(rows[kind]["what happened"])


@_examples("happening")
def test_an_example_of_the_timeline_is_decoded(example: Example) -> None:
    for line in example.text.splitlines():
        check_facts([msgspec.json.decode(line, type=TimelineEntry)])


@_examples("lock")
def test_the_example_of_the_lock_is_decoded(example: Example) -> None:
    assert msgspec.json.decode(example.text, type=paths.LockNote).endpoint.startswith("ipc:///")


def test_the_example_of_a_message_of_requests_is_decoded() -> None:
    header, lines = (each.text for each in CHAPTERS["Messages"].examples[:2])
    first, second = decode_requests([header.encode(), f"{lines}\n".encode()])
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert (first.id, type(first.command), len(first.records)) == (b"r1", Append, 2)
    assert (second.id, type(second.command), len(second.records)) == (b"r2", Stat, 0)


def test_the_example_of_a_message_of_answers_is_decoded() -> None:
    header = CHAPTERS["Messages"].examples[2].text
    answers = decode_answers([header.encode()])
    assert [(each.id, type(each.body)) for each in answers] == [(b"r1", Ack), (b"r2", ErrorReply)]


def test_the_example_of_a_record_becomes_the_line_that_is_shown() -> None:
    record, line = CHAPTERS["Records"].sections["How a record becomes a line"].examples[:2]
    shown = line.text.encode() + b"\n"
    stamp = records.stamp_of(shown)
    assert stamp is not None
    checked = records.check_message(record.text.encode())
    assert records.line(checked.data, records.stamp(stamp.key, "planner")) == shown


# --- commands ------------------------------------------------------------------------------------


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert list(COMMAND_SECTIONS) == list(COMMANDS)
    assert list(COMMAND_ROWS) == list(COMMANDS)


COMMAND_CASES = pytest.mark.parametrize(
    ("section", "command"),
    [(COMMAND_SECTIONS[name], command) for name, command in COMMANDS.items()],
    ids=list(COMMANDS),
)


@COMMAND_CASES
def test_a_command_section_has_the_fields_of_the_command(
    section: Section, command: type[Command]
) -> None:
    base = _base_of(command)
    assert KINDS[COMMAND_ROWS[section.title]["kind"]] is base
    inherited = fields_of(base).items()
    expected = dict(fields_of(command).items() - inherited)
    assert _table(section) == expected


KINDS: dict[str, type[Command]] = {
    "command": Command,
    "session command": SessionCommand,
    "query": SessionCommand,
    "mutation": Mutation,
    "rewrite": Mutation,
    "mutation or rewrite": Mutation,
}


def _base_of(command: type[Command]) -> type[Command]:
    return next(base for base in (Mutation, SessionCommand, Command) if issubclass(command, base))


def _table(section: Section, column: str = "field") -> dict[str, tuple[str, str]]:
    try:
        rows = section.table(column)
    except AssertionError:
        return {}
    return {code(row[column]): (row["type"], row["default"]) for row in rows}


def test_fields_of_many_commands_are_documented_once() -> None:
    chapter = CHAPTERS["Fields of many commands"]
    tables = [_table(chapter, column) for column in (
        "field", "field of a session command", "field of a mutation"
    )]  # fmt: skip
    assert tables[0] == fields_of(Command)
    assert {**tables[0], **tables[1]} == fields_of(SessionCommand)
    assert {**tables[0], **tables[1], **tables[2]} == fields_of(Mutation)


@COMMAND_CASES
def test_command_section_states_durability_and_repeats(
    section: Section, command: type[Command]
) -> None:
    row = COMMAND_ROWS[section.title]
    assert row["durable at reply"]
    assert issubclass(command, Grant) == row["repeat"].startswith("not harmless")
    assert row["repeat"].startswith(("harmless", "not harmless"))
    if issubclass(command, Mutation):
        assert "with the same key and `repeat`" in row["repeat"]


@COMMAND_CASES
def test_a_command_section_names_only_errors_that_exist(
    section: Section, command: type[Command]
) -> None:
    own = _own_errors(section)
    assert ("**Errors.**" in section.text) == bool(own)
    assert {*own} <= {*ErrorCode}
    inherited = ERRORS_OF_KINDS.get(COMMAND_ROWS[section.title]["kind"].split()[0], [])
    if issubclass(command, Mutation):
        assert {"bad_request", "conflict", "storage_failed"} <= {*inherited}
    if issubclass(command, SessionCommand) and command is not CompactAbort:
        assert {"bad_request", "not_found", "storage_failed"} & {*own, *inherited}


def _own_errors(section: Section) -> list[str]:
    return _errors_named(section.text.partition("**Errors.**")[2])


def _errors_named(text: str) -> list[str]:
    return re.findall(r"^\* `([a-z_]+)`:", text, re.MULTILINE)


_OF_MUTATIONS, _OF_QUERIES = (
    CHAPTERS["Fields of many commands"]
    .sections["Errors of mutations and queries"]
    .text.split("\nA query")
)
ERRORS_OF_KINDS = {
    "mutation": _errors_named(_OF_MUTATIONS),
    "rewrite": _errors_named(_OF_MUTATIONS),
    "query": _errors_named(_OF_QUERIES),
}


@COMMAND_CASES
def test_a_command_section_has_a_request_and_the_reply_that_it_names(
    section: Section, command: type[Command]
) -> None:
    shown = {(each.kind, each.name) for each in section.examples}
    assert ("request", section.title) in shown
    replies = {name for kind, name in shown if kind == "reply"} - {"error"}
    says = COMMAND_ROWS[section.title]["reply"]
    assert replies == (set() if says == "none" else {code(says)})


# --- replies and events --------------------------------------------------------------------------


def test_every_reply_and_event_has_a_section_and_every_section_one() -> None:
    assert {*REPLY_SECTIONS} == {*REPLIES, *ENTRIES}
    assert list(EVENT_SECTIONS) == list(EVENTS)


@pytest.mark.parametrize("kind", [*REPLIES, *ENTRIES])
def test_a_reply_section_has_the_fields_of_the_reply(kind: str) -> None:
    expected = fields_of({**REPLIES, **ENTRIES}[kind])
    if kind in REPLIES:
        expected = {name: row for name, row in expected.items() if name not in fields_of(Reply)}
    assert _table(REPLY_SECTIONS[kind]) == expected


def test_the_fields_of_every_reply_are_in_the_chapter() -> None:
    assert _table(CHAPTERS["Replies"]) == fields_of(Reply)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_section_has_the_fields_of_the_event_and_an_example(kind: str) -> None:
    assert _table(EVENT_SECTIONS[kind]) == fields_of(EVENTS[kind])
    assert ("event", kind) in {(each.kind, each.name) for each in EVENT_SECTIONS[kind].examples}


# --- errors, limits, version ---------------------------------------------------------------------


def test_every_error_code_has_a_row_and_every_row_a_code() -> None:
    rows = CHAPTERS["Errors"].table("code")
    assert [code(row["code"]) for row in rows] == [*ErrorCode]
    for row in rows:
        assert row["whose fault"]
        assert row["what to do"]
        outcomes = codes(row["outcome"])
        assert {"not_applied"} <= {*outcomes} <= {*Outcome}


def test_every_error_code_is_one_that_some_command_can_meet() -> None:
    own = {error for section in COMMAND_SECTIONS.values() for error in _own_errors(section)}
    own |= {error for errors in ERRORS_OF_KINDS.values() for error in errors}
    of_all = CHAPTERS["Errors"].text.split("in the order of the checks:")[1]
    assert {*ErrorCode} - {*own, *codes(of_all)} == set()


def test_the_rights_of_the_document_are_those_of_the_code() -> None:
    rows = CHAPTERS["Security"].sections["From other machines"].table("right")
    assert [code(row["right"]) for row in rows] == [right.label for right in Right]
    for row, right in zip(rows, Right, strict=True):
        needed = {name for name, command in COMMANDS.items() if right_needed(command) is right}
        assert {*codes(row["commands"])} == needed


def test_the_names_in_a_key_file_are_those_of_the_document() -> None:
    rows = CHAPTERS["Security"].sections["From other machines"].table("name in the file")
    pair = KeyPair("p" * 40, "s" * 40)
    file = tomllib.loads(encode_client_key(ClientKey(pair, "d" * 40), "laptop"))
    assert [code(row["name in the file"]) for row in rows] == [*file]


def test_limits_in_the_welcome_are_those_of_the_document() -> None:
    rows = CHAPTERS["Limits"].table("limit")
    assert {code(row["limit"]): int(row["value"]) for row in rows} == limits_in_hello()


def test_limits_in_the_welcome_have_their_names_in_the_code() -> None:
    for name, value in limits_in_hello().items():
        assert getattr(limits, name.upper()) == value


def test_the_times_of_the_document_are_those_of_the_code() -> None:
    for row in CHAPTERS["Limits"].table("time"):
        assert getattr(limits, code(row["time"]).upper()) == float(row["value"])


def test_the_version_and_the_magic_are_those_of_the_code() -> None:
    text = (PROJECT / "protocol" / "PROTOCOL.md").read_text()
    assert f"\n* Protocol version: {PROTOCOL_VERSION}\n" in text
    assert f"\n* Magic: `{PROTOCOL_MAGIC.decode()}`\n" in text


def test_the_changes_begin_with_the_present_version() -> None:
    text = (PROJECT / "protocol" / "CHANGES.md").read_text()
    versions = re.findall(r"^## Protocol (\d+)$", text, re.MULTILINE)
    assert versions == [str(number) for number in range(PROTOCOL_VERSION, 0, -1)]
    assert {*COMMANDS} <= {*codes(text)}


def test_the_roles_of_the_document_are_those_of_the_gate() -> None:
    rows = CHAPTERS["Records"].table("role")
    appended = {code(row["role"]) for row in rows if code(row["how it gets there"]) == "append"}
    assert appended == records.KIMI_ROLES | {"developer"}
    others = {code(row["how it gets there"]) for row in rows} - {"append"}
    assert others <= {*COMMANDS}


def test_every_reserved_key_is_documented() -> None:
    text = CHAPTERS["Records"].text
    assert f"The top-level keys {_and(records.RESERVED_KEYS)} are taken out" in text


def _and(names: tuple[str, ...]) -> str:
    *head, last = (f"`{name}`" for name in names)
    return f"{', '.join(head)} and {last}"


# --- the grammar ---------------------------------------------------------------------------------


def test_every_rule_that_the_grammar_uses_is_defined() -> None:
    given_elsewhere = {"ALPHA", "DIGIT", "HEXDIG", "LF", "json-object", "json-array", "octets"}
    used = set[str]().union(*map(abnf.names_in, GRAMMAR.values()))
    assert used <= {*GRAMMAR, *given_elsewhere}
    assert {*GRAMMAR} - used <= {
        "connection", "position", "request-id", "session", "name", "stamp", "file",
    }  # fmt: skip


def _accepts(check: Any, text: str) -> bool:
    try:
        check(text)
    except BadRequest:
        return False
    return True


def _is_request_id(text: str) -> bool:
    try:
        only_request(request_frames(json.dumps(text).encode()[1:-1], b'{"command":"status"}'))
    except Refused:
        return False
    return True


CHECKS = {
    "key": lambda text: _accepts(paths.check_key, text),
    "name": lambda text: _accepts(paths.check_name, text),
    "position": lambda text: _accepts(Position.parse, text),
    "session": lambda text: _accepts(paths.split_session, text),
    "request-id": _is_request_id,
    "stream": lambda text: _accepts(paths.check_stream, text),
}
CLOSE_TO_THE_RULES = st.text(alphabet="aZ09_.:/@+=,-\n é", max_size=70)


@pytest.mark.parametrize("rule", CHECKS)
@given(text=CLOSE_TO_THE_RULES)
def test_grammar_accepts_what_the_code_accepts(rule: str, text: str) -> None:
    pattern = abnf.pattern_of(GRAMMAR, rule)
    assert (re.fullmatch(pattern, text) is not None) == CHECKS[rule](text)


@pytest.mark.parametrize("rule", CHECKS)
@given(data=st.data())
def test_code_accepts_what_the_grammar_generates(rule: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(abnf.pattern_of(GRAMMAR, rule), fullmatch=True))
    too_long = rule == "session" and (
        len(text) > limits.SESSION_ID_CHARS_MAX
        or max(map(len, re.split("[:/]", text))) > limits.SESSION_SEGMENT_CHARS_MAX
    )
    reserved = rule == "session" and re.search(
        r"(?:^|[:/])(?:quarantine|(?:context|wire|timeline|state)\.[^/]*|(?:journal|stream-[^/]*)\.mark(?:\.new)?|[^/]*\.jsonl)(?:$|/)",
        text,
    )
    reserved = reserved or (rule == "stream" and text in ("context", "wire"))
    assert CHECKS[rule](text) or too_long or reserved


# --- statements about the code -------------------------------------------------------------------


def test_the_prose_has_one_sentence_a_line() -> None:
    for number, line in enumerate(_prose(), 1):
        assert not re.search(r"[a-z`)]\. [A-Z]", line.removeprefix("**").replace(".**", "")), (
            f"two sentences in prose line {number}: {line}"
        )


def _prose() -> Iterator[str]:
    fenced = False
    for line in (PROJECT / "protocol" / "PROTOCOL.md").read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "#", "*", "-")) and not line[:1].isdigit():
            yield line


def test_the_fields_of_stat_are_the_same_for_open() -> None:
    assert code(COMMAND_ROWS["open"]["reply"]) == _kind(SessionStat)


def test_only_answers_that_are_said_to_have_a_block_document_one() -> None:
    documented = python_inspect.getdoc(Lines) or ""
    assert "with a block" in documented
    row = CHAPTERS["Messages"].table("frame")[1]
    assert codes(row["from the daemon"]) == ["lines", "records"]
