"""Damaged sessions: verified without a change, repaired by one crash-safe rewrite."""

import errno
import json
from dataclasses import dataclass

import msgspec
import pytest

from steno_protocol import paths
from steno_protocol.commands import Repair
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.replies import CheckedFile, Verification
from stenod.recovery.recovery_points import save_recovery_point
from stenod.sessions.verify import verify
from stenod.store.failed_syncs import FailedSyncs
from support.lines import (
    SESSION,
    append,
    checkpoint,
    clear,
    foreign,
    restore,
    revert,
    stamped,
    user,
)
from support.simulated_disk import MOMENTS, Death, SimulatedDisk, Survival
from support.stored_session import StoredSession, apply, find_key

PATH = "/disk/demo"

ONE, TWO, THREE = foreign("one"), foreign("two"), foreign("three")
HALF = b'{"role":"assistant","content":[{"type":"te'
SPLIT = stamped("split", ["four"])[0]
DAMAGED = b"".join([ONE, b"garbage\n", HALF + TWO, b"\0" * 9 + b"\n", THREE[:-1] + SPLIT, ONE, ONE])
MENDED = ONE + TWO + THREE + SPLIT + ONE + ONE


@dataclass(frozen=True, slots=True)
class Scene:
    """A damaged session that is closed and durable."""

    disk: SimulatedDisk
    session: StoredSession

    def clone(self) -> "Scene":
        disk = self.disk.clone()
        return Scene(disk, StoredSession(disk, PATH))


def scene(data: bytes = DAMAGED) -> Scene:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    disk.plant(f"{PATH}/context.jsonl", data)
    return Scene(disk, StoredSession(disk, PATH))


def context_of(report: Verification) -> CheckedFile:
    (found,) = [each for each in report.files if each.file == paths.CONTEXT]
    return found


def repair(report: Verification, key: str = "m", **fields: int) -> Repair:
    """The repair of the verified file."""
    file = context_of(report)
    verified = {"generation": report.generation, "bytes": file.bytes, "crc": file.crc, **fields}
    return Repair(session=SESSION, key=key, **verified)


def test_verify_reports_every_damage_and_changes_nothing() -> None:
    found = scene()
    before = found.disk.tree()
    report = found.session.verified()
    assert found.disk.tree() == before
    assert [(each.kind, each.line, each.remedy) for each in report.findings] == [
        ("not_json", 2, "cut"),
        ("welded", 3, "split"),
        ("nul", 4, "cut"),
        ("welded", 5, "split"),
    ]
    assert (report.damage, report.notes) == (4, 0)


def test_a_repair_keeps_whole_records_in_order_and_leaves_the_damaged_file_behind() -> None:
    found = scene()
    opened = found.session.open()
    ack = apply(opened, repair(found.session.verified()))
    assert found.session.file() == MENDED
    assert found.session.file("context_1.jsonl") == DAMAGED
    assert (ack.head, ack.rotated) == ("1:6", f"{PATH}/context_1.jsonl")
    entry = found.session.timeline()[-1]
    assert (entry.kind, entry.kept, entry.details["places"]) == ("mended", 1, 3)
    assert entry.details["left_out"] == len(DAMAGED) - len(MENDED) + 1
    assert find_key(opened, "split") is not None
    opened.log.close()
    assert kinds(found) == [("mended", "context_1.jsonl")]
    again = found.session.open()
    assert again.machine.head == opened.machine.head
    assert again.machine.counters == opened.machine.counters


def test_lines_appended_since_the_verification_stay() -> None:
    found = scene()
    report = found.session.verified()
    opened = found.session.open()
    apply(opened, append("late"), user("late"))
    apply(opened, repair(report))
    assert found.session.file() == MENDED + stamped("late", ["late"])[0]


def test_repeated_record_in_a_damaged_line_is_there_once() -> None:
    ours, batch = stamped("k1", ["one"]), stamped("k2", ["two", "three"])
    swallowed = HALF + ours[0] + TWO[:-1] + batch[0] + HALF + THREE[:-1] + ours[0]
    found = scene(swallowed + ours[0] + batch[0] + batch[1])
    opened = found.session.open()
    assert find_key(opened, "k1") is not None
    apply(opened, repair(found.session.verified()))
    assert found.session.file() == TWO + THREE + ours[0] + batch[0] + batch[1]


@pytest.mark.parametrize("field", ["generation", "bytes", "crc"])
def test_repair_of_a_changed_file_is_refused(field: str) -> None:
    found = scene()
    command = repair(found.session.verified())
    opened = found.session.open()
    wrong = msgspec.structs.replace(command, **{field: getattr(command, field) + 1})
    with pytest.raises(Conflict, match="verify it again"):
        apply(opened, wrong)
    assert found.session.file() == DAMAGED


def test_a_whole_session_is_not_repaired() -> None:
    found = scene(ONE + TWO)
    opened = found.session.open()
    with pytest.raises(BadRequest, match="nothing to repair"):
        apply(opened, repair(found.session.verified()))


@pytest.mark.parametrize("before", [b"", ONE], ids=["alone", "behind another"])
def test_foreign_record_without_newline_is_no_damage(
    before: bytes,
) -> None:
    found = scene(before + TWO[:-1])
    report = found.session.verified()
    [finding] = report.findings
    assert (finding.kind, finding.remedy, report.damage) == ("unended", "opening", 0)
    found.session.open()
    assert found.session.file() == before + TWO


@pytest.mark.parametrize("end", [SPLIT[:-1], TWO[:-2]], ids=["ours", "half"])
def test_a_last_line_that_the_next_opening_cuts_is_damage(end: bytes) -> None:
    found = scene(ONE + end)
    report = found.session.verified()
    assert [(finding.kind, finding.remedy) for finding in report.findings] == [("torn", "opening")]
    found.session.open()
    assert found.session.file() == ONE


def test_a_repair_that_dies_at_any_call_is_as_before_or_as_after() -> None:
    found = scene()
    found.session.open().log.close()
    found.disk.sync_all()
    command = repair(found.session.verified())
    rehearsal = found.clone()
    first = len(rehearsal.disk.calls)
    apply(rehearsal.session.open(), command)
    states = set[bool]()
    for call in range(first, len(rehearsal.disk.calls)):
        for moment in MOMENTS:
            for survival in (*Survival, None):
                crashed = found.clone()
                crashed.disk.reseed(call)
                if survival is None:
                    crashed.disk.kill_at(call, moment)
                else:
                    crashed.disk.crash_at(call, moment)
                try:
                    apply(crashed.session.open(), command)
                except Death:
                    crashed.disk.restart(survival)
                else:
                    crashed.disk.heal()
                    crashed.disk.crash()
                states.add(check(crashed, command))
    assert states == {True, False}


def check(crashed: Scene, command: Repair) -> bool:
    """Check that it is as before or as after; returns True when it is as after."""
    opened = crashed.session.open()
    now = crashed.session.file()
    assert now in (DAMAGED, MENDED)
    ack = apply(opened, command)
    assert ack.duplicate == (now == MENDED)
    assert crashed.session.file() == MENDED
    assert crashed.session.file("context_1.jsonl") == DAMAGED
    opened.log.close()
    return now == MENDED


# --- agreement among a session's files -----------------------------------------------------------


def rewritten() -> Scene:
    """A session with two rewrites, closed and durable."""
    found = scene(b"")
    opened = found.session.open()
    apply(opened, append("k1"), user("one"), user("two"))
    apply(opened, checkpoint("c0"))
    apply(opened, append("k2"), user("three"))
    apply(opened, revert("r", 0))
    apply(opened, append("k3"), user("four"))
    apply(opened, restore("s", 0))
    save_recovery_point(opened)
    opened.log.close()
    found.disk.sync_all()
    return found


def kinds(found: Scene) -> list[tuple[str, str]]:
    return [(each.kind, each.file) for each in found.session.verified().findings]


def test_a_session_as_steno_leaves_it_has_no_finding() -> None:
    assert kinds(rewritten()) == []


def test_verify_reports_a_changed_generation() -> None:
    found = rewritten()
    whole = found.session.file("context_1.jsonl")
    found.disk.plant(f"{PATH}/context_1.jsonl", whole.replace(b"three", b"3hree"))
    assert kinds(found) == [("rewrite_lost", "context_1.jsonl")]


def test_generation_before_a_missing_one_is_not_compared_with_the_present() -> None:
    found = rewritten()
    opened = found.session.open()
    apply(opened, clear("t"))
    opened.log.close()
    folder = found.disk.open_root(PATH)
    found.disk.unlink(folder, "context_2.jsonl")
    assert kinds(found) == [("generation_gap", "context_2.jsonl")]


def test_of_many_generations_one_file_is_open_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rewritten()
    opened = found.session.open()
    for number in range(20):
        apply(opened, append(f"g{number}"), user("more"))
        apply(opened, restore(f"r{number}", 0))
    opened.log.close()
    disk, reading = found.disk, set[int]()
    most = 0
    open_read, close = disk.open_read, disk.close

    def counted_open(folder: int, name: str) -> int:
        nonlocal most
        handle = open_read(folder, name)
        reading.add(handle)
        most = max(most, len(reading))
        return handle

    def counted_close(handle: int) -> None:
        reading.discard(handle)
        close(handle)

    monkeypatch.setattr(disk, "open_read", counted_open)
    monkeypatch.setattr(disk, "close", counted_close)
    report = found.session.verified()
    assert report.generation == 22
    assert len(report.files) > 22
    assert report.damage == 0
    # Beside the view of the context, which others may be writing.
    assert most == 2
    assert not reading


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("name", ["context_1.jsonl", "timeline.jsonl"])
def test_look_without_handles_or_memory_says_nothing_of_the_files(name: str, error: int) -> None:
    found = rewritten()
    found.disk.fail_next("open_read", error, name=name)
    with pytest.raises(OSError, match=name) as failed:
        found.session.verified()
    assert failed.value.errno == error


def test_verify_reports_an_unreadable_file() -> None:
    found = rewritten()
    found.disk.fail_next("open_read", errno.EIO, name="context_1.jsonl", times=9)
    assert kinds(found) == [("unreadable", "context_1.jsonl")]


def test_verify_reports_a_missing_present_generation() -> None:
    found = rewritten()
    folder = found.disk.open_root(PATH)
    context = found.session.view("context_1.jsonl")
    found.disk.unlink(folder, paths.CONTEXT)
    views = {paths.CONTEXT: context, paths.WIRE: context}
    report = verify(found.disk, folder, SESSION, views, live=None, failed_syncs=FailedSyncs())
    found.disk.close(folder)
    assert [(each.kind, each.file) for each in report.findings] == [("no_context", "context.jsonl")]


def test_verify_reports_an_unfinished_rewrite() -> None:
    found = rewritten()
    crashed = found.clone()
    rehearsal = found.clone()
    first = len(rehearsal.disk.calls)
    apply(rehearsal.session.open(), revert("late", 0))
    kinds = set[str]()
    for call in range(first, len(rehearsal.disk.calls)):
        crashed = found.clone()
        crashed.disk.kill_at(call)
        with pytest.raises(Death):
            apply(crashed.session.open(), revert("late", 0))
        crashed.disk.restart()
        report = crashed.session.verified()
        assert report.damage == 0, (call, report.findings)
        kinds |= {each.kind for each in report.findings}
    assert {"rewrite_open", "leftover"} <= kinds


def test_verify_reports_invalid_state_and_recovery_point_and_quarantine() -> None:
    found = rewritten()
    for name, data in (("state.json", b"[]"), (paths.MARK, b"oops"), ("quarantine/x", b"y")):
        found.disk.plant(f"{PATH}/{name}", data)
    assert kinds(found) == [
        ("mark_ignored", "context.mark"),
        ("state_unreadable", "state.json"),
        ("quarantined", "quarantine"),
    ]


def test_verify_checks_the_other_files_beside_an_unreadable_one() -> None:
    found = rewritten()
    found.disk.plant(f"{PATH}/state.json/x", b"")
    found.disk.plant(f"{PATH}/quarantine/x", b"")
    assert kinds(found) == [
        ("unreadable", "state.json"),
        ("quarantined", "quarantine"),
    ]


def test_a_verification_is_json_with_every_place() -> None:
    report = json.loads(msgspec.json.encode(scene().session.verified()))
    assert report["findings"][1] == {
        "file": "context.jsonl", "kind": "welded",
        "what": f"{len(HALF)} damaged bytes welded to 1 whole record",
        "offset": len(ONE) + 8, "bytes": len(HALF + TWO), "line": 3, "records": 1,
        "remedy": "split",
    }  # fmt: skip
