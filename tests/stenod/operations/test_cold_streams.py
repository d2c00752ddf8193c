"""Streams that a rule compresses: everything that reads them reads them as before."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest

import steno
from steno_protocol import compression, limits, paths
from steno_protocol.commands import Gc, Verify
from steno_protocol.errors import BadRequest
from steno_protocol.replies import GcReport, Verification
from stenod.operations import cold_streams
from stenod.recovery import cold_streams as closed_streams
from stenod.store import usage
from support.daemon_in_thread import DaemonInThread

RULE = "streams_compressed_days = 1e-9"
NAMED = "retention.streams_compressed_days = 1e-09"
NAME = paths.stream_file("notes")
PACKED = paths.compressed_file(NAME)
RECORDS = 300


@contextmanager
def served(root: Path) -> Iterator[steno.BlockingClient]:
    """A client of a new daemon, to which all sessions are closed."""
    with DaemonInThread(root) as daemon, steno.connect_sync(root, spawn=False) as connected:
        DAEMONS[connected] = daemon
        yield connected


DAEMONS: WeakKeyDictionary[steno.BlockingClient, DaemonInThread] = WeakKeyDictionary()


def collect(client: steno.BlockingClient, rules: str = RULE, *, dry_run: bool = False) -> GcReport:
    """Follow the rules, which only this call sets: a daemon follows those that it starts with."""
    daemon = DAEMONS[client]
    config = daemon.root / paths.CONFIG
    before = config.read_text() if config.exists() else ""
    config.write_text(f"{before}[retention]\n{rules}\n")
    daemon.reload()
    config.write_text(before)
    return client.request(Gc(retention=True, dry_run=dry_run), GcReport)[0]


def record(number: int) -> dict[str, Any]:
    return {"number": number, "text": "the same words again " * 5}


def fill(root: Path, session: str = "demo") -> Path:
    """A closed session with a stream; returns its folder."""
    with served(root) as client:
        opened = client.open(session, follow=False)
        opened.append_message({"role": "user", "content": "hi"})
        stream = opened.stream("notes")
        for number in range(RECORDS):
            stream.append(record(number), key=f"key-{number}")
        return Path(client.stat(session).folder)


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of a closed session with a compressed stream."""
    found = fill(root)
    with served(root) as client:
        assert collect(client).compressed == 1
    assert forms(found) == {PACKED}
    return found


def forms(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("stream-*") if path.suffix != ".mark"}


def digest(client: steno.BlockingClient, session: str = "demo") -> str:
    lines = client.session(session).stream("notes").lines()
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def check(client: steno.BlockingClient, session: str = "demo") -> Verification:
    return client.request(Verify(session=session), Verification)[0]


def seen(client: steno.BlockingClient) -> list[Any]:
    """What the daemon says of a session and its stream, without an opening."""
    session = client.session("demo")
    return [
        list(client.sessions()), client.stat("demo"), list(session.streams()), check(client),
        digest(client), session.stream("notes").head(),
    ]  # fmt: skip


def test_the_rule_names_the_stream_and_all_reads_are_as_before(root: Path) -> None:
    folder = fill(root)
    plain = (folder / NAME).stat()
    changed_at = usage.changed_at(str(folder))
    with served(root) as client:
        before = seen(client)
        dry = collect(client, dry_run=True)
        assert forms(folder) == {NAME}
        assert [(each.file, each.bytes, each.rule, each.compressed) for each in dry.entries] == [
            (NAME, plain.st_size, NAMED, True)
        ]
        assert (dry.files, dry.bytes, dry.compressed) == (0, 0, 1)
        report = collect(client)
        assert [(each.file, each.rule) for each in report.entries] == [(NAME, NAMED)]
        assert (report.files, report.compressed, report.failed) == (0, 1, [])
        assert report.bytes == report.entries[0].bytes > plain.st_size // 2
        assert forms(folder) == {PACKED}
        assert seen(client) == before
        # No read has opened it.
        assert forms(folder) == {PACKED}
        assert collect(client).entries == []
    assert not before[3].findings
    assert (folder / PACKED).stat().st_mtime_ns == plain.st_mtime_ns
    assert usage.changed_at(str(folder)) == changed_at


def test_the_streams_of_an_open_session_stay_plain(root: Path) -> None:
    folder = fill(root)
    with served(root) as client:
        client.open("demo", follow=False)
        assert collect(client, dry_run=True).entries == []
        assert collect(client).entries == []
    assert forms(folder) == {NAME}


def test_an_append_goes_on_where_the_compressed_stream_ended(root: Path, folder: Path) -> None:
    with served(root) as client:
        stream = client.session("demo").stream("notes")
        before = digest(client)
        again = stream.append(record(7), key="key-7")
        assert again.duplicate
        assert str(again.first) == "0:7"
        assert forms(folder) == {NAME}
        assert digest(client) == before
        assert str(stream.append(record(RECORDS), key="key-new").first) == f"0:{RECORDS}"
        assert not check(client).findings
    with served(root) as client:
        # The same rule compresses it again, as soon as the session is closed.
        assert collect(client).compressed == 1
        assert client.session("demo").stream("notes").head().line == RECORDS + 1
        assert forms(folder) == {PACKED}


def test_a_follower_gets_the_backlog_and_what_comes(root: Path, folder: Path) -> None:
    with served(root) as client:
        stream = client.session("demo").stream("notes")
        with stream.subscribe(after=steno.Position(0, RECORDS - 1)) as events:
            stream.append(record(RECORDS))
            numbers = itertools.chain.from_iterable(
                [json.loads(line)["number"] for line in event.block.splitlines()]
                for event in events
                if isinstance(event, steno.RecordsEvent)
            )
            assert list(itertools.islice(numbers, 2)) == [RECORDS - 1, RECORDS]
    assert forms(folder) == {NAME}


def test_a_large_stream_is_expanded_once_for_a_read(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(root) as client:
        before = digest(client)
        assert forms(folder) == {PACKED}
        monkeypatch.setattr(limits, "EXPANDED_TO_READ_BYTES_MAX", 1000)
        assert digest(client) == before
        assert forms(folder) == {NAME}


def test_a_fork_and_a_renamed_and_a_restored_session_have_the_stream(
    root: Path, folder: Path
) -> None:
    with served(root) as client:
        before = digest(client)
        client.session("demo").fork("fork")
        assert digest(client, "fork") == before
        # The fork opened it to record itself, and not the stream.
        assert forms(folder) == {PACKED}
        client.rename("demo", "moved")
        assert digest(client, "moved") == before
        client.delete("moved")
        client.undelete("moved")
        assert digest(client, "moved") == before
        assert forms(folder.with_name("moved")) == {PACKED}
        for session in ("fork", "moved"):
            assert not check(client, session).findings


def test_a_fork_takes_the_room_of_the_plain_stream(root: Path, folder: Path) -> None:
    plain = sum(len(msgspec.json.encode(record(number))) for number in range(RECORDS))
    assert (folder / PACKED).stat().st_size < plain // 2
    (root / paths.CONFIG).write_text(f"[disk]\nsession_bytes = {plain}\n")
    with served(root) as client:
        with pytest.raises(steno.TooLarge, match="quota"):
            client.session("demo").fork("fork")
        # What the session has on the disk is within the quota.
        client.session("demo").append_message({"role": "user", "content": "hi"})
    assert forms(folder) == {PACKED}


def test_a_deleted_stream_is_gone_and_its_generation_is_read(root: Path, folder: Path) -> None:
    with served(root) as client:
        stream = client.session("demo").stream("notes")
        before = digest(client)
        stream.delete()
        assert str(stream.head()) == "1:0"
        old = stream.lines(steno.Position(0, 0))
        assert hashlib.sha256(b"\n".join(old)).hexdigest() == before
        (deleted,) = forms(folder)
        assert deleted.startswith("stream-notes~1~")


def test_no_command_opens_a_session_whose_stream_is_being_compressed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(root)
    refused: list[steno.StenoError] = []
    read: list[str] = []
    with (
        served(root) as client,
        # A client repeats what is refused so until its time is over.
        steno.connect_sync(root, spawn=False, timeout=0.2) as other,
    ):
        before = digest(client)
        real = cold_streams.compress_stream

        def compress(*arguments: Any) -> int:
            try:
                other.session("demo").stream("notes").append(record(RECORDS))
            except steno.StenoError as error:
                refused.append(error)
            # A read finds either form.
            read.append(digest(other))
            return real(*arguments)

        monkeypatch.setattr(cold_streams, "compress_stream", compress)
        assert collect(client).compressed == 1
        assert digest(client) == before, "it was appended"
        client.session("demo").stream("notes").append(record(RECORDS))
    # The end of its time may come while it asks once more.
    assert len(refused) == 1
    assert isinstance(refused[0], (steno.Busy, steno.OutcomeUnknown))
    assert read == [before]
    assert forms(folder) == {NAME}


def test_a_stream_that_changed_since_it_was_chosen_stays_plain(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(root)
    with served(root) as client:
        real = cold_streams.ColdStreams._compress

        async def compress(self: Any, *arguments: Any) -> int:
            os.utime(folder / NAME)
            return await real(self, *arguments)

        monkeypatch.setattr(cold_streams.ColdStreams, "_compress", compress)
        assert collect(client).compressed == 0
    assert forms(folder) == {NAME}


def test_a_collection_looks_at_the_lines_of_each_stream_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(root)
    for number in range(4):
        (folder / paths.stream_file(f"more{number}")).write_bytes((folder / NAME).read_bytes())
    looked: list[str] = []
    real = closed_streams._is_whole

    def look(disk: Any, folder: int, name: str, *arguments: Any) -> bool:
        looked.append(name)
        return real(disk, folder, name, *arguments)

    monkeypatch.setattr(closed_streams, "_is_whole", look)
    with served(root) as client:
        assert collect(client).compressed == 5
    assert len(looked) == 5


def test_a_damaged_compressed_stream_is_an_error_that_says_what_to_do(
    root: Path, folder: Path
) -> None:
    packed = folder / PACKED
    packed.write_bytes(packed.read_bytes()[:-9])
    with served(root) as client:
        stream = client.session("demo").stream("notes")
        for use in (lambda: list(stream.lines()), lambda: stream.append(record(0)), stream.head):
            with pytest.raises(steno.Corrupt) as caught:
                use()
            assert caught.value.session == "demo"
            assert PACKED in caught.value.message
            assert "take it from a backup" in caught.value.message
            assert "repair the disk" not in caught.value.message
        (finding,) = check(client).findings
        assert (finding.file, finding.damage) == (NAME, True)
        # The rest of the session is as ever.
        client.session("demo").append_message({"role": "user", "content": "still here"})
    assert forms(folder) == {PACKED}


def test_two_forms_with_other_bytes_are_an_error_that_says_what_to_do(
    root: Path, folder: Path
) -> None:
    (folder / NAME).write_bytes(b'{"number":0}\n')
    with served(root) as client:
        with pytest.raises(steno.Corrupt) as caught:
            client.session("demo").stream("notes").append(record(0))
        assert str(folder / PACKED) in caught.value.message
        assert "remove one of them" in caught.value.message
        assert "make room" not in caught.value.message
    assert forms(folder) == {NAME, PACKED}


def test_a_stream_that_cannot_be_compressed_does_not_keep_the_others_plain(
    root: Path, folder: Path
) -> None:
    for stream in ("notes", "others"):
        (folder / paths.stream_file(stream)).write_bytes(b'{"number":0}\n' * 2 * RECORDS)
    with served(root) as client:
        report = collect(client)
    assert [each.file for each in report.entries] == [paths.stream_file("others")]
    (failed,) = report.failed
    assert failed.startswith("demo: ")
    assert "remove one of them" in failed


def test_without_zstd_nothing_is_lost_and_the_error_names_the_command(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(what: str) -> object:
        raise BadRequest(f"{what} needs zstd: install it")

    with served(root) as client:
        before = digest(client)
        monkeypatch.setattr(compression, "_package", missing)
        stream = client.session("demo").stream("notes")
        for use in (lambda: list(stream.lines()), lambda: stream.append(record(0))):
            with pytest.raises(steno.StorageFailed, match="needs zstd: install it") as caught:
                use()
            assert "disk" not in caught.value.message
        assert collect(client).failed == ["compressing files needs zstd: install it"]
        monkeypatch.undo()
        assert digest(client) == before
