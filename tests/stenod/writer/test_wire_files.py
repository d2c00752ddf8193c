"""Wire files, as clients of a daemon write, read and follow them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steno import (
    BadRequest,
    BlockingClient,
    Position,
    RecordsEvent,
    StorageFailed,
    TooLarge,
    Turn,
    connect,
    connect_sync,
)
from steno_protocol import limits
from support.daemon_in_thread import DaemonInThread
from support.messages import message
from support.wire_files import values_in, wire_documents, wire_file

HEADER = b'{"type":"metadata","protocol_version":"1.10"}\n'


def event(number: int, text: str = "hi") -> bytes:
    """An event as another program writes it."""
    message = {"type": "TextPart", "payload": {"n": number, "text": text}}
    return json.dumps({"timestamp": 1.5, "message": message}, ensure_ascii=False).encode() + b"\n"


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Iterator[BlockingClient]:
    with connect_sync(root, spawn=False, name="planner") as connected:
        yield connected


# --- methods --------------------------------------------------------------------------------------


def test_first_event_adds_the_header_and_its_ack_states_the_durability(
    root: Path, client: BlockingClient
) -> None:
    session = client.open("demo")
    assert not wire_file(root).exists()
    assert session.wire_is_empty()
    assert session.wire_version() == "1.10"

    ack = session.append_wire("TurnBegin", {"user_input": "hi"}, 1730000000.12)

    assert (ack.first, ack.head, ack.durability) == (Position(0, 1), Position(0, 2), "written")
    assert wire_file(root).read_bytes() == HEADER + (
        b'{"timestamp":1730000000.12,"message":{"type":"TurnBegin","payload":{"user_input":"hi"}},'
        b'"_at":"0:0","_by":"planner","_id":"%s"}\n' % ack.key.encode()
    )
    # Readers see synced lines only, and the ack of a synced append waits for the sync.
    session.append_wire("TurnEnd", {}, durability="synced")
    assert not session.wire_is_empty()


def test_batch_may_contain_events_in_any_form(root: Path, client: BlockingClient) -> None:
    session = client.open("demo")
    session.append_wire("A", {"n": 0}, durability="synced")
    [first] = session.wire_records()

    ack = session.append_wire(
        [
            ("B", {"n": 1}),
            ("C", {"n": 2}, 7.25),
            first,
            {"timestamp": 8, "message": {"type": "D", "payload": {"n": 3}}},
            b'{"timestamp":9,"message":{"type":"E","payload":{"n":4}}}',
        ],
        timestamp=6,
        durability="synced",
    )

    assert (ack.first, ack.last, ack.durability) == (Position(0, 2), Position(0, 6), "synced")
    found = list(session.wire_records())
    assert [each.type for each in found] == ["A", "B", "C", "A", "D", "E"]
    assert [each.payload["n"] for each in found] == [0, 1, 2, 0, 3, 4]
    assert [each.timestamp for each in found[1:]] == [6, 7.25, first.timestamp, 8, 9]
    assert [each.cursor for each in found] == [Position(0, line) for line in range(1, 7)]


def test_turns_are_read_from_their_begin_events(client: BlockingClient) -> None:
    session = client.open("demo")
    parts = [{"type": "text", "text": "and this"}]
    session.append_wire([("TurnBegin", {"user_input": "hi"}, 1.5), ("TurnEnd", {}, 2)])
    session.append_message(message("hi"))
    session.append_wire([("StepBegin", {"n": 1}, 3), ("TurnBegin", {"user_input": parts}, 4.5)])
    session.append_wire("TurnBegin", {}, 5, durability="synced")
    assert session.turns() == [
        Turn(Position(0, 1), 1.5, Position(0, 0), "hi"),
        Turn(Position(0, 4), 4.5, Position(0, 1), parts),
        Turn(Position(0, 5), 5, Position(0, 1), None),
    ]


def test_invalid_batch_is_refused_before_it_is_sent(client: BlockingClient) -> None:
    session = client.open("demo")
    with pytest.raises(BadRequest, match="at least one"):
        session.append_wire([])
    with pytest.raises(BadRequest, match="sequence of events"):
        session.append_wire([("A", {})], {"n": 1})
    with pytest.raises(BadRequest, match="sequence of events"):
        session.append_wire(b'{"timestamp":1}')  # type: ignore[arg-type]
    for wrong in (("A",), ("A", {}, 1, 2), 7, None):
        with pytest.raises(BadRequest, match="an event is"):
            session.append_wire([("A", {}), wrong])  # type: ignore[list-item]
    with pytest.raises(TooLarge):
        session.append_wire("A", {"text": "x" * limits.RECORD_BYTES_MAX})


@pytest.mark.usefixtures("daemon")
@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking_calls")
async def test_async_client_has_the_same_methods(root: Path) -> None:
    async with connect(root) as client:
        session = await client.open("demo")
        assert await session.wire_is_empty()
        assert await session.wire_version() == "1.10"
        ack = await session.append_wire("TurnBegin", {"user_input": "hi"}, 1.5)
        await session.append_wire([("A", {"n": 1}, 2), ("B", {"n": 2}, 3)], durability="synced")
        assert [each.type async for each in session.wire_records(ack.head)] == ["A", "B"]
        assert [line async for line in session.wire_lines(until="0:1")] == [HEADER]
        assert [turn.user_input for turn in await session.turns()] == ["hi"]
        assert not await session.wire_is_empty()


# --- accidents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 2, 3, 9])
def test_tail_torn_inside_a_character_is_quarantined_and_appends_continue(
    root: Path, daemon: DaemonInThread, cut: int
) -> None:
    with connect_sync(root, spawn=False) as client:
        client.open("demo").append_wire("A", {"n": 0})
    daemon.stop()
    torn = event(1, "汉")[: -len('"}}}\n') - cut]
    with wire_file(root).open("ab") as file:
        file.write(torn)
    daemon.start()
    with connect_sync(root, spawn=False) as client:
        session = client.session("demo")
        assert [each.payload["n"] for each in session.wire_records()] == [0]
        session.append_wire("A", {"n": 2})
        assert values_in(wire_documents(root)) == [0, 2]
        [kept] = (wire_file(root).parent / "quarantine").iterdir()
        assert kept.read_bytes() == torn
        repaired = [entry for entry in session.timeline() if entry.kind == "repaired"]
        assert [entry.details["file"] for entry in repaired] == ["wire.jsonl"]


@pytest.mark.usefixtures("daemon")
def test_damaged_line_is_skipped_and_counted(root: Path) -> None:
    with connect_sync(root, spawn=False) as client:
        client.open("demo")
    lines = [
        b"\n", HEADER, event(0), b"{broken\n", b"\xe4\xbd\n", b"[1]\n", b" \n",
        b'{"timestamp":1,"message":{}}\n', event(1), HEADER, event(2, "é"),
    ]  # fmt: skip
    wire_file(root).write_bytes(b"".join(lines))
    with connect_sync(root, spawn=False) as client:
        session = client.session("demo")
        found = session.wire_records()
        assert [each.payload["n"] for each in found] == [0, 1, 2]
        assert found.damaged == 4
        assert list(session.wire_lines()) == lines
        session.append_wire("A", {"n": 3}, durability="synced")
        again = session.wire_records("0:8")
        assert [each.payload["n"] for each in again] == [1, 2, 3]
        with session.subscribe(records="wire") as events:
            first = events.next_event(60)
        assert isinstance(first, RecordsEvent)
        assert [each.payload["n"] for each in first.wire_records()] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("content", "version", "is_empty"),
    [
        (b"", "1.10", True),
        (b"\n \n", "1.10", True),
        (b'\n{"type": "metadata", "protocol_version": "1.3", "app": "x"}\n', "1.3", True),
        (b'{"type":"metadata","protocol_version":"1.3"}\n' + event(1), "1.3", False),
        (event(1), "1.1", False),
        (b"{broken\n" + event(1), "1.1", False),
    ],
    ids=["no byte", "blank", "header", "header and event", "legacy", "damaged"],
)
def test_file_keeps_its_version_and_its_first_lines(
    root: Path, client: BlockingClient, content: bytes, version: str, is_empty: bool
) -> None:
    session = client.open("demo")
    wire_file(root).write_bytes(content)
    assert session.wire_version() == version
    assert session.wire_is_empty() == is_empty
    session.append_wire("A", {"n": 7}, durability="synced")
    written = wire_file(root).read_bytes()
    assert written.startswith(content or HEADER)
    assert json.loads(written.splitlines()[-1])["message"]["payload"] == {"n": 7}


def test_unreadable_file_does_not_count_as_empty(root: Path, client: BlockingClient) -> None:
    session = client.open("demo")
    wire_file(root).mkdir()
    assert not session.wire_is_empty()
    for read in (session.turns, session.wire_version):
        with pytest.raises(StorageFailed):
            read()


# --- following ------------------------------------------------------------------------------------


def test_follower_of_both_files_has_a_position_in_each(client: BlockingClient) -> None:
    session = client.open("demo")
    ack = session.append_message([message("one"), message("two")])
    wire = session.append_wire([("A", {"n": 0}), ("A", {"n": 1})], durability="synced")
    with pytest.raises(BadRequest, match="wire_after"):
        session.subscribe(ack.first, records="both")
    with session.subscribe(ack.last, records="both", wire_after=wire.last) as events:
        received = [events.next_event(60) for _ in range(4)]
    blocks = {each.file: each for each in received if isinstance(each, RecordsEvent)}
    assert blocks["context"].first == ack.last
    assert [each.payload["n"] for each in blocks["wire"].wire_records()] == [1]


@pytest.mark.parametrize("restarts", [False, True])
def test_header_fields_come_with_the_first_event_and_stay(
    root: Path, daemon: DaemonInThread, *, restarts: bool
) -> None:
    fields = {"session_id": "0a1b", "app_version": "1.52", "more": {"n": [1, 2.5, "é"]}}
    with connect_sync(root, spawn=False) as client:
        client.open("demo").append_wire("A", header=fields)
    if restarts:
        daemon.stop()
        daemon.start()
    with connect_sync(root, spawn=False) as client:
        session = client.session("demo")
        session.append_wire("B", header={"session_id": "another"})
        session.fork("copy")
        for each in ("demo", "copy"):
            header = next(iter(client.session(each).wire_lines()))
            assert json.loads(header) == {
                "type": "metadata", "protocol_version": "1.10", **fields,
            }  # fmt: skip
        assert session.wire_version() == "1.10"
        other = client.open("other")
        other.append_wire("A", header={"protocol_version": "1.11"})
        assert other.wire_version() == "1.11"


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"type": "x"}, "'type'"), ({"_id": "x"}, "'_id'"),
        ({"protocol_version": 3}, "protocol_version"), ("text", "an object"),
        ({"x": object()}, "which JSON cannot hold"),
    ],
)  # fmt: skip
def test_invalid_header_is_refused_and_nothing_is_written(
    root: Path, header: Any, named: str
) -> None:
    with connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        with pytest.raises(BadRequest, match=named):
            session.append_wire("A", header=header)
        assert session.wire_is_empty()
