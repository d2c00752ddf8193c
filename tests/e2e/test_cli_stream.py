"""The command `steno stream`, and the other commands on sessions with streams."""

import json
from pathlib import Path

import pytest

from support.command import Steno
from support.daemon_in_thread import DaemonInThread


def lines_of(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def steno(daemon: DaemonInThread) -> Steno:
    return Steno(daemon.root)


def test_stream_is_appended_to_read_listed_and_deleted(steno: Steno) -> None:
    ran = steno("stream", "demo", "notes", "--append", '{"n":  0}')
    assert (ran.code, ran.out) == (0, "0:1\n")
    assert "demo was created" in ran.err
    ran = steno(
        "stream", "demo", "notes", "--append", "-", "--key", "k", stdin='{"n":1}\n{"n":2}\n'
    )
    assert ran.out == "0:3\n"
    ran = steno(
        "stream", "demo", "notes", "--append", "-", "--key", "k", stdin='{"n":1}\n{"n":2}\n'
    )
    assert (ran.out, "applied before" in ran.err) == ("0:3\n", True)
    assert steno("stream", "demo", "notes").out == '{"n":  0}\n{"n":1}\n{"n":2}\n'
    assert lines_of(steno("stream", "demo", "notes", "-n", "1").out) == [{"n": 2}]
    span = steno("stream", "demo", "notes", "--after", "0:1", "--until", "0:2", "--json").documents
    assert [(each["cursor"], each["key"], each["record"]) for each in span] == [
        ("0:1", "k", {"n": 1})
    ]
    [listed] = steno("stream", "demo", "--json").document["streams"]
    assert (listed["name"], listed["records"], listed["head"]) == ("notes", 3, "0:3")
    assert steno("stream", "demo").out.startswith("notes")
    refused = steno("stream", "demo", "notes", "--append", "{}", "--expect", "0:1", "--json")
    assert (refused.code != 0, refused.error["code"], refused.error["head"]) == (
        True, "conflict", "0:3",
    )  # fmt: skip
    ran = steno("stream", "demo", "notes", "--delete", "--key", "d")
    assert Path(ran.out.strip()).read_bytes().count(b"\n") == 3
    assert steno("stream", "demo", "notes", "--delete", "--key", "d").out == ran.out
    assert "has no stream" in steno("stream", "demo").err


def test_a_refused_record_creates_no_session(steno: Steno) -> None:
    for record in ("[1]", "{", '{"_id":"x"}'):
        assert steno("stream", "demo", "notes", "--append", record).code != 0
    assert steno("sessions").out == ""


def test_follow_prints_new_records(steno: Steno) -> None:
    for number in range(3):
        steno("stream", "demo", "notes", "--append", json.dumps({"n": number}))
    following = steno.begin("stream", "demo", "notes", "-n", "1", "-f")
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline()) == {"n": 2}
        steno("stream", "demo", "notes", "--append", '{"n":3}')
        assert json.loads(following.stdout.readline()) == {"n": 3}
    finally:
        following.terminate()
        following.communicate(timeout=20)


def test_export_import_and_doctor_take_streams_along(steno: Steno, tmp_path: Path) -> None:
    record = '{"n": 1.0,"n":2}'
    steno("append", "demo", "hi")
    steno("stream", "demo", "gone", "--append", "{}")
    steno("stream", "demo", "gone", "--delete")
    steno("stream", "demo", "notes", "--append", record)
    document = json.loads(steno("export", "demo", "--json").out)
    assert [each["record"] for each in document["streams"]["notes"]] == [{"n": 2}]
    folder = tmp_path / "copy"
    assert steno("export", "demo", "--format", "kimi", "-o", str(folder)).code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "context.jsonl", "stream-notes.jsonl",
    ]  # fmt: skip
    assert (folder / "stream-notes.jsonl").read_text() == record + "\n"
    assert steno("import", str(folder), "again").code == 0
    assert steno("stream", "again", "notes").out == record + "\n"
    assert steno("verify", "demo").code == 0
    source = steno.root / "sessions" / "demo"
    assert steno("import", str(source), "whole").code == 0
    assert steno("stream", "whole", "notes").out == record + "\n"
    assert "nothing to report" in steno("doctor").out
