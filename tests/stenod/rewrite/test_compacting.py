"""Compactions in the files: kept records, their order, and later ids."""

import json
from typing import Any

import pytest

from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.context import ContextState
from steno_protocol.errors import BadRequest, Conflict
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.compaction import Cut
from stenod.core.machine import Machine
from stenod.recovery.opened import Opened
from stenod.recovery.recovery_points import save_recovery_point
from stenod.rewrite.compaction import choose_cut
from support.lines import (
    append,
    checkpoint,
    clear,
    compact,
    line,
    prompt,
    restore,
    revert,
    usage,
    user,
)
from support.simulated_disk import SimulatedDisk
from support.stored_session import StoredSession, apply, lines_of

PATH = "/disk/demo"
FILE = f"{PATH}/{paths.CONTEXT}"

SUMMARY = user("it began well")


def fresh(
    *, stamp: bool = True, shared: bool = False
) -> tuple[SimulatedDisk, StoredSession, Opened]:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    session = StoredSession(disk, PATH)
    return disk, session, session.open(stamp=stamp, shared=shared)


def filled(opened: Opened) -> None:
    """Six messages with two checkpoints and a token count among them: 10 lines, no prompt."""
    apply(opened, append("k0"), user("zero"))
    apply(opened, checkpoint("c0", add_user_message=True))
    apply(opened, append("k1"), user("one"), user("two"))
    apply(opened, usage("u", 70))
    apply(opened, checkpoint("c1"))
    apply(opened, append("k3"), user("three"))
    apply(opened, append("k4"), user("four"))
    apply(opened, append("k5"), user("five"))


def machine_of(opened: Opened) -> Machine:
    assert isinstance(opened.machine, Machine)
    return opened.machine


def short(data: bytes) -> str:
    """A line in a few letters."""
    record = json.loads(data)
    match record["role"]:
        case "_checkpoint":
            return f"#{record['id']}"
        case "_usage":
            return f"={record['token_count']}"
        case _:
            return str(record["content"])


def summary_of(opened: Opened) -> list[str]:
    return [short(data) for data in lines_of(opened)]


def cut_of(opened: Opened, preserve: int = 2) -> Cut | None:
    view = opened.log.view(opened.log.generation)
    try:
        return choose_cut(view, preserve, opened.machine.head.line)
    finally:
        view.release()


# --- kept records --------------------------------------------------------------------------------


def test_summary_replaces_the_summarised_messages() -> None:
    _, session, opened = fresh()
    filled(opened)
    before = lines_of(opened)
    assert cut_of(opened) == Cut(line=8, messages=5)
    reserved = machine_of(opened).reserve_checkpoint_id()

    ack = apply(opened, compact("k", "0:8", "0:10", reserved, why="full", by="worker"), SUMMARY)

    assert summary_of(opened) == ["#2", "it began well", "four", "five", "=5"]
    assert lines_of(opened)[2:4] == before[8:10]
    assert b"".join(before) == session.file("context_1.jsonl")
    assert (ack.head, ack.checkpoint_id, ack.rotated) == ("1:5", 2, f"{PATH}/context_1.jsonl")
    last = session.timeline()[-1]
    assert (last.kind, last.kept, last.why, last.by) == ("compacted", 0, "full", "worker")
    assert (last.details["from"], last.details["summarised"]) == (0, 8)
    assert (last.details["lines"], last.details["old_lines"]) == (5, 10)
    stamps = [json.loads(data).get("_id") for data in lines_of(opened)]
    assert stamps == ["k.0/2", "k.1/2", "k4", "k5", "k"]


@pytest.mark.parametrize("stamp", [True, False])
def test_the_system_prompt_stays_first(stamp: bool) -> None:
    disk, session, opened = fresh(stamp=stamp)
    apply(opened, prompt("p", "be kind"))
    filled(opened)

    apply(opened, compact("k", "0:9", "0:11", 2), SUMMARY)
    apply(opened, append("k9"), user("six"))

    assert summary_of(opened) == ["be kind", "#2", "it began well", "four", "five", "=5", "six"]
    assert any(b"_id" in data for data in lines_of(opened)) == stamp
    assert opened.machine.counters.has_system_prompt
    check_readers(disk, session, opened)


def test_a_result_that_came_meanwhile_brings_its_call_back() -> None:
    _, session, opened = fresh()
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "type": "function"}]}
    apply(opened, append("k1"), user("one"))
    apply(opened, append("k2"), line(call)[:-1])
    apply(opened, append("k3"), user("two"), user("three"))
    assert cut_of(opened) == Cut(line=2, messages=2)
    result = line({"role": "tool", "content": "late", "tool_call_id": "t1"})[:-1]
    apply(opened, append("k4"), result)
    before = lines_of(opened)

    apply(opened, compact("k", "0:2", "0:4", 0), SUMMARY)

    assert lines_of(opened)[2:-1] == before[1:]
    assert session.timeline()[-1].details["summarised"] == 1


def test_a_cut_is_looked_for_in_the_lines_that_there_were() -> None:
    _, _, opened = fresh()
    filled(opened)
    view = opened.log.view(0)

    assert choose_cut(view, 2, 10) == Cut(line=8, messages=5)
    assert choose_cut(view, 2, 9) == Cut(line=7, messages=4)
    assert choose_cut(view, 9, 10) is None
    view.release()


# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "count"), [(None, 3 + 6), (100, 106), (0, 6)])
def test_token_count_is_the_summarys_plus_an_estimate_of_the_rest(
    tokens: int | None, count: int
) -> None:
    disk, session, opened = fresh()
    apply(opened, append("k"), user("a" * 100), user("b" * 10), user("c" * 9))
    apply(opened, append("l"), user("d" * 6))

    apply(opened, compact("r", "0:1", "0:3", 0, summary_tokens=tokens), user("s" * 15))

    assert opened.machine.counters.token_count_with_pending == count
    check_readers(disk, session, opened)


# --- which ids come after it ---------------------------------------------------------------------


def check_readers(disk: SimulatedDisk, session: StoredSession, opened: Opened) -> None:
    """A reader of the lines, and a daemon that opens them again, count as the daemon did."""
    machine = machine_of(opened)
    seen = ContextState(machine.head.generation, machine.checkpoint_floor)
    seen.apply_lines(lines_of(opened))
    numbers = (seen.n_checkpoints, seen.token_count, seen.token_count_with_pending)
    counters = machine.counters
    assert numbers == (
        counters.n_checkpoints,
        counters.token_count,
        counters.token_count_with_pending,
    )
    assert (seen.system_prompt is not None) == counters.has_system_prompt
    assert seen.head == machine.head
    save_recovery_point(opened)
    for with_mark in (False, True):
        copy = copy_of(disk)
        if not with_mark:
            copy.disk.plant(f"{PATH}/{paths.MARK}")
        assert copy.inspect().counters == counters
        again = machine_of(copy.open(shared=machine.reuses_ids))
        assert (again.counters, again.head) == (counters, machine.head)
        assert again.checkpoint_floor == machine.checkpoint_floor


def copy_of(disk: SimulatedDisk) -> StoredSession:
    """The session while it is closed."""
    copy = disk.clone()
    copy.kill()
    return StoredSession(copy, PATH)


def ids_rise(opened: Opened) -> bool:
    ids = [int(each[1:]) for each in summary_of(opened) if each.startswith("#")]
    return ids == sorted(set(ids))


def compacted(*, shared: bool = False) -> tuple[SimulatedDisk, StoredSession, Opened]:
    """A compacted session: its own checkpoint is 2, and 3 came while the model thought."""
    disk, session, opened = fresh(shared=shared)
    filled(opened)
    reserved = machine_of(opened).reserve_checkpoint_id()
    apply(opened, checkpoint("later"))
    apply(opened, compact("k", "0:8", "0:10", reserved), SUMMARY)
    return disk, session, opened


CHANGES: dict[str, list[Mutation]] = {
    "nothing": [],
    "the own checkpoint": [revert("r", 2)],
    "a later one": [revert("r", 3)],
    "an earlier one": [revert("r", 1)],
    "the first one": [revert("r", 0)],
    "the own one, then a prompt": [revert("r", 2), prompt("p", "be kind"), append("a")],
    "a prompt, then the own one": [prompt("p", "be kind"), revert("r", 2)],
    "the own one, clear, restore": [revert("r", 2), clear("c"), restore("b", 2)],
    "the own one, then again": [revert("r", 2), checkpoint("x"), revert("r2", 2)],
    "the own one, then an earlier one": [revert("r", 2), revert("r2", 1)],
    "clear": [clear("c")],
    "what was before": [restore("b", 0)],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("shared", [False, True], ids=["own", "mount"])
def test_readers_and_daemon_agree_on_the_next_id_after(
    changes: list[Mutation], shared: bool
) -> None:
    disk, session, opened = compacted(shared=shared)
    newest = 3
    for each in changes:
        # In a mount the checkpoint `x` gets the id of the one that the revert before it removed.
        command = revert("r2", newest) if each == revert("r2", 2) and not shared else each
        newest = opened.machine.counters.n_checkpoints if command.key == "x" else newest
        apply(opened, command, *([user("more")] if command.key == "a" else []))
        check_readers(disk, session, opened)

    expected = opened.machine.counters.n_checkpoints
    assert apply(opened, checkpoint("next")).checkpoint_id == expected
    assert ids_rise(opened)
    check_readers(disk, session, opened)


@pytest.mark.parametrize("with_mark", [False, True])
def test_a_reserved_id_survives_the_daemon_and_is_hidden_from_readers(
    with_mark: bool,
) -> None:
    disk, session, opened = fresh()
    filled(opened)
    reserved = machine_of(opened).reserve_checkpoint_id()
    details = {"checkpoint_id": reserved}
    opened.log.append_timeline(
        timeline.encode(TimelineEntry(kind="compacting", generation=0, details=details))
    )
    check_readers(disk, session, opened)
    if not with_mark:
        disk.plant(f"{PATH}/{paths.MARK}")
    opened.log.close()
    opened = session.open()
    check_readers(disk, session, opened)

    assert apply(opened, checkpoint("later")).checkpoint_id == 3
    assert apply(opened, compact("k", "0:8", "0:10", reserved), SUMMARY).checkpoint_id == 2
    assert ids_rise(opened)
    apply(opened, clear("c"))
    opened.log.close()
    assert apply(session.open(), checkpoint("new")).checkpoint_id == 4


def test_an_id_that_another_program_took_is_a_conflict() -> None:
    disk, session, opened = fresh()
    filled(opened)
    reserved = machine_of(opened).reserve_checkpoint_id()
    opened.log.close()
    disk.foreign.append(FILE, line({"role": "_checkpoint", "id": reserved}))
    opened = session.open()
    before = lines_of(opened)

    with pytest.raises(Conflict, match="2, which compact_begin reserved, was set by another"):
        apply(opened, compact("k", "0:8", "0:10", reserved), SUMMARY)

    assert lines_of(opened) == before
    assert timeline.in_doubt(session.file(paths.TIMELINE)) is None
    check_readers(disk, session, opened)


@pytest.mark.parametrize("claimed", [0, 1, 3, 2**53])
def test_an_id_that_was_never_reserved_makes_no_ids_fall(claimed: int) -> None:
    _, _, opened = fresh()
    filled(opened)
    assert apply(opened, compact("k", "0:8", "0:10", claimed), SUMMARY).checkpoint_id == 2
    apply(opened, checkpoint("later"))
    with pytest.raises(Conflict):
        apply(opened, compact("k2", "1:3", "1:4", max(2, claimed)), SUMMARY)


def test_a_second_compaction_goes_on_from_the_first() -> None:
    disk, session, opened = compacted()
    apply(opened, append("m"), user("six"), user("seven"))
    apply(opened, compact("k2", "1:6", "1:8", 4), user("all of it"))

    assert summary_of(opened) == ["#4", "all of it", "six", "seven", "=4"]
    for target, generation in ((4, 2), (3, 1), (2, 1), (1, 0), (0, 0)):
        copy = copy_of(disk)
        apply(copy.open(), revert("r", target))
        assert copy.timeline()[-1].details["from"] == generation
    check_readers(disk, session, opened)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "at"), [("0:0", "0:10"), ("0:9", "0:8"), ("0:8", "0:11"), ("0:11", "0:11")]
)
def test_positions_that_are_none_of_a_compaction_are_refused(cut: str, at: str) -> None:
    _, session, opened = fresh()
    filled(opened)
    before = session.tree()

    with pytest.raises(BadRequest, match="use the values of the reply to compact_begin"):
        apply(opened, compact("k", cut, at, 2), SUMMARY)
    assert session.tree() == before


@pytest.mark.parametrize("at", [5, 6, 7])
def test_a_compaction_that_would_have_begun_inside_a_batch_is_refused(at: int) -> None:
    _, session, opened = fresh()
    apply(opened, append("k1"), user("one"), user("two"), user("three"), user("four"))
    apply(opened, append("k2"), user("five"), user("six"), user("seven"), user("eight"))
    before = session.tree()

    with pytest.raises(BadRequest, match=f"0:{at} is inside the batch 'k2'.*0:4 to 0:8"):
        apply(opened, compact("k", "0:2", f"0:{at}", 0), SUMMARY)
    assert session.tree() == before


@pytest.mark.parametrize("command", [revert("r", 1), clear("r"), prompt("r", "x"), restore("r", 0)])
def test_a_rewrite_meanwhile_is_a_conflict_and_changes_nothing(command: Any) -> None:
    _, session, opened = fresh()
    apply(opened, clear("earlier"))
    filled(opened)
    apply(opened, command)
    before = session.tree()

    with pytest.raises(Conflict, match="begin the compaction again") as caught:
        apply(opened, compact("k", "1:8", "1:10", 2), SUMMARY)
    assert caught.value.head == str(opened.machine.head)
    assert session.tree() == before
