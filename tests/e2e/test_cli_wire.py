"""The commands about wire files."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from steno.values import WireRecord
from steno_cli.command_limits import REPLAY_PAUSE_S_MAX
from steno_cli.commands.wire import _pause_s
from steno_protocol.positions import Position
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.wire_files import values_in, wire_documents, wire_file

pytestmark = pytest.mark.served


def emit(steno: Steno, number: int, *more: str) -> None:
    ran = steno("emit", "demo", "TextPart", json.dumps({"n": number, "text": "汉字"}), *more)
    assert (ran.code, ran.out) == (0, f"0:{number + 2}\n")


def event_at(timestamp: float) -> WireRecord:
    return WireRecord(Position(0, 1), timestamp, "A", {}, None, b"")


def test_emit_takes_a_payload_from_an_argument_or_stdin(root: Path, steno: Steno) -> None:
    assert steno("emit", "demo", "TurnBegin", '{"user_input":"hi"}', "--timestamp", "1.5").code == 0
    assert steno("emit", "demo", "Started").code == 0
    ran = steno("emit", "demo", "Ended", "-", "--json", stdin='{"n": 7}')
    assert (ran.document["head"], ran.document["durability"]) == ("0:4", "synced")
    header, *events = wire_documents(root)
    assert header == {"type": "metadata", "protocol_version": "1.10"}
    assert [each["message"] for each in events] == [
        {"type": "TurnBegin", "payload": {"user_input": "hi"}},
        {"type": "Started", "payload": {}},
        {"type": "Ended", "payload": {"n": 7}},
    ]
    assert events[0]["timestamp"] == 1.5
    assert abs(events[1]["timestamp"] - time.time()) < 60


def test_an_emitted_event_obeys_the_options_of_every_change(root: Path, steno: Steno) -> None:
    emit(steno, 0, "--key", "step-1")
    event = json.dumps(wire_documents(root)[1]["message"]["payload"], ensure_ascii=False)
    again = steno("emit", "demo", "TextPart", event, "--key", "step-1", "--json").document
    assert (again["duplicate"], again["head"]) == (True, "0:2")
    other = steno("emit", "demo", "TextPart", '{"n":0}', "--key", "step-1")
    assert (other.code, "used before with other contents" in other.err) == (3, True)
    assert steno("emit", "demo", "A", "--expect", "0:1").code == 3
    assert steno("emit", "nobody", "A", "--no-create").code == 4
    written = steno("emit", "demo", "A", "--durability", "written", "--json").document
    assert written["durability"] == "written"


def test_wire_lists_events_one_a_line_or_as_documents(root: Path, steno: Steno) -> None:
    for number in range(3):
        emit(steno, number)
    lines = steno("wire", "demo").out.splitlines()
    assert [line.split()[0] for line in lines] == ["0:1", "0:2", "0:3"]
    assert all("TextPart" in line and '"text": "汉字"' in line for line in lines)
    documents = steno("wire", "demo", "--json", "--after", "0:2", "--until", "0:3").documents
    assert documents == [{"cursor": "0:2", "record": wire_documents(root)[2]}]
    screen = steno.on_terminal(60, "wire", "demo")
    assert "3 events of version 1.10" in screen
    assert all(len(line) <= 60 + len("\x1b[1m\x1b[0m") for line in screen.splitlines())


def test_an_empty_wire_file_differs_from_a_missing_session(steno: Steno) -> None:
    steno("append", "demo", "hi")
    for command in ("wire", "replay"):
        ran = steno(command, "demo")
        assert (ran.code, ran.out) == (0, "")
        assert "demo has no event" in ran.err
    assert steno("wire", "nobody").code == 4
    assert steno("tail", "nobody", "--wire").code == 4


def test_damaged_lines_and_odd_times_do_not_stop_a_listing(root: Path, steno: Steno) -> None:
    emit(steno, 0)
    odd = b'{"timestamp":1e300,"message":{"type":"\\u001b[31m","payload":{}}}'
    with wire_file(root).open("ab") as file:
        file.write(b"{broken\n" + odd + b"\n")
    # The daemon reads the lines of another program before its own next append.
    emit(steno, 3)
    ran = steno("wire", "demo")
    assert [line.split()[:2] for line in ran.out.splitlines()][1] == ["0:3", "1e+300"]
    assert "\x1b" not in ran.out
    assert "1 line was no event" in ran.err


@pytest.mark.parametrize(
    "line",
    [b"{broken", b"[]", b'{"timestamp":1}', b"\xff", b'{"a":"%b"}' % (b"x" * (17 << 20))],
    ids=["no JSON", "no object", "no message", "no UTF-8", "too long"],
)
def test_wire_strict_fails_at_the_first_line_that_is_no_event(
    root: Path, steno: Steno, line: bytes
) -> None:
    emit(steno, 0)
    assert steno("wire", "demo", "--strict").out == steno("wire", "demo").out != ""
    event = b'{"timestamp":1,"message":{"type":"A","payload":{}}}\n'
    with wire_file(root).open("ab") as file:
        # A blank line is no event either, and no fault.
        file.write(b"\n" + line + b"\n" + event)
    # The daemon reads the lines of another program before its own next append.
    emit(steno, 4)
    ran = steno("wire", "demo", "--strict")
    assert ran.code == 1
    assert "the line at 0:3 of wire.jsonl is no event" in ran.err
    assert [each.split()[0] for each in ran.out.splitlines()] == ["0:1"]
    assert steno("wire", "demo", "--strict", "--json").error["code"] == "corrupt"
    assert steno("wire", "demo", "--strict", "--after", "0:4").code == 0
    lenient = steno("wire", "demo")
    assert (lenient.code, len(lenient.out.splitlines())) == (0, 3)
    assert "; --strict stops at the first" in lenient.err


def test_verify_notes_events_with_decreasing_times(root: Path, steno: Steno) -> None:
    for number, at in enumerate(["3.0", "1.0", "2.0"]):
        emit(steno, number, "--timestamp", at)
    for target, where in (("demo", "demo"), (str(wire_file(root).parent), wire_file(root).parent)):
        ran = steno("verify", target)
        assert ran.code == 0
        line, *others = ran.out.splitlines()
        assert others == []
        assert line.startswith(
            f"{where}/wire.jsonl:3: note: the timestamp falls from 3.0 to 1.0 (byte "
        )
        assert "no damage, 1 note" in ran.err


def test_tail_prints_the_last_events_as_stored(root: Path, steno: Steno) -> None:
    for number in range(3):
        emit(steno, number)
    lines = wire_file(root).read_bytes().decode().splitlines(keepends=True)
    assert steno("tail", "demo", "--wire", "-n", "2").out == "".join(lines[-2:])
    assert steno("tail", "demo", "--wire").out == "".join(lines[1:])
    assert steno("tail", "demo", "--wire", "--after", "0:3").out == lines[3]


@pytest.mark.served(False)
def test_tail_follows_events_across_a_killed_daemon(root: Path, steno: Steno) -> None:
    with ForegroundDaemon(root) as daemon:
        emit(steno, 0)
        follower = steno.begin("tail", "demo", "--wire", "-f", "--json")
        assert follower.stdout is not None
        try:
            seen = [json.loads(follower.stdout.readline())]
            emit(steno, 1)
            seen.append(json.loads(follower.stdout.readline()))
            # The follower starts the next one.
            daemon.kill()
            emit(steno, 2)
            seen.append(json.loads(follower.stdout.readline()))
        finally:
            os.kill(follower.pid, signal.SIGINT)
            follower.wait(30)
            follower.stdout.close()
    assert [each["cursor"] for each in seen] == ["0:1", "0:2", "0:3"]
    assert values_in([each["record"] for each in seen]) == [0, 1, 2]


def test_replay_prints_what_wire_prints(steno: Steno) -> None:
    for number, at in enumerate(["1.0", "1.1", "0.5"]):
        emit(steno, number, "--timestamp", at)
    listed = steno("wire", "demo").out
    assert steno("replay", "demo", "--speed", "0").out == listed
    begun = time.monotonic()
    assert steno("replay", "demo", "--speed", "0.5").out == listed
    assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize(
    ("earlier", "later", "speed", "pause_s"),
    [
        (1.0, 3.0, 1.0, 2.0),
        (1.0, 3.0, 4.0, 0.5),
        (1.0, 3.0, 0.0, 0.0),
        (3.0, 1.0, 1.0, 0.0),
        (0.0, 86_400.0, 1.0, REPLAY_PAUSE_S_MAX),
    ],
    ids=["as it was", "faster", "at once", "a clock went back", "a night"],
)
def test_a_pause_of_replay_is_bounded(
    earlier: float, later: float, speed: float, pause_s: float
) -> None:
    assert _pause_s(event_at(earlier), event_at(later), speed) == pause_s
