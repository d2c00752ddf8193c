"""Openings of sessions beside other programs in the same folder."""

import errno
from functools import partial

import pytest

from steno_protocol import paths
from steno_protocol.commands import Clear, RevertTo
from steno_protocol.errors import Busy
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.recovery.recovery_points import save_recovery_point
from support.foreign_program import before_call
from support.lines import append, checkpoint, clear, foreign, revert, stamped, user
from support.simulated_disk import SimulatedDisk
from support.stored_session import StoredSession, apply

PATH = "/disk/demo"
FILE = f"{PATH}/{paths.CONTEXT}"


def simulated() -> tuple[SimulatedDisk, StoredSession]:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    disk.sync_all()
    return disk, StoredSession(disk, PATH)


@pytest.mark.parametrize("more", [foreign("whole"), b'er","content":"x"}\n'], ids=["whole", "rest"])
def test_foreign_write_during_a_repair_is_kept(more: bytes) -> None:
    has_come, number = True, 0
    while has_come:
        disk, session = simulated()
        disk.plant(FILE, b"".join(stamped("k1", ["one"])) + b'{"role":"us')
        entry = timeline.encode(TimelineEntry(kind="created", generation=0))
        disk.plant(f"{PATH}/{paths.TIMELINE}", entry)
        come = before_call(disk, number, lambda disk=disk: disk.foreign.append(FILE, more))
        session.open().log.close()
        has_come = come()
        session.open().log.close()
        kept = [session.file(), *session.quarantined()]
        assert has_come == any(more in data for data in kept), f"before call {number}"
        number += 1
    assert number > 6


def test_recovery_point_is_dropped_after_a_foreign_edit_below_it() -> None:
    has_come, number = True, 0
    while has_come:
        disk, session = simulated()
        opened = session.open()
        apply(opened, append("k1"), user("one"))
        save_recovery_point(opened)
        opened.log.close()
        disk.foreign.append(FILE, b'{"role":"us')

        def edit(disk: SimulatedDisk = disk) -> None:
            disk.foreign.truncate(FILE, 20)
            disk.foreign.append(FILE, b"half a line " * 9)

        come = before_call(disk, number, edit)
        try:
            opened = session.open()
        except Busy as busy:
            assert "editing" in busy.message  # noqa: PT017
            opened = session.open()
        has_come = come()
        apply(opened, append("k2"), user("two"))

        assert b"".join(stamped("k2", ["two"])) in session.file().splitlines(keepends=True), (
            f"before call {number}"
        )
        opened.log.close()
        number += 1
    assert number > 6


@pytest.mark.parametrize("command", [clear("r"), revert("r", 0)], ids=["clear", "revert"])
def test_last_name_of_a_file_is_kept_after_an_unfinished_rewrite(
    command: Clear | RevertTo,
) -> None:
    disk, session = simulated()
    opened = session.open()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c"))
    apply(opened, append("k2"), user("two"))
    acked = session.file()
    save_recovery_point(opened)
    disk.fail_next("rename", errno.EIO, name=paths.REWRITE)
    with pytest.raises(OSError, match="Input/output"):
        apply(opened, command)
    opened.log.close()
    assert "context_1.jsonl" in session.names()

    def edit(disk: SimulatedDisk) -> None:
        disk.foreign.replace(f"{FILE}~", foreign("edited"))
        disk.foreign.rename(f"{FILE}~", paths.CONTEXT)

    for number in range(10):
        at, beside = disk.clone(), len(disk.calls) + number
        end = before_call(at, number, partial(edit, at))
        there = StoredSession(at, PATH)
        there.open().log.close()
        assert end()
        assert there.file() == foreign("edited")
        assert there.file("context_1.jsonl") == acked, f"before call {number}"
        assert "context.jsonl.new" not in there.names()
        if at.calls[beside].method == "unlink" and at.calls[beside].name == "context_1.jsonl":
            assert b'"voided"' in there.file(paths.TIMELINE)
            break
    else:
        raise AssertionError("the second name was never removed")


def test_a_foreign_change_of_a_closed_session_is_recorded_once() -> None:
    disk, session = simulated()
    opened = session.open()
    apply(opened, append("a"), user("1"))
    apply(opened, append("b"), user("2"))
    save_recovery_point(opened)
    opened.log.close()
    disk.foreign.append(FILE, foreign("theirs"))
    session.open().log.close()
    assert [entry.kind for entry in session.timeline()] == ["created"]

    disk.foreign.truncate(FILE, len(session.file().splitlines(keepends=True)[0]))
    for _ in range(2):
        session.open().log.close()

    entry = session.timeline()[-1]
    assert [entry.kind for entry in session.timeline()] == ["created", "foreign"]
    assert entry.details == {"before": "0:2", "after": "0:1", "kept": False}


def test_a_file_that_is_moved_away_while_it_is_opened_is_waited_for() -> None:
    disk, session = simulated()
    opened = session.open()
    apply(opened, append("a"), user("1"))
    opened.log.close()

    come = before_call(disk, 0, lambda: disk.foreign.rename(FILE, "context_1.jsonl"))
    with pytest.raises(Busy, match="moved"):
        session.open(create=False)
    assert come()


def test_read_only_generation_does_not_prevent_an_opening() -> None:
    disk, session = simulated()
    disk.plant(f"{PATH}/context_1.jsonl", foreign("theirs"))
    disk.plant(FILE, foreign("ours"))
    disk.fail_next("open_append", errno.EPERM, name="context_1.jsonl")
    assert str(session.open().machine.head) == "1:1"


def test_rewrite_has_an_unknown_outcome_when_foreign_lines_cannot_be_synced() -> None:
    disk, session = simulated()
    log = session.open().log
    before = log.stat()
    disk.foreign.append(FILE, foreign("late"))
    disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
    with pytest.raises(OSError, match="error"):
        log.replace([user("new") + b"\n"], b'{"kind":"cleared"}\n')
    left = disk.stat_name(disk.open_root(PATH), paths.generation_file(1))
    assert left is not None
    assert left.inode == before.inode
    assert log._failed_syncs.has(left)
    log.close()
