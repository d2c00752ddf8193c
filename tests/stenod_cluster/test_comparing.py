"""The files of a root that joins are compared with those of the journal."""

import itertools
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from steno_protocol import paths
from stenod_cluster import limits
from support.memory_journal import MemoryStream
from support.replicated import Host, line
from support.simulated_disk import Moment, ProcessKilled, SimulatedDisk
from support.whole_sessions import TREE

Files = Mapping[str, bytes]

A, B = line("a"), line("b")


def put(host: Host, session: str, files: Files) -> None:
    """Let a host have files from before it joined."""
    folder = Path(host.tree, session)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def joined(one: Host, two: Host, session: str, first: Files, second: Files) -> list[str]:
    """Let one host join with a session, and then another one; returns the names that there are."""
    put(one, session, first)
    put(two, session, second)
    one.ownership.acquire(session)
    one.close()
    two.now += 100.0
    two.ownership.acquire(session)
    return sorted(two.stream.names())


@pytest.mark.parametrize("is_turned", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A rewrite that left nothing.
        ({"context.jsonl": A}, {"context_1.jsonl": A, "context.jsonl": b""}),
        (
            {"context.jsonl": A, "stream-x.jsonl": B},
            {"context.jsonl": A, "stream-x~1~1000~k.jsonl": B},
        ),
        (
            {"context.jsonl": A, "stream-x~1~1000~k.jsonl": B},
            {"context.jsonl": A, "stream-x~1~1000~k.jsonl": B, "stream-x.jsonl": A},
        ),
        (
            {"context.jsonl": A, "stream-x.jsonl.zst": b"cold"},
            {"context.jsonl": A + B, "stream-x.jsonl.zst": b"cold"},
        ),
    ],
)
def test_newer_files_are_the_session_whichever_joins_first(
    one: Host, two: Host, old: Files, new: Files, *, is_turned: bool
) -> None:
    assert joined(one, two, "s", *((new, old) if is_turned else (old, new))) == ["s"]
    assert two.content("s") == new


def test_a_cold_stream_that_another_root_lacks_is_no_beginning(one: Host, two: Host) -> None:
    cold, longer = {"context.jsonl": A, "stream-x.jsonl.zst": b"cold"}, {"context.jsonl": A + B}
    assert joined(one, two, "s", cold, longer) == ["s", "s-kept-1"]
    assert joined(one, two, "t", longer, cold)[2:] == ["t", "t-kept-1"]
    for session, other in (("s", "s-kept-1"), ("t-kept-1", "t")):
        assert two.content(session) == cold
        assert two.content(other) == longer


@pytest.mark.parametrize("session", ["x" * 128, f"{'y' * 127}/{'x' * 127}"])
def test_what_is_kept_beside_a_long_name_is_kept_where_it_can_be_found(
    one: Host, two: Host, session: str
) -> None:
    (name,) = joined(one, two, session, {"context.jsonl": A}, {"context.jsonl": B})
    paths.split_session(name)
    (kept,) = Path(two.tree, session, "quarantine").iterdir()
    assert kept.read_bytes() == B


def differing() -> tuple[MemoryStream, SimulatedDisk, Host]:
    """A host with a session of which the journal has other records."""
    stream, disks = MemoryStream(), [SimulatedDisk(), SimulatedDisk()]
    for disk, end in zip(disks, (A, B), strict=True):
        disk.foreign.make_folder(f"{TREE}/s")
        disk.foreign.replace(f"{TREE}/s/context_1.jsonl", A + end)
        disk.foreign.replace(f"{TREE}/s/context.jsonl", end)
        disk.sync_all()
    first, host = (
        Host(stream, name, TREE, disk) for name, disk in zip(("one", "two"), disks, strict=True)
    )
    first.ownership.acquire("s")
    host.now += 100.0
    return stream, disks[1], host


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_while_files_are_kept_beside_neither_doubles_nor_loses_them(
    moment: Moment,
) -> None:
    for number in itertools.count():
        stream, disk, host = differing()
        call = len(disk.calls) + number
        disk.kill_at(call, moment)
        with suppress(ProcessKilled):
            host.ownership.acquire("s")
        is_over = not disk.died
        if not is_over:
            disk.restart()
            host.start()
        host.now += 200.0
        for session in ("s", "s-kept-1"):
            host.ownership.acquire(session)
        assert stream.names() == ["s", "s-kept-1"]
        assert {path: data for path, data in disk.tree().items() if ".mark" not in path} == {
            f"{TREE}/s/context_1.jsonl": A + A,
            f"{TREE}/s/context.jsonl": A,
            f"{TREE}/s-kept-1/context_1.jsonl": A + B,
            f"{TREE}/s-kept-1/context.jsonl": B,
        }, f"died {moment} call {number}"
        if is_over:
            assert number > 20
            return


def test_a_takeover_joins_small_appends_and_has_few_bytes_of_large_ones_in_memory(
    one: Host, two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = one.open("s").log
    small, large = line("small"), line("l" * limits.APPENDS_TOGETHER_BYTES)
    for record in [*[small] * 100, *[large] * 5]:
        log.append(record)
        log.sync()
    one.close()
    write, sizes = two.local.write, list[int]()

    def written(handle: int, data: bytes) -> int:
        sizes.append(len(data))
        return write(handle, data)

    two.now += 100.0
    with monkeypatch.context() as patch:
        patch.setattr(two.local, "write", written)
        two.ownership.acquire("s")
    assert two.content("s")["context.jsonl"] == small * 100 + large * 5
    assert max(sizes) < 2 * limits.APPENDS_TOGETHER_BYTES
    assert len(sizes) < 20


@pytest.mark.parametrize("is_marked_again", [True, False])
def test_a_power_cut_makes_no_files_of_the_same_stream_newer_than_it(
    *, is_marked_again: bool
) -> None:
    note = b'{"kind":"sent","generation":0,"at":1.0,"key":"k","details":{}}\n'
    for seed in range(100):
        disk = SimulatedDisk(seed)
        host = Host(MemoryStream(), "one", TREE, disk)
        log = host.open("s").log
        log.append(A)
        log.sync()
        folder = host.disk.open_folder(host.disk.open_root(TREE), "s")
        timeline = host.disk.open_append(folder, paths.TIMELINE)
        host.disk.write(timeline, note)
        host.disk.fdatasync(timeline)
        if is_marked_again:
            host.ownership.close()
        # The journal never gets this one.
        log.append(B)
        disk.crash()
        host.start()
        host.ownership.acquire("s")
        assert host.stream.names() == ["s"], f"seed {seed}"
        assert disk.content(f"{TREE}/s/{paths.TIMELINE}").endswith(note), f"seed {seed}"
