"""Sessions that the journal never had join many at a time; all others are left to `acquire`."""

import itertools
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from errno import EIO
from pathlib import Path

import pytest

from stenod.store.disk import Disk
from stenod_cluster import limits, mirror
from stenod_cluster.journal import JournalLost, Message, Publication
from stenod_cluster.mirror import save_first_mark
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line
from support.simulated_disk import Moment, ProcessKilled, SimulatedDisk
from support.whole_sessions import TREE

SESSIONS = ["a", "b", "b/c", "d"]
A, B = line("a"), line("b")


def put(host: Host, *sessions: str, data: bytes = A) -> None:
    """Let a host have sessions from before it joined."""
    for session in sessions:
        folder = Path(host.tree, session)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "context.jsonl").write_bytes(data)
        (folder / "timeline.jsonl").write_bytes(line(session))


def rounds_of(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages of each publication from now on."""
    found: list[int] = []
    publish = host.journal.publish

    def counted(publications: object) -> object:
        found.append(len(publications))  # type: ignore[arg-type]
        return publish(publications)  # type: ignore[arg-type]

    monkeypatch.setattr(host.journal, "publish", counted)
    return found


def check_each_once(stream: MemoryStream, one: Host, two: Host) -> None:
    """The journal has each session once, and another host that takes over has its files."""
    assert len(stream.counts()) == len(SESSIONS)
    one.close()
    two.now += 100.0
    for session in SESSIONS:
        two.ownership.acquire(session)
        assert two.content(session) == one.content(session)


def test_new_sessions_join_in_one_round_trip_and_another_host_has_all_of_them(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(one, *SESSIONS)
    rounds = rounds_of(one, monkeypatch)
    assert one.ownership.acquire_new(SESSIONS) == []
    assert rounds == [len(SESSIONS)]
    for session in SESSIONS:
        # It is owned, and its mark is saved: nothing more is published.
        folder = one.ownership.acquire(session)
        assert folder is not None
        assert not folder.is_behind_mark
        mark = one.ownership.copies.mark(session)
        assert mark is not None
        assert mark.sequence == folder.sequence
    assert rounds == [len(SESSIONS)]
    before = {session: one.content(session) for session in SESSIONS}
    one.close()
    two.now += 100.0
    for session in SESSIONS:
        two.ownership.acquire(session)
        assert two.content(session) == before[session]


def test_what_needs_more_is_left_as_it_is_and_stops_no_other(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    put(two, "theirs", "gone", data=B)
    two.ownership.acquire_new(["theirs", "gone"])
    put(one, "theirs", "new", "used")
    one.ownership.acquire("used")
    Path(one.tree, "empty").mkdir()
    asked = ["theirs", "nowhere", "empty", "used", "new", "new"]
    assert one.ownership.acquire_new(asked) == ["theirs", "nowhere", "empty", "used"]
    assert sorted(stream.names()) == ["gone", "new", "theirs", "used"]
    assert one.content("theirs")["context.jsonl"] == A
    assert one.ownership.copies.mark("theirs") is None
    # Another thread opens it.
    put(one, "opened", "later")
    with one.ownership.alone("opened"):
        assert one.ownership.acquire_new(["opened", "later"]) == ["opened"]


def test_a_session_that_is_being_created_is_left_to_its_writer(
    one: Host, stream: MemoryStream
) -> None:
    disk = one.disk
    folder = disk.open_folder(disk.open_root(one.tree), "s", create=True)
    handle = disk.open_append(folder, "context.jsonl", create=True)
    disk.write(handle, A)
    assert one.ownership.acquire_new(["s"]) == ["s"]
    disk.fdatasync(handle)
    assert len(stream.counts()) == 1


def test_a_copy_of_a_session_that_was_removed_for_good_does_not_come_back(
    one: Host, stream: MemoryStream
) -> None:
    put(one, "s")
    assert one.ownership.acquire_new(["s"]) == []
    one.start()
    stream._messages.clear()
    assert one.ownership.acquire_new(["s"]) == ["s"]
    assert stream.names() == []


def test_a_session_whose_creation_was_refused_by_a_lost_stream_does_not_join(
    one: Host, stream: MemoryStream
) -> None:
    put(one, "s", data=b"")
    Path(one.tree, "s", "timeline.jsonl").unlink()
    with one.ownership.opened("s") as folder:
        save_first_mark(one.local, folder, "one", "identity", "stream-0")
    assert one.ownership.acquire_new(["s"]) == ["s"]
    assert stream.names() == []


def test_a_folder_and_its_copy_join_as_two_sessions_after_a_loss_of_the_stream(
    one: Host, stream: MemoryStream
) -> None:
    put(one, "a")
    assert one.ownership.acquire_new(["a"]) == []
    identity = stream.identity_of("a")
    Path(one.tree, "copy").mkdir()
    for file in Path(one.tree, "a").iterdir():
        Path(one.tree, "copy", file.name).write_bytes(file.read_bytes())
    stream._messages.clear()
    stream.began, stream.identity = stream._sequence, "stream-2"
    one.start()
    # The first of them keeps the identity, by which other hosts know it.
    assert one.ownership.acquire_new(["a", "copy"]) == ["copy"]
    assert one.ownership.acquire("copy") is not None
    assert stream.identity_of("a") == identity != stream.identity_of("copy")


def test_a_copy_that_another_host_took_over_is_left_after_a_loss_of_the_stream(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    put(one, "s")
    assert one.ownership.acquire_new(["s"]) == []
    one.hosts.tell_ended()
    two.ownership.acquire("s")
    one.ownership.look_for_losses()
    stream._messages.clear()
    stream.began, stream.identity = stream._sequence, "stream-2"
    for host in (one, two):
        host.start()
    assert one.ownership.acquire_new(["s"]) == ["s"]
    assert stream.names() == []
    assert two.ownership.acquire_new(["s"]) == []


def test_sessions_without_an_answer_are_left_and_join_later(
    one: Host, stream: MemoryStream
) -> None:
    put(one, *SESSIONS)
    stream.partition("one")
    assert one.ownership.acquire_new(SESSIONS) == SESSIONS
    with pytest.raises(JournalLost):
        one.ownership.acquire("a")
    stream.heal("one")
    assert one.ownership.acquire_new(SESSIONS) == []


def test_a_lost_journal_is_asked_once_for_all_copies_that_another_host_took_over(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(one, *SESSIONS)
    assert one.ownership.acquire_new(SESSIONS) == []
    one.hosts.tell_ended()
    for session in SESSIONS:
        two.ownership.acquire(session)
    one.ownership.look_for_losses()
    stream._messages.clear()
    stream.began, stream.identity = stream._sequence, "stream-2"
    one.start()
    stream.partition("one")
    asked: list[str] = []
    last = one.journal.last

    def noted(subject: str) -> Message | None:
        asked.append(subject)
        return last(subject)

    monkeypatch.setattr(one.journal, "last", noted)
    assert one.ownership.acquire_new(SESSIONS) == SESSIONS
    assert len(asked) == 1


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_session_in_doubt_joins_once(
    one: Host, two: Host, stream: MemoryStream, *, is_stored: bool
) -> None:
    put(one, *SESSIONS)
    stream.force("one", Fault.LATE)
    assert one.ownership.acquire_new(SESSIONS) == SESSIONS[:1]
    if is_stored:
        stream.settle()
    for session in one.ownership.acquire_new(SESSIONS[:1]):
        one.ownership.acquire(session)
    stream.settle()
    check_each_once(stream, one, two)


def test_a_disk_that_fails_behind_the_publication_doubles_no_session(
    one: Host, two: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handles: Sequence[int]) -> list[OSError | None]:
        return [*[None] * (len(handles) - 1), OSError(EIO, "the disk fails")]

    put(one, *SESSIONS)
    with monkeypatch.context() as failing:
        failing.setattr(one.local, "fdatasync_all", fail)
        with pytest.raises(OSError, match="the disk fails"):
            one.ownership.acquire_new(SESSIONS)
    assert one.ownership.acquire_new(SESSIONS) == SESSIONS
    for session in SESSIONS:
        assert one.ownership.acquire(session) is not None
    check_each_once(stream, one, two)


@pytest.mark.parametrize("sessions", [SESSIONS, ["a"]])
def test_a_folder_that_vanishes_behind_the_publication_stops_no_other(
    one: Host, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch, sessions: list[str]
) -> None:
    publish = one.journal.publish
    replacing = mirror.replacing

    def published(publications: Sequence[Publication]) -> list[int | OSError]:
        found = publish(publications)
        gone.append(Path(one.tree, "a"))
        return found

    def vanish(disk: Disk, folder: int, name: str) -> AbstractContextManager[int]:
        for each in gone:
            shutil.rmtree(each, ignore_errors=True)
        return replacing(disk, folder, name)

    gone: list[Path] = []
    put(one, *sessions)
    monkeypatch.setattr(one.journal, "publish", published)
    monkeypatch.setattr(mirror, "replacing", vanish)
    assert one.ownership.acquire_new(sessions) == []
    for session in sessions:
        folder = one.ownership.found(session)
        assert folder is not None
        assert folder.is_behind_mark
    assert len(stream.counts()) == len(sessions)


def test_sessions_in_memory_at_a_time_are_bounded(
    one: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(one, *SESSIONS)
    monkeypatch.setattr(limits, "JOIN_BYTES", 2 * len(A))
    assert one.ownership.acquire_new(SESSIONS) == SESSIONS[1:]
    monkeypatch.setattr(limits, "JOIN_BYTES", 2 * len(A) + len(line("a")) + 1)
    assert one.ownership.acquire_new(SESSIONS[1:]) == SESSIONS[3:]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_in_a_join_neither_doubles_nor_loses_a_session(moment: Moment) -> None:
    for number in itertools.count():
        stream, disk = MemoryStream(), SimulatedDisk()
        for session in SESSIONS:
            disk.foreign.make_folder(f"{TREE}/{session}")
            disk.foreign.replace(f"{TREE}/{session}/context.jsonl", line(session))
        disk.sync_all()
        host = Host(stream, "one", TREE, disk)
        before = disk.tree()
        disk.kill_at(len(disk.calls) + number, moment)
        with suppress(ProcessKilled):
            host.ownership.acquire_new(SESSIONS)
        is_over = not disk.died
        if not is_over:
            disk.restart()
            host.start()
            for session in host.ownership.acquire_new(SESSIONS):
                host.ownership.acquire(session)
        assert sorted(stream.names()) == SESSIONS
        assert len(stream.counts()) == len(SESSIONS), "a session was published twice"
        found = {path: data for path, data in disk.tree().items() if ".mark" not in path}
        assert found == before, f"died {moment} call {number}"
        other = Host(stream, "two", TREE, SimulatedDisk())
        other.now += 100.0
        host.journal.close()
        for session in SESSIONS:
            other.ownership.acquire(session)
        shown = other.local.tree()  # type: ignore[attr-defined]
        assert {path: data for path, data in shown.items() if ".mark" not in path} == before
        if is_over:
            # Four for each mark.
            assert number >= 4 * len(SESSIONS)
            return
