"""`steno append SESSION < file`: lines in flight, in order, and every way in which they end."""

import json
import os
import re
import signal
import subprocess
import tracemalloc
from pathlib import Path
from threading import Event, Semaphore, Thread

import pytest

from steno import connect_sync
from steno._connect.target import make_target
from steno._sync.link import BlockingLink
from steno._sync.ordered_appends import IN_FLIGHT_BYTES_MAX, OrderedAppends, Settled
from steno_cli.stdin import InputLines
from steno_present.wording import count
from steno_protocol import limits, paths
from support.command import Ran, Steno, lines_of
from support.session_files import contents_in, records_in

PART = 750
"""Lines that a command gets at once while its daemons are killed."""


def texts_in(root: Path, session: str = "demo") -> list[str]:
    return [record["content"] for record in records_in(root, session)]


def append_file(steno: Steno, path: Path, *arguments: str) -> Ran:
    """Run `steno append demo ARGUMENTS < path`, with the file itself on stdin."""
    with path.open("rb") as file:
        ran = subprocess.run(
            steno.words("append", "demo", *arguments),
            env=steno.environment, stdin=file, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def begin(steno: Steno, *arguments: str) -> "subprocess.Popen[bytes]":
    """Begin `steno append demo ARGUMENTS` with pipes."""
    return subprocess.Popen(
        steno.words("append", "demo", *arguments),
        env=steno.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def remedy_of(ran: Ran) -> list[str]:
    """The words of the command that goes on, without `steno` and the input."""
    found = re.search(r"to go on from line \d+: steno (.*) < ", ran.err)
    assert found is not None, ran.err
    return found[1].split()


def test_more_lines_than_a_batch_are_acknowledged_each_in_order(root: Path) -> None:
    many = limits.BATCH_RECORDS_MAX + 100
    texts = [str(number) for number in range(many)]
    ran = Steno(root)("append", "demo", "--key", "k", stdin=lines_of(*texts))
    assert (ran.code, ran.out) == (0, "".join(f"0:{line}\n" for line in range(many)))
    records = records_in(root, "demo")
    assert [record["content"] for record in records] == texts
    assert [record["_id"] for record in records] == [f"k-{line}" for line in range(1, many + 1)]


def test_nothing_is_stored_after_a_refused_line_and_the_remedy_goes_on(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    texts = [str(number) for number in range(1000)]
    path = tmp_path / "my turns.jsonl"
    path.write_text(lines_of(*texts[:300]) + '{"role":"nobody"}\n' + lines_of(*texts[301:]))
    ran = append_file(steno, path)
    assert ran.code == 1
    assert texts_in(root) == texts[:300]
    assert ran.out.splitlines()[-1] == "0:299"
    said = ran.err.splitlines()[1]
    assert said == (
        "steno: line 301 of stdin was not acknowledged; 300 records before it stay appended; to go"
        f" on from line 301: steno append demo --from-line 301 < '{path}'"
    )
    path.write_text(lines_of(*texts))
    assert append_file(steno, path, *remedy_of(ran)[2:]).code == 0
    assert texts_in(root) == texts


def test_each_line_of_a_slow_producer_is_stored_at_once(root: Path) -> None:
    with begin(Steno(root)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 3, 5):
            process.stdin.write(lines_of(str(number)).encode())
            # Half of the next line holds nothing up.
            process.stdin.write(b'{"role":"user",')
            process.stdin.flush()
            assert process.stdout.readline() == b"0:%d\n" % (number - 1)
            assert texts_in(root)[-1] == str(number)
            process.stdin.write(b'"content":"half"}\n')
            process.stdin.flush()
            assert process.stdout.readline() == b"0:%d\n" % number
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_killed_daemon_loses_and_repeats_no_line(root: Path) -> None:
    texts = [str(number) for number in range(3000)]
    with begin(Steno(root)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, is_next_part = process.stdin, Semaphore()

        def feed() -> None:
            for first in range(0, len(texts), PART):
                assert is_next_part.acquire(timeout=60)
                stdin.write(lines_of(*texts[first : first + PART]).encode())
                stdin.flush()
            stdin.close()

        feeder = Thread(target=feed)
        feeder.start()
        for part in range(3):
            # A position beyond the parts before shows that the next daemon runs: the lines of a
            # part are given only after the daemon before was killed, however far the command was.
            while process.stdout.readline() != b"0:%d\n" % (part * PART + 400):
                assert process.poll() is None
            note = paths.decode_lock_note((root / paths.LOCK).read_bytes())
            assert note is not None
            os.kill(note.pid, signal.SIGKILL)
            is_next_part.release()
        rest = process.stdout.read().splitlines()
        feeder.join()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(timeout=60) == 0, said
    assert rest[-1] == b"0:2999"
    assert texts_in(root) == texts
    # The copies that the client sent under its own keys are nothing that the user did.
    assert b"applied before" not in said


def test_lines_beside_another_writer_are_stored_once_and_in_order(root: Path) -> None:
    texts = [str(number) for number in range(1500)]
    has_begun, is_over = Event(), Event()

    def interfere() -> None:
        with connect_sync(root) as client:
            session = client.open("demo", follow=False)
            while not is_over.is_set():
                session.append_message({"role": "user", "content": "other"})
                has_begun.set()

    other = Thread(target=interfere)
    other.start()
    try:
        assert has_begun.wait(30)
        ran = Steno(root)("append", "demo", stdin=lines_of(*texts))
    finally:
        is_over.set()
        other.join()
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == len(texts)
    found = texts_in(root)
    assert found.count("other") > 0
    assert [text for text in found if text != "other"] == texts


def test_a_line_that_is_too_long_is_named_after_those_before_it(root: Path) -> None:
    long = "x" * limits.RECORD_BYTES_MAX
    ran = Steno(root)("append", "demo", stdin=lines_of("a", "b", long, "c"))
    assert (ran.code, ran.out) == (1, "0:0\n0:1\n")
    assert "line 3 of stdin was not acknowledged; 2 records before it stay appended" in ran.err
    assert "line 3 of stdin is longer than" in ran.err
    assert texts_in(root) == ["a", "b"]


def test_an_expected_head_holds_for_every_line(root: Path, steno: Steno) -> None:
    assert steno("append", "demo", "--expect", "0:0", stdin=lines_of("a", "b", "c")).code == 0
    ran = steno("append", "demo", "--expect", "0:2", stdin=lines_of("d", "e"))
    assert (ran.code, ran.out) == (3, "")
    assert "0:3" in ran.err
    with begin(steno, "--expect", "0:3") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines_of("d").encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"0:3\n"
        assert steno("append", "demo", "other").code == 0
        out, err = process.communicate(lines_of("e", "f").encode(), timeout=60)
    assert (process.returncode, out) == (3, b"")
    assert b"line 2 of stdin was not acknowledged; 1 record before it stays appended" in err
    assert b"--from-line 2 --expect 0:4 < FILE" in err
    assert texts_in(root) == ["a", "b", "c", "d", "other"]


def test_an_interrupt_finishes_the_lines_in_flight_and_says_how_to_go_on(root: Path) -> None:
    with begin(Steno(root), "--durability", "written") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines_of("a", "b").encode())
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"0:0\n", b"0:1\n"]
        process.send_signal(signal.SIGINT)
        err = process.stderr.read().decode() if process.stderr else ""
        assert process.wait(timeout=60) == 130
    assert err.splitlines()[-1] == (
        "steno: interrupted: 2 records before line 3 of stdin stay appended; to go on from line 3:"
        " steno append demo --from-line 3 --durability written < FILE"
    )


def test_an_interrupt_at_full_speed_names_the_first_line_that_is_not_stored(root: Path) -> None:
    texts = [str(number) for number in range(200_000)]
    with begin(Steno(root)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin = process.stdin

        def feed() -> None:
            try:
                stdin.write(lines_of(*texts).encode())
                stdin.close()
            except BrokenPipeError:
                pass

        feeder = Thread(target=feed)
        feeder.start()
        for _ in range(500):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        err = process.stderr.read().decode() if process.stderr else ""
        assert process.wait(timeout=60) == 130
        feeder.join()
    assert "applied before" not in err
    found = re.search(r"interrupted: .* before line (\d+) of stdin", err)
    assert found is not None, err
    stored = texts_in(root)
    assert stored == texts[: int(found[1]) - 1]


def test_a_reached_quota_ends_the_stream_at_its_line(root: Path, steno: Steno) -> None:
    (root / "config.toml").write_text("[disk]\nsession_bytes = 32768\n")
    texts = [f"{number} {'x' * 100}" for number in range(500)]
    ran = steno("append", "demo", stdin=lines_of(*texts))
    assert ran.code == 1
    stored = texts_in(root)
    assert 0 < len(stored) < 500
    assert stored == texts[: len(stored)]
    assert f"line {len(stored) + 1} of stdin was not acknowledged" in ran.err


def test_a_stream_into_a_session_without_keys_survives_a_restart(root: Path, steno: Steno) -> None:
    with connect_sync(root) as client:
        client.open("demo", stamp=False, follow=False)
    with begin(steno) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(lines_of(str(number)).encode())
            process.stdin.flush()
            assert process.stdout.readline() == b"0:%d\n" % (number - 1)
            # The new daemon cannot know the key of the line before.
            assert steno("restart").code == 0
        out, _ = process.communicate(lines_of("3", "4", "5").encode(), timeout=60)
    assert (process.returncode, out) == (0, b"0:2\n0:3\n0:4\n")
    assert texts_in(root) == ["1", "2", "3", "4", "5"]


def test_from_line_skips_lines_and_keeps_their_numbers_in_the_keys(
    root: Path, steno: Steno
) -> None:
    ran = steno("append", "demo", "--key", "k", "--from-line", "2", stdin=lines_of("a", "b", "c"))
    assert ran.code == 0
    assert contents_in(root, "demo") == {"b": 1, "c": 1}
    assert [record["_id"] for record in records_in(root, "demo")] == ["k-2", "k-3"]
    none = steno("append", "demo", "--from-line", "9", stdin=lines_of("a"))
    assert none.code == 1
    assert "stdin held no record from line 9 on" in none.err


def test_a_long_input_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes((b"x" * 999 + b"\n") * 60_000)
    with path.open() as file:
        lines = InputLines(file)
        tracemalloc.start()
        try:
            numbers = 0
            while (line := lines.take(wait=False)) is not None:
                numbers = line.number
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        amounts = (numbers, lines.taken_bytes, lines.total_bytes)
    assert amounts == (60_000, 60_000_000, 60_000_000)
    assert most < 4_000_000


def test_bytes_in_flight_are_bounded(root: Path) -> None:
    record = json.dumps({"role": "user", "content": "x" * limits.MIB}).encode()
    with connect_sync(root) as client:
        before = client.open("demo", follow=False).append_message(record)
        link = BlockingLink(make_target(root, None, "test", spawn=False), 60)
        appends = OrderedAppends(link, "demo", Settled(0, before, 1), "synced", is_alone=False)
        while appends.has_room:
            appends.send(len(appends), record, None)
        assert len(appends) == IN_FLIGHT_BYTES_MAX // limits.MIB
        assert appends.drain() == list(range(8))
        assert appends.has_room
        link.close()


def test_a_reader_that_goes_away_gets_the_command_that_goes_on(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    texts = [str(number) for number in range(6000)]
    path = tmp_path / "turns.jsonl"
    path.write_text(lines_of(*texts))
    with path.open("rb") as file:
        process = subprocess.Popen(
            steno.words("append", "demo"),
            env=steno.environment, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Less than the heads of all lines: the command cannot end before the reader does.
            pipesize=4096,
        )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0:0\n"
        process.stdout.close()
        said = process.stderr.read().decode()
    ran = Ran(process.returncode, "", said)
    assert (ran.code, "Broken pipe" in said) == (6, True)
    stored = texts_in(root)
    assert 0 < len(stored) < len(texts)
    shown = count(len(stored), "record")
    assert f"{shown} before line {len(stored) + 1} of stdin stay appended" in said
    assert append_file(steno, path, *remedy_of(ran)[2:]).code == 0
    assert texts_in(root) == texts


def append_to_full(steno: Steno, path: Path) -> Ran:
    """Run `steno --json append demo < path > /dev/full`."""
    with path.open("rb") as file, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            steno.words("--json", "append", "demo"),
            env=steno.environment, stdin=file, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    return Ran(done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize(
    "words", [["append", "demo", "--batch"], ["stream", "demo", "tools", "--append", "-"]]
)
def test_an_empty_batch_says_what_to_give(root: Path, words: list[str]) -> None:
    ran = Steno(root)(*words, stdin="\n")
    assert ran.code == 1
    assert "stdin held no record, and nothing was appended: give one JSON object a line" in ran.err


def test_a_full_stdout_gets_the_command_that_goes_on(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    texts = [str(number) for number in range(600)]
    path = tmp_path / "turns.jsonl"
    path.write_text(lines_of(*texts))
    ran = append_to_full(steno, path)
    assert ran.code == 6
    assert "No space left on device" in ran.error["message"]
    assert append_file(steno, path, *remedy_of(ran)[2:]).code == 0
    assert texts_in(root) == texts


def test_a_full_stdout_after_the_last_line_leaves_nothing_to_go_on_with(
    root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(lines_of("0"))
    ran = append_to_full(Steno(root), path)
    assert ran.code == 6
    assert ran.error["message"].endswith("1 record stays appended, and stdin holds no further one")
    assert texts_in(root) == ["0"]
