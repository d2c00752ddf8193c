"""The replicated disk: two hosts, a journal in memory, real files."""

import itertools
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from errno import EIO
from pathlib import Path

import anyio
import pytest

from steno_protocol import paths
from steno_protocol.commands import DeleteStream
from steno_protocol.errors import Held
from stenod.core.recovery_point import decode_recovery_point
from stenod.recovery import recovery_points
from stenod.recovery.cold_streams import expand_stream
from stenod.sessions import streams
from stenod.sessions.session_folders import Place
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.jsonl import JsonlLog
from stenod.store.log import Copy
from stenod.store.names import replacing
from stenod.store.posix import PosixDisk
from stenod_cluster import limits
from stenod_cluster.journal import Fenced, ForeignMessage, JournalLost, Publication
from stenod_cluster.owned_folder import OwnedFolder
from support.compressed import compress_past, compress_streams
from support.memory_journal import Fault, MemoryStream
from support.replicated import Host, line


class CountingDisk(PosixDisk):
    """A disk that counts the bytes that are read, and the writes."""

    read_bytes = 0
    writes = 0

    def write(self, handle: int, data: bytes) -> int:
        """See `Disk`."""
        self.writes += 1
        return super().write(handle, data)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See `Disk`."""
        data = super().read(handle, size, offset)
        self.read_bytes += len(data)
        return data


REVERT = b'{"kind":"reverted","generation":1,"at":1.0,"details":{"next_id":0}}\n'
CLEAR = b'{"kind":"cleared","generation":1,"at":1.0,"details":{"next_id":0}}\n'
"""Intents of rewrites, with the next checkpoint id as the daemon records it."""


def succeed(host: Host, dead: Host) -> None:
    """Let `host` find `dead` silent for longer than a death takes."""
    del dead
    host.now += 100.0


def test_another_host_has_the_same_files_after_a_takeover(one: Host, two: Host) -> None:
    log = one.open("a/b").log
    log.append(line("1"))
    log.sync()
    log.append(line("2"))
    log.sync()
    log.replace([Copy(0, 0, len(line("1"))), line("3")], REVERT)
    succeed(two, one)
    two.open("a/b")
    assert two.content("a/b") == one.content("a/b")
    assert two.content("a/b")["context.jsonl"] == line("1") + line("3")


def test_a_living_owner_is_named(one: Host, two: Host) -> None:
    one.open("s")
    one.hosts.tell_alive()
    with pytest.raises(Held) as refused:
        two.open("s")
    assert refused.value.endpoint == "ipc:///one"


def test_a_stale_owner_is_refused_by_the_journal(one: Host, two: Host) -> None:
    log = one.open("s").log
    succeed(two, one)
    two.open("s")
    log.append(line("late"))
    with pytest.raises(Fenced):
        log.sync()
    one.close()
    one.now += 100.0
    one.open("s")
    assert one.content("s")["context.jsonl"] == b""
    assert two.content("s")["context.jsonl"] == b""


def test_a_killed_daemon_finds_its_own_files_and_keeps_written_lines(one: Host) -> None:
    log = one.open("s").log
    log.append(line("synced"))
    log.sync()
    log.append(line("written"))
    one.start()
    again = one.open("s").log
    assert again.read(0, 0, 1000) == line("synced") + line("written")


def test_an_older_mirror_gets_what_it_lacks(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    succeed(two, one)
    log = two.open("s").log
    two.ownership.close()
    log.append(line("2"))
    log.sync()
    log.replace([line("3")], CLEAR)
    one.now += 100.0
    one.start()
    one.now += 100.0
    one.open("s")
    assert one.content("s") == two.content("s")
    assert not Path(one.tree, "s", "quarantine").exists()


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.DROPPED, Fault.LATE])
def test_a_doubt_is_settled_behind_the_next_message(
    one: Host, two: Host, stream: MemoryStream, fault: Fault
) -> None:
    log = one.open("s").log
    stream.force("one", fault)
    log.append(line("1"))
    with pytest.raises(OSError):
        log.sync()
    log.discard_unsynced()
    log.append(line("2"))
    log.sync()
    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("2")
    assert two.content("s") == one.content("s")


def test_without_the_journal_nothing_is_durable(one: Host, stream: MemoryStream) -> None:
    log = one.open("s").log
    stream.partition("one")
    log.append(line("1"))
    with pytest.raises(JournalLost):
        log.sync()
    stream.heal("one")
    log.sync()
    assert log.synced == len(line("1"))


def test_a_session_from_before_joins_whole(one: Host, two: Host, stream: MemoryStream) -> None:
    folder = Path(one.tree, "old")
    folder.mkdir()
    (folder / "context.jsonl").write_bytes(line("1") * 60_000)
    (folder / "state.json").write_bytes(b"{}")
    one.open("old")
    assert stream.counts()[stream.identity_of("old")] > 2
    succeed(two, one)
    two.open("old")
    assert two.content("old") == one.content("old")


def test_a_session_from_before_joins_with_its_compressed_generations(one: Host, two: Host) -> None:
    folder = Path(one.tree, "old")
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"context_{number}.jsonl").write_bytes(line(str(number)) * 50)
    (folder / "context.jsonl").write_bytes(line("4"))
    compress_past(folder)
    one.open("old")
    succeed(two, one)
    log = two.open("old").log
    assert two.content("old") == one.content("old")
    assert log.generations() == [0, 1, 2, 3]
    assert [log.read(number, 0, 10_000) for number in (0, 1)] == [
        line("1") * 50,
        line("2") * 50,
    ]


@pytest.mark.parametrize("is_first", [True, False], ids=["its own host", "the next host"])
def test_a_compressed_stream_from_before_is_expanded_on_any_host(
    one: Host, two: Host, is_first: bool
) -> None:
    folder, name = Path(one.tree, "old"), "stream-notes.jsonl"
    folder.mkdir()
    (folder / "context.jsonl").write_bytes(line("1"))
    (folder / name).write_bytes(line("2") * 50)
    assert compress_streams(folder) == [f"{name}.zst"]
    one.open("old")
    if is_first:
        expand(one, name)
    succeed(two, one)
    two.open("old")
    assert two.content("old") == one.content("old")
    expand(two, name)
    assert two.content("old")[name] == line("2") * 50
    assert f"{name}.zst" not in two.content("old")


def expand(host: Host, name: str) -> None:
    """Give a stream its plain form, as its opening does."""
    handle = host.disk.open_root(host.tree)
    folder = host.disk.open_folder(handle, "old")
    expand_stream(host.disk, folder, name)
    for each in (folder, handle):
        host.disk.close(each)


def test_a_file_whose_name_is_not_utf8_stays_on_its_host(one: Host, two: Host) -> None:
    folder = Path(one.tree, "old")
    folder.mkdir()
    (folder / "context.jsonl").write_bytes(line("1"))
    theirs = folder / os.fsdecode(b"caf\xe9.jsonl")
    theirs.write_bytes(b"{}\n")
    one.open("old")
    succeed(two, one)
    two.open("old")
    assert two.content("old")["context.jsonl"] == line("1")
    assert theirs.read_bytes() == b"{}\n"


def test_a_folder_that_moves_leaves_its_place_and_comes_whole(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    one.open("s/below")
    one.close()
    disk = one.disk
    tree = disk.open_root(one.tree)
    disk.move(tree, "s", tree, "t")
    disk.close(tree)
    succeed(two, one)
    two.open("t")
    two.open("t/below")
    assert two.content("t")["context.jsonl"] == line("1")
    gone = two.ownership.acquire("s")
    assert gone is None or not gone.manifest.names
    assert not Path(two.tree, "s").exists()


def test_a_deleted_session_is_gone_on_other_hosts(one: Host, two: Host) -> None:
    succeed(two, one)
    two.open("s")
    two.close()
    one.now += 100.0
    one.open("s")
    one.close()
    tree = one.disk.open_root(one.tree)
    trash = one.disk.open_folder(tree, ".trash", create=True)
    one.disk.move(tree, "s", trash, "s")
    two.now += 100.0
    two.ownership.acquire("s")
    assert not Path(two.tree, "s", "context.jsonl").exists()
    # It can be made again, and brought back.
    one.now += 100.0
    one.disk.move(trash, "s", tree, "s")
    two.now += 100.0
    two.ownership.lose("s", one.hosts.owner)
    two.open("s")
    assert two.content("s") == one.content("s")


@contextmanager
def refusing_after(stream: MemoryStream, count: int) -> Generator[None]:
    """Let the servers take so many messages more, and none after those."""
    original, left = stream.publish, iter(range(count))

    def publish(host: str, publication: Publication) -> int | OSError:
        if next(left, None) is None:
            return JournalLost(None, "no majority")
        return original(host, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "publish", publish)
        yield


def test_a_commit_of_many_messages_is_whole_or_absent(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log = one.open("s").log
    log.append(line("x" * 3_000_000))
    with refusing_after(stream, 2), pytest.raises(JournalLost):
        log.sync()
    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == b""


def test_a_recovery_point_travels_to_the_other_host(one: Host, two: Host) -> None:
    opened = one.open("s")
    opened.log.append(line("1"))
    opened.log.sync()
    opened.machine.commit(opened.log.synced)
    recovery_points.save_recovery_point(opened)
    opened.log.append(line("2"))
    opened.log.sync()
    succeed(two, one)
    two.open("s")
    here, there = (Path(each.tree, "s") for each in (one, two))
    point = decode_recovery_point((there / "context.mark").read_bytes())
    assert point is not None
    assert point.inode == (there / "context.jsonl").stat().st_ino
    assert point.inode != (here / "context.jsonl").stat().st_ino
    assert point.bytes == len(line("1"))


def test_an_unfinished_recovery_point_costs_nothing(one: Host) -> None:
    opened = one.open("s")
    opened.log.append(line("1"))
    opened.log.sync()
    opened.machine.commit(opened.log.synced)
    recovery_points.save_recovery_point(opened)
    inode = Path(one.tree, "s", "context.jsonl").stat().st_ino
    one.start()
    one.open("s")
    assert Path(one.tree, "s", "context.jsonl").stat().st_ino == inode


@pytest.mark.parametrize("is_discarded", [True, False])
def test_parts_of_a_failed_commit_are_void(
    one: Host, two: Host, stream: MemoryStream, *, is_discarded: bool
) -> None:
    log = one.open("s").log
    log.append(line("x" * 3_000_000))
    with refusing_after(stream, 2), pytest.raises(JournalLost):
        log.sync()
    if is_discarded:
        log.discard_unsynced()
    log.append(line("y"))
    log.sync()
    succeed(two, one)
    two.open("s")
    assert two.content("s") == one.content("s")
    assert two.content("s")["context.jsonl"].endswith(line("y"))


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.DROPPED])
def test_a_deletion_without_an_answer_took_place_or_did_not(
    one: Host, two: Host, stream: MemoryStream, fault: Fault
) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    one.close()
    tree = one.disk.open_root(one.tree)
    trash = one.disk.open_folder(tree, ".trash", create=True)
    stream.force("one", fault)
    with pytest.raises(OSError):
        one.disk.move(tree, "s", trash, "1.k.s", "k")
    is_deleted = fault is Fault.UNANSWERED
    succeed(two, one)
    for host in (one, two):
        assert host.disk.name_changes.moved("s", "k") == (".trash/1.k.s" if is_deleted else None)
        assert (host.ownership.acquire("s") is None) == is_deleted
        host.now += 200.0
        host.hosts.tell_ended()


def test_what_comes_late_of_a_deletion_deletes_nothing_that_goes_on(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    one.close()
    tree = one.disk.open_root(one.tree)
    trash = one.disk.open_folder(tree, ".trash", create=True)
    stream.force("one", Fault.LATE)
    with pytest.raises(OSError):
        one.disk.move(tree, "s", trash, "1.k.s", "k")
    is_deleted = one.ownership.acquire("s") is None
    stream.settle()
    succeed(two, one)
    assert (two.ownership.acquire("s") is None) == is_deleted


def test_a_stale_writer_cannot_rewrite_although_its_host_may_succeed(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    succeed(two, one)
    theirs = two.open("s").log
    theirs.append(line("2"))
    theirs.sync()
    # The other host is silent now, so this one may own the session again: by an opening only.
    one.now += 100.0
    with pytest.raises(Fenced):
        log.replace([line("old")], CLEAR)
    one.close()
    one.open("s")
    assert one.content("s")["context.jsonl"] == line("1") + line("2")


OLD_BYTES = 400_000


def back_after_another(
    one: Host, two: Host, *, boot: str, change: bytes | None = None, age_s: float = 60.0
) -> int:
    """Let `one` rotate a long generation away and take the session back; returns what it read."""
    log = one.open("s").log
    log.append(line("x" * OLD_BYTES))
    log.sync()
    log.replace([line("1")], CLEAR)
    # It is older than the tick of the file system's clock.
    generation = Path(one.tree, "s", "context_1.jsonl")
    os.utime(generation, (generation.stat().st_atime, generation.stat().st_mtime - age_s))
    one.ownership.close()
    one.close()
    succeed(two, one)
    theirs = two.open("s").log
    theirs.append(line("2"))
    theirs.sync()
    if change is not None:
        with Path(one.tree, "s", "context_1.jsonl").open("r+b") as file:
            file.write(change)
    assert isinstance(one.local, CountingDisk)
    one.local.read_bytes = 0
    one.boot = boot
    one.now += 100.0
    one.start()
    one.now += 100.0
    one.ownership.acquire("s")
    return one.local.read_bytes


@pytest.fixture
def counted(stream: MemoryStream, tmp_path: Path) -> Host:
    return Host(stream, "one", str(tmp_path / "one" / "sessions"), CountingDisk())


def test_a_takeover_does_not_read_old_generations(counted: Host, two: Host) -> None:
    assert back_after_another(counted, two, boot="boot-1") < OLD_BYTES / 4
    assert counted.content("s") == two.content("s")


def test_a_takeover_of_many_small_records_writes_some_together(
    stream: MemoryStream, one: Host, tmp_path: Path
) -> None:
    log = one.open("s").log
    for number in range(200):
        log.append(line(str(number)))
        log.sync()
    disk = CountingDisk()
    two = Host(stream, "two", str(tmp_path / "two" / "sessions"), disk)
    succeed(two, one)
    two.open("s")
    assert two.content("s") == one.content("s")
    assert disk.writes < 50


def test_folders_that_were_not_used_for_long_are_forgotten_and_open_ones_are_not(
    one: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("open", "a", "b", "c")
    for name in names:
        log = one.open(name).log
        log.append(line(name))
        log.sync()
    one.start()
    monkeypatch.setattr(limits, "FOLDERS_OWNED_MAX", 2)
    one.open("open")
    for name in names[1:]:
        one.ownership.acquire(name)
    assert [name for name in names if one.ownership.known(name)] == ["open", "c"]
    one.open("a")
    assert one.content("a")["context.jsonl"] == line("a")


def test_a_file_that_changed_just_before_the_mark_is_read(
    counted: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long the test takes to come to the mark.
    monkeypatch.setattr(limits, "SEEN_AGE_S", 3600.0)
    assert back_after_another(counted, two, boot="boot-1", age_s=0.0) >= OLD_BYTES
    assert counted.content("s") == two.content("s")


def test_after_a_boot_a_takeover_checks_all_files(counted: Host, two: Host) -> None:
    assert back_after_another(counted, two, boot="boot-2") >= OLD_BYTES
    assert counted.content("s") == two.content("s")


def test_a_takeover_finds_a_changed_old_generation(counted: Host, two: Host) -> None:
    back_after_another(counted, two, boot="boot-1", change=b'{"role":"x"')
    assert counted.content("s") == two.content("s")


def cut_power(one: Host, *, is_rebuilt: bool) -> None:
    """Cut the power before the disk has a rewrite, and perhaps once more in the next opening."""
    one.close()
    present, past = (Path(one.tree, "s", name) for name in ("context.jsonl", "context_1.jsonl"))
    data = past.read_bytes()
    present.unlink()
    if is_rebuilt:
        # It was about to give both names their files again.
        present.write_bytes(data)
    else:
        os.link(past, present)
    one.boot = "boot-2"
    one.start()


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_rewrite_that_a_power_cut_takes_from_the_disk_stays_done(
    one: Host, *, kept: int, is_rebuilt: bool
) -> None:
    log = one.open("s").log
    for _ in range(2):
        log.append(line("1"))
        log.sync()
    one.ownership.close()
    one.start()
    beginning = Copy(0, 0, kept * len(line("1")))
    one.open("s").log.replace([beginning] if kept else [], REVERT if kept else CLEAR)
    wanted = {"context_1.jsonl": 2 * line("1"), "context.jsonl": kept * line("1")}
    assert wanted.items() <= one.content("s").items()
    cut_power(one, is_rebuilt=is_rebuilt)
    log = one.open("s").log
    assert wanted.items() <= one.content("s").items()
    log.append(line("3"))
    log.sync()
    wanted["context.jsonl"] += line("3")
    assert wanted.items() <= one.content("s").items()


def test_what_was_written_behind_a_rewrite_survives_a_kill(one: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    one.ownership.close()
    one.start()
    log = one.open("s").log
    log.replace([line("2")], CLEAR)
    log.append(line("3"))
    one.start()
    one.open("s")
    assert one.content("s")["context.jsonl"] == line("2") + line("3")


def test_a_folder_that_is_lost_half_way_through_a_rewrite_fails_it(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    rename = one.disk.rename

    def rename_and_lose(folder: int, name: str, new_name: str) -> None:
        rename(folder, name, new_name)
        succeed(two, one)
        two.ownership.acquire("s")

    one.disk.rename = rename_and_lose  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        log.replace([line("2")], CLEAR)
    assert two.content("s")["context.jsonl"] == line("1")


def test_only_the_present_owner_confirms_that_it_owns_a_session(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    stale = one.open("s").log
    stale.confirm_owner()
    stream.partition("one")
    with pytest.raises(JournalLost):
        stale.confirm_owner()
    succeed(two, one)
    present = two.open("s").log
    stream.heal("one")
    with pytest.raises(Fenced):
        stale.confirm_owner()
    present.confirm_owner()
    present.append(line("1"))
    present.sync()


def test_a_snapshot_makes_the_journal_short_and_changes_no_file(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log = one.open("s").log
    for number in range(20):
        log.append(line(str(number)))
        log.sync()
    log.replace([Copy(0, 0, len(line("1"))), line("new")], REVERT)
    one.ownership.shorten("s")
    assert stream.counts()[stream.identity_of("s")] == 2
    log.append(line("behind"))
    log.sync()
    succeed(two, one)
    two.open("s")
    assert two.content("s") == one.content("s")
    # A mirror from before the snapshot follows it, too.
    two.ownership.shorten("s")
    two.close()
    one.start()
    one.now += 100.0
    one.open("s")
    assert two.content("s") == one.content("s")


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.DROPPED, Fault.LATE])
def test_a_snapshot_that_fails_half_way_loses_nothing(
    one: Host, two: Host, stream: MemoryStream, fault: Fault
) -> None:
    log = one.open("s").log
    log.append(line("x" * 2_000_000))
    log.sync()
    stream.force("one", fault)
    with pytest.raises(OSError):
        one.ownership.shorten("s")
    log.append(line("y"))
    log.sync()
    succeed(two, one)
    two.open("s")
    assert two.content("s") == one.content("s")


def test_a_streams_successor_and_its_deletion_come_together(one: Host, two: Host) -> None:
    one.open("s")
    disk, place = one.disk, Place("s", Path(one.tree), ("s",), shared=False)
    folder = disk.open_folder(disk.open_root(one.tree), "s")
    for stream, number in (("notes", "1"), ("next", "2")):
        handle = disk.open_append(folder, f"stream-{stream}.jsonl", create=True)
        disk.write(handle, line(number))
        disk.fdatasync(handle)
    command = DeleteStream(session="s", stream="notes", key="d", successor="next")
    streams.discard(disk, folder, place, command, 5.0, 10.0, FailedSyncs())
    succeed(two, one)
    two.open("s")
    found = two.content("s")
    assert found == one.content("s")
    assert found["stream-notes.jsonl"] == line("2")
    assert found["stream-notes~1~5~d.jsonl"] == line("1")
    assert "stream-next.jsonl" not in found


def test_what_is_no_file_stays_on_its_host(one: Host, two: Host) -> None:
    folder = Path(one.tree, "old")
    folder.mkdir()
    (folder / "context.jsonl").write_bytes(line("1"))
    (folder / "data.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.jsonl")
    one.open("old")
    succeed(two, one)
    two.open("old")
    assert two.content("old")["context.jsonl"] == line("1")
    assert not Path(two.tree, "old", "link.jsonl").exists()
    two.close()
    succeed(one, two)
    one.start()
    one.now += 100.0
    one.open("old")
    assert (folder / "data.jsonl").is_dir()
    assert (folder / "link.jsonl").is_symlink()
    assert (folder / "pipe.jsonl").is_fifo()


def test_a_session_among_uploads_is_replicated(one: Host, two: Host) -> None:
    folder = Path(one.tree, "s", "uploads", "nested")
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_bytes(line("1"))
    log = one.open("s/uploads/nested").log
    log.append(line("2"))
    log.sync()
    succeed(two, one)
    two.open("s/uploads/nested")
    assert two.content("s/uploads/nested")["context.jsonl"] == line("1") + line("2")


def test_a_file_that_another_program_edited_does_not_become_the_journals(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    before = stream.counts()[stream.identity_of("s")]
    with Path(one.tree, "s", "context.jsonl").open("r+b") as file:
        file.write(b"[")
    with pytest.raises(OSError, match="another program"):
        one.ownership.shorten("s")
    assert stream.counts()[stream.identity_of("s")] >= before
    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1")


def test_a_session_that_was_taken_over_is_made_short(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    folder = one.disk.open_folder(one.disk.open_root(one.tree), "s")
    mark = one.disk.open_new(folder, "context.mark")
    one.disk.write(mark, b'{"inode":1}')
    one.disk.fdatasync(mark)
    succeed(two, one)
    two.open("s")
    two.ownership.shorten("s")
    succeed(one, two)
    one.start()
    one.now += 100.0
    one.open("s")
    assert one.content("s")["context.jsonl"] == line("1")


def test_an_owner_that_is_cut_off_does_not_confirm_its_folder(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    one.open("s")
    one.ownership.confirm("s")
    stream.partition("one")
    with pytest.raises(JournalLost):
        one.ownership.confirm("s")
    succeed(two, one)
    two.open("s")
    stream.heal("one")
    with pytest.raises(Held):
        one.ownership.confirm("s")


def test_a_replica_that_lags_does_not_confirm_a_lost_folder(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    one.open("s").log.append(line("1"))
    succeed(two, one)
    two.ownership.acquire("s")
    stream.force("one", Fault.STALE)
    with pytest.raises(Held):
        one.ownership.confirm("s")


def synced_log(host: Host) -> tuple[JsonlLog, OwnedFolder]:
    """The log of a new session with one durable line, and its folder."""
    log = host.open("s").log
    log.append(line("1"))
    log.sync()
    folder = host.ownership.found("s")
    assert folder is not None
    return log, folder


def synced_on_loop(*logs: JsonlLog) -> list[OSError | None] | None:
    """Sync logs as an event loop does."""
    return anyio.run(JsonlLog.sync_on_loop, logs)


def test_the_event_loop_syncs_what_a_thread_would_sync(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    log.append(line("2"))
    assert synced_on_loop(log) == [None]
    assert log.synced == log.size

    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1") + line("2")


def test_the_event_loop_does_not_wait_for_a_publication_that_is_under_way(one: Host) -> None:
    log, folder = synced_log(one)
    log.append(line("2"))
    with folder.publishing:
        assert synced_on_loop(log) is None
    assert log.synced < log.size
    assert synced_on_loop(log) == [None]


def test_a_daemon_that_ends_saves_the_marks_that_are_behind_alone(one: Host) -> None:
    log, _ = synced_log(one)
    mark = Path(one.tree, "s", paths.JOURNAL_MARK)
    one.ownership.close()
    saved = mark.stat().st_ino, mark.read_bytes()
    one.ownership.close()
    assert (mark.stat().st_ino, mark.read_bytes()) == saved
    log.append(line("2"))
    log.sync()
    one.ownership.close()
    assert mark.read_bytes() != saved[1]


def test_the_event_loop_leaves_the_mark_of_a_folder_to_a_thread(one: Host) -> None:
    log, folder = synced_log(one)
    folder._marked = 0
    log.append(line("2"))
    assert synced_on_loop(log) is None
    log.sync()
    assert not folder.is_mark_due


def test_the_event_loop_leaves_a_file_of_this_machine_alone_to_a_thread(
    one: Host, tmp_path: Path
) -> None:
    handle = one.disk.open_new(one.disk.open_root(str(tmp_path)), "other")
    assert anyio.run(one.disk.sync_on_loop, [handle]) is None


def test_a_lost_owner_learns_it_on_the_event_loop(one: Host, two: Host) -> None:
    log = one.open("s").log
    log.append(line("1"))
    log.sync()
    succeed(two, one)
    two.open("s")
    log.append(line("2"))
    found = synced_on_loop(log)
    assert found is not None
    assert isinstance(found[0], Fenced)
    assert "fenced" in one.log


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_file_that_cannot_be_read_fails_no_other_one(
    one: Host, monkeypatch: pytest.MonkeyPatch, *, on_loop: bool
) -> None:
    bad, good = one.open("bad").log, one.open("good").log
    for log in (bad, good):
        log.append(line("1"))
        log.sync()
    for log in (bad, good):
        log.append(line("2"))
    handle, read = bad._file.handle, one.local.read

    def fail(number: int, size: int, offset: int) -> bytes:
        if number == handle:
            raise OSError(EIO, "the disk is broken")
        return read(number, size, offset)

    monkeypatch.setattr(one.local, "read", fail)
    found = synced_on_loop(bad, good) if on_loop else JsonlLog.sync_all([bad, good])
    assert found is not None
    assert isinstance(found[0], OSError)
    assert found[1] is None
    assert good.synced == good.size


def test_only_a_sync_waits_for_the_publication_that_is_under_way(one: Host) -> None:
    log, folder = synced_log(one)
    disk = one.disk
    place = disk.open_folder(disk.open_root(one.tree), "s")

    def change() -> None:
        log.append(line("2"))
        with replacing(disk, place, "state.json") as handle:
            disk.write(handle, b"{}")
        new = disk.open_new(place, "stream-a.jsonl")
        disk.copy(disk.open_read(place, "context.jsonl"), new, 0, len(line("1")))
        disk.truncate(new, 3)
        disk.link(place, "stream-a.jsonl", "stream-b.jsonl")
        disk.close(new)
        disk.unlink(place, "stream-a.jsonl")
        disk.close(disk.open_append(place, "stream-b.jsonl"))

    with folder.publishing:
        # The event loop makes such changes, and has to go on, so that the publication can end.
        thread = threading.Thread(target=change)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    log.sync()
    assert folder.is_published


def test_what_is_done_during_a_snapshot_is_in_the_journal_once(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = synced_log(one)
    place = one.disk.open_folder(one.disk.open_root(one.tree), "s")
    names = iter(["stream-a.jsonl", "stream-b.jsonl", "stream-c.jsonl"])
    publish = one.journal.publish

    def publish_beside(publications: Sequence[Publication]) -> list[int | OSError]:
        for name in itertools.islice(names, 1):
            handle = one.disk.open_new(place, name)
            one.disk.write(handle, line(name))
            one.disk.close(handle)
        return publish(publications)

    # Something has to be published before the copy.
    one.disk.close(one.disk.open_new(place, "stream-z.jsonl"))
    monkeypatch.setattr(one.journal, "publish", publish_beside)
    one.ownership.shorten("s")
    monkeypatch.undo()
    assert not list(names)
    one.disk.fsync(place)
    assert folder.is_published

    succeed(two, one)
    two.ownership.acquire("s")
    kept = {name: data for name, data in two.content("s").items() if name.startswith("stream-")}
    assert kept.keys() == {f"stream-{each}.jsonl" for each in "abcz"}
    assert two.content("s")["context.jsonl"] == line("1")


def test_what_the_journal_has_no_room_for_fails_no_later_change(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log, folder = synced_log(one)
    place = one.disk.open_folder(one.disk.open_root(one.tree), "s")
    other = one.disk.open_new(place, "stream-a.jsonl")
    # Longer than the file that is cut.
    one.disk.write(other, line("a" * 1000))
    one.disk.fdatasync(other)
    stream.capacity = stream._size() + 10_000
    log.append(line("x" * 30_000))
    one.disk.write(other, line("b"))
    with pytest.raises(OSError, match="full"):
        log.sync()
    with pytest.raises(OSError, match="full"):
        one.disk.fdatasync(other)
    log.discard_unsynced()
    one.disk.fdatasync(other)
    log.append(line("2"))
    log.sync()
    assert folder.is_published

    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1") + line("2")
    assert two.content("s")["stream-a.jsonl"] == line("a" * 1000) + line("b")


def test_what_was_refused_for_a_foreign_message_is_not_published_later(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log, folder = synced_log(one)
    foreign = stream.publish_foreign(folder.identity)
    log.append(line("refused"))
    with pytest.raises(ForeignMessage):
        log.sync()
    log.discard_unsynced()
    stream.remove_foreign(folder.identity, foreign)
    log.append(line("2"))
    log.sync()
    assert folder.is_published

    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1") + line("2")


def test_what_is_cut_while_it_is_published_is_cut_in_the_journal(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, folder = synced_log(one)
    publish, size = one.journal.publish, log.size
    is_cut = False

    def publish_beside(publications: Sequence[Publication]) -> list[int | OSError]:
        nonlocal is_cut
        if not is_cut:
            is_cut = True
            one.disk.truncate(log._file.handle, size)
        return publish(publications)

    log.append(line("2"))
    monkeypatch.setattr(one.journal, "publish", publish_beside)
    one.disk.fdatasync(log._file.handle)
    monkeypatch.undo()
    one.disk.fdatasync(log._file.handle)
    assert is_cut
    assert folder.is_published

    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1")


def test_what_was_refused_stays_in_a_change_that_stands_on_it(
    one: Host, two: Host, stream: MemoryStream
) -> None:
    log, folder = synced_log(one)
    place = one.disk.open_folder(one.disk.open_root(one.tree), "s")
    whole, size = stream.capacity, len(line("x" * 30_000))
    stream.capacity = stream._size() + 10_000
    log.append(line("x" * 30_000))
    with pytest.raises(OSError, match="full"):
        log.sync()
    new = one.disk.open_new(place, "stream-a.jsonl")
    one.disk.copy(one.disk.open_read(place, "context.jsonl"), new, len(line("1")), size)
    one.disk.truncate(log._file.handle, len(line("1")))
    stream.capacity = whole
    one.disk.fdatasync(new)
    assert folder.is_published

    succeed(two, one)
    two.open("s")
    assert two.content("s")["context.jsonl"] == line("1")
    assert two.content("s")["stream-a.jsonl"] == line("x" * 30_000)


def write(host: Host, text: str) -> None:
    log = host.open("s").log
    log.append(line(text))
    log.sync()
    host.close()


def lose_one(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Lose the first announcement of a topic."""
    announce, topics = MemoryStream.announce, [lost]

    def announced(stream: MemoryStream, host: str, topic: str, body: bytes) -> None:
        if topic in topics:
            topics.remove(topic)
        else:
            announce(stream, host, topic, body)

    monkeypatch.setattr(MemoryStream, "announce", announced)


@pytest.mark.parametrize("word", ["given", "taken", "left"])
def test_a_hand_over_of_which_a_word_is_lost_ends_at_its_new_owner(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    write(one, "1")
    two.hosts.tell_alive()
    lose_one(monkeypatch, word)
    one.ownership.release_to("s", two.hosts.owner)
    assert two.ownership.found("s") is not None
    assert two.content("s") == one.content("s")


def test_a_host_that_missed_its_loss_of_a_session_takes_what_it_is_given(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(two, "1")
    one.now += 100.0
    lose_one(monkeypatch, "taken")
    write(one, "2")
    assert two.ownership.found("s") is not None
    two.hosts.tell_alive()
    one.ownership.release_to("s", two.hosts.owner)
    two.ownership.confirm("s")
    assert two.content("s") == one.content("s")
