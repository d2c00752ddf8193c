"""Progress of long commands on a terminal: a total that is known before the work begins."""

import io
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from steno import connect_sync
from steno_cli.entry import main
from steno_cli.render import progress as module

RECORDS = 4000


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The messages of commands on a terminal where each look at the clock takes a second."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = itertools.count(0.0, 1.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=now.__next__))
    # The thread draws at its own times, which no test can know.
    monkeypatch.setattr(module.Progress, "_tick", lambda _: None)
    talk = Terminal()
    # pytest exchanges the streams of `sys` between the fixtures and the test.
    streams = SimpleNamespace(stdout=io.StringIO(), stderr=talk)
    monkeypatch.setattr("steno_cli.entry.sys", streams)
    monkeypatch.setenv("COLUMNS", "120")
    return talk


@pytest.fixture
def session(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session of some blocks, with events and a stream."""
    monkeypatch.setenv("STENO_HOME", str(root))
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        messages = [{"role": "user", "content": f"message {n} " * 20} for n in range(RECORDS)]
        session.append_message(messages)
        session.append_wire([("TurnBegin", {"user_input": "x" * 1000})] * 200)
        session.stream("notes").append([{"text": "note " * 100}] * 200)
    return "demo"


def parts_of(talk: io.StringIO, doing: str) -> list[int]:
    """The shown percentages; each line has a rate, and a time left before the end."""
    lines = [line for line in talk.getvalue().split("\r\x1b[K") if line.startswith(f"{doing}: ")]
    bars = [re.search(r"(\d+) %, (.*)", line) for line in lines]
    found = [(int(bar[1]), bar[2]) for bar in bars if bar]
    assert all("B/s" in rest for _, rest in found)
    assert all(" left" in rest for part, rest in found if 0 < part < 100)
    return [part for part, _ in found]


def assert_counts_to_the_end(parts: list[int]) -> None:
    assert parts == sorted(parts)
    assert min(parts) < 60
    assert max(parts) >= 99


def test_commands_that_read_know_their_totals(
    session: str, root: Path, talk: io.StringIO, tmp_path: Path
) -> None:
    folder = root / "sessions" / session
    for doing, *words in (
        ("exporting", "export", session, "-o", str(tmp_path / "out.md")),
        ("exporting", "export", session, "--format", "json", "-o", str(tmp_path / "out.json")),
        ("searching", "grep", "message"),
        ("checking", "verify", str(folder)),
        ("checking", "repair", str(folder / "context.jsonl")),
    ):
        talk.seek(0)
        talk.truncate()
        assert main(words) == 0
        parts = parts_of(talk, doing)
        assert parts == sorted(parts), words
        assert max(parts) >= 99, words


def test_export_and_import_of_a_folder_know_their_totals(
    session: str, talk: io.StringIO, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    assert main(["export", session, "--format", "kimi", "-o", str(folder)]) == 0
    parts = parts_of(talk, "exporting")
    assert parts == sorted(parts)
    # Recovery points and the timeline belong to the folder, and not to the copy.
    assert max(parts) > 90
    talk.seek(0)
    talk.truncate()
    (folder / "uploads").mkdir()
    for number in range(4):
        (folder / "uploads" / f"{number}.bin").write_bytes(b"x" * 500_000)
    assert main(["import", str(folder), "again"]) == 0
    assert_counts_to_the_end(parts_of(talk, "importing"))


def test_import_of_another_agents_transcript_counts_its_passes(
    root: Path, talk: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STENO_HOME", str(root))
    file = tmp_path / "project" / "11111111-2222-4333-8444-555555555555.jsonl"
    file.parent.mkdir()
    lines = [
        {
            "type": "user", "uuid": str(number), "sessionId": file.stem, "parentUuid": None,
            "timestamp": "2026-11-21T15:04:05Z", "cwd": "/tmp", "version": "2.0.0",
            "isSidechain": False, "userType": "external",
            "message": {"role": "user", "content": f"hello {number}"},
        }
        for number in range(50)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["import", str(file)]) == 0
    assert_counts_to_the_end(parts_of(talk, "importing"))


def test_show_has_a_line_while_the_daemon_opens_the_session(
    session: str, talk: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread draws the line while the daemon does not answer.
    monkeypatch.setattr(module.Progress, "_tick", module.Progress._draw)
    assert main(["show", session, "--no-pager"]) == 0
    drawn = [line for line in talk.getvalue().split("\r\x1b[K") if line]
    assert [line.partition(":")[0] for line in drawn] == [f"opening {session}"]
    assert talk.getvalue().endswith("\r\x1b[K")
