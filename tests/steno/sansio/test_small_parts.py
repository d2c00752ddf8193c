"""Small parts of the client: keys, messages, lines, mirror and line reader."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from steno._connect.target import make_target
from steno._sansio.event_merge import start_of
from steno._sansio.messages import encode_messages
from steno._sansio.mirror import Mirror
from steno._sansio.past_state import PastReader
from steno._sansio.reading import LineReader
from steno._sansio.requests import new_key
from steno.values import DmailEvent, Live, RecordsEvent, Reset
from steno_protocol import limits, replies
from steno_protocol.errors import BadRequest, Corrupt, NotFound, TooLarge
from steno_protocol.paths import check_key, check_name, key_time_ms
from steno_protocol.positions import Position

LINE = b'{"role":"user","content":"x"}\n'


def test_keys_are_uuids_of_version_7_that_rise_with_time() -> None:
    keys = [new_key() for _ in range(1000)]
    assert len(set(keys)) == 1000
    for key in keys:
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-.{12}", key)
        assert check_key(key) == key
    times = [key_time_ms(key) or 0 for key in keys]
    assert all(sooner <= later for sooner, later in pairwise(times))


def test_a_child_makes_no_key_that_its_parent_makes() -> None:
    program = (
        "import os; from steno._sansio.requests import new_key; new_key(); child = os.fork();"
        "keys = [new_key()[14:] for _ in range(200)]; child and os.wait();"
        "print(*keys, flush=True)"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert len(set(run.stdout.split())) == 400


def test_sizes_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(TooLarge):
        encode_messages(b"x" * (limits.RECORD_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        encode_messages([b"x" * limits.RECORD_BYTES_MAX] * 5)
    with pytest.raises(TooLarge):
        encode_messages([b"x"] * (limits.BATCH_RECORDS_MAX + 1))


def test_a_default_name_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("", "-c", "/usr/bin/my agent é.py", "x" * 300):
        monkeypatch.setattr("sys.argv", [program])
        check_name(make_target("/tmp", None, None, spawn=False).name)


@pytest.mark.parametrize("program", ["", "-", "-c", "-m", "/usr/bin/python"])
def test_a_program_without_a_file_is_named_after_python(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    assert make_target("/tmp", None, None, spawn=False).name == f"python-{os.getpid()}"


def test_a_subscription_starts_at_a_word_or_a_position() -> None:
    assert [start_of(after) for after in ("start", "now", "1:2", Position(3, 4))] == [
        "start", "now", "1:2", "3:4",
    ]  # fmt: skip
    with pytest.raises(BadRequest):
        start_of("end")


def mirror_of(*events: RecordsEvent | Reset | Live | DmailEvent) -> Mirror:
    mirror = Mirror("demo")
    mirror.follower.incarnation = "i"
    for event in events:
        mirror.follower.inbox.append(event)
    mirror.take_in()
    return mirror


def records(first: Position, count: int) -> RecordsEvent:
    return RecordsEvent(first, Position(first.generation, first.line + count), LINE * count)


def test_a_mirror_never_shows_half_of_a_rewrite() -> None:
    mirror = mirror_of(records(Position(0, 0), 3), Live(Position(0, 3)))
    seen: list[tuple[Position, int]] = []
    for event in (
        Reset(1, 0, "compacted", "i", Position(1, 4)),
        records(Position(1, 0), 2),
        DmailEvent("expired", "m", 0),
        Reset(2, 1, "reverted", "i", Position(2, 2)),
        records(Position(2, 1), 1),
        records(Position(2, 2), 1),
    ):
        mirror.follower.inbox.append(event)
        mirror.take_in()
        seen.append((mirror.state.head, len(mirror.history)))
    assert seen == [(Position(0, 3), 3)] * 4 + [(Position(2, 2), 2), (Position(2, 3), 3)]


def test_mirror_knows_checkpoint_ids_without_a_line() -> None:
    mirror = Mirror("demo")
    reply = replies.Subscribed(head="2:0", incarnation="i", checkpoint_floor=7)
    mirror.follower.begin(reply)
    mirror.follower.inbox.append(Live(Position(2, 0)))
    mirror.take_in()
    assert (mirror.state.head, mirror.state.n_checkpoints) == (Position(2, 0), 7)
    mirror.follower.inbox.append(Reset(3, 0, "compacted", "i", Position(3, 0), checkpoint_floor=9))
    mirror.take_in()
    assert mirror.state.n_checkpoints == 9
    mirror.follower.inbox.append(Reset(4, 0, "cleared", "i", Position(4, 0)))
    mirror.take_in()
    assert mirror.state.n_checkpoints == 0


def test_a_line_too_long_for_any_reader_keeps_its_place_in_the_mirror() -> None:
    mirror = mirror_of(records(Position(0, 0), 1), records(Position(0, 2), 1))
    assert (mirror.state.head, len(mirror.history)) == (Position(0, 3), 2)
    assert mirror.state.damaged == 1


def test_an_empty_mirror_of_a_later_generation_knows_where_it_is() -> None:
    assert mirror_of(Live(Position(4, 0))).state.head == Position(4, 0)


def test_waiter_for_a_position_wakes_when_it_is_reached_or_impossible() -> None:
    mirror = mirror_of()
    woken: list[str] = []
    nine = mirror.arrival(Position(0, 9))
    mirror.wake_at(mirror.arrival(Position(0, 2)), lambda: woken.append("two"))
    mirror.wake_at(nine, lambda: woken.append("nine"))
    mirror.follower.inbox.append(records(Position(0, 0), 2))
    mirror.take_in()
    assert woken == ["two"]
    mirror.follower.inbox.append(Reset(0, 0, "made", "another", Position(0, 0)))
    mirror.take_in()
    assert woken == ["two", "nine"]
    with pytest.raises(NotFound, match="made again"):
        nine()
    assert not mirror.arrival(Position(0, 9))(), "a new waiter waits for the present session"


def lines_reply(first: str, after: str, head: str, skipped: int = 0) -> replies.Lines:
    return replies.Lines(first=first, next=after, head=head, offset=9, skipped=skipped)


def test_reader_requests_little_at_first_and_more_later() -> None:
    reader = LineReader("demo", "0:0")
    asked: list[int] = []
    for number in range(6):
        command = reader.next_command()
        assert command is not None
        asked.append(command.bytes_max)
        reader.take(lines_reply(f"0:{number}", f"0:{number + 1}", "0:9"), LINE)
    assert asked[0] == limits.BLOCK_BYTES
    assert asked == sorted(asked)
    assert asked[-2:] == [limits.READ_AHEAD_BYTES_MAX] * 2


def test_a_skipped_line_is_counted_and_keeps_its_place() -> None:
    reader = LineReader("demo", "0:0")
    reader.take(lines_reply("0:0", "0:1", "0:3", skipped=1), b"")
    reader.take(lines_reply("0:1", "0:3", "0:3"), b"torn\n" + LINE)
    (record,) = reader.records(strict=False)
    assert (record.cursor, reader.damaged) == (Position(0, 2), 2)


def test_a_strict_reader_names_the_session_and_the_place() -> None:
    reader = LineReader("demo", "0:0")
    reader.take(lines_reply("0:0", "0:1", "0:1"), b"[]\n")
    with pytest.raises(Corrupt, match="0:0") as raised:
        next(reader.records(strict=True))
    assert raised.value.session == "demo"


def test_past_state_exists_up_to_the_end_only() -> None:
    for at, is_there in (("1:2", True), ("1:4", True), ("1:5", False)):
        past = PastReader("demo", at, None)
        # Two lines were too long for any reader, and have their places none the less.
        end = min(at, "1:4")
        past.reader.take(lines_reply("1:0", end, "1:4", 2 * (end == "1:4")), 2 * LINE)
        past.absorb()
        if is_there:
            assert len(past.state().history) == 2
        else:
            with pytest.raises(NotFound, match="no position 1:5: generation 1 ends at 1:4"):
                past.state()


def test_past_state_of_a_compacted_file_knows_its_first_checkpoint_id() -> None:
    past = PastReader("demo", 1, 5)
    past.reader.take(lines_reply("1:0", "1:2", "1:2"), b'{"role":"_checkpoint","id":5}\n' + LINE)
    past.absorb()
    state = past.state()
    assert (state.head, state.n_checkpoints) == (Position(1, 0), 5)
