"""Rewrites interrupted at every call."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from steno_protocol import paths
from steno_protocol.commands import CompactCommit, Mutation, RevertTo
from steno_protocol.context import ContextState
from steno_protocol.errors import BadRequest, Conflict, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail
from stenod.recovery.opened import Opened
from support.lines import (
    SESSION,
    append,
    checkpoint,
    clear,
    compact,
    deliver,
    foreign,
    mail,
    prompt,
    restore,
    revert,
    revert_line,
    stamped,
    usage,
    user,
)
from support.simulated_disk import MOMENTS, Death, Effect, PowerCut, SimulatedDisk, Survival
from support.stored_session import StoredSession, apply, find_key, fresh, lines_of

PATH = "/disk/demo"

REWRITES: dict[str, Mutation] = {
    "revert": revert("r", 1),
    "revert to a line": revert_line("r", "1:2"),
    "clear": clear("r"),
    "prompt": prompt("r", "be kinder"),
    "restore": restore("r", 0),
    "compact": compact("r", "1:5", "1:8", 2),
    "deliver": deliver("r", "m"),
}
SUMMARY = user("<current_focus>one to five</current_focus>")
EACH = pytest.mark.parametrize("command", REWRITES.values(), ids=REWRITES)
EACH_AT_ANY_CALL = pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=name, marks=[] if name == "revert" else [pytest.mark.slow])
        for name, command in REWRITES.items()
    ],
)
"""All of them share one procedure, and stopped at each of its calls one takes seconds."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A durable session before its rewrite, and its state after it."""

    disk: SimulatedDisk
    before: dict[str, bytes]
    after: dict[str, bytes]
    mail_after: Mail | None
    calls: range

    def clone(self) -> tuple[SimulatedDisk, StoredSession]:
        disk = self.disk.clone()
        return disk, StoredSession(disk, PATH)


def prepared() -> tuple[SimulatedDisk, StoredSession]:
    """A session with two generations and a mail that waits, closed and durable."""
    disk, session, opened = fresh()
    apply(opened, prompt("p", "be kind"))
    apply(opened, append("k1"), user("one"), user("two"))
    apply(opened, checkpoint("c0"))
    apply(opened, clear("cleared"))
    apply(opened, prompt("p2", "be nice"))
    apply(opened, append("k2"), user("three"))
    apply(opened, checkpoint("c1"))
    apply(opened, usage("u", 7))
    apply(opened, append("k3"), user("four"), user("five"))
    apply(opened, checkpoint("c2", add_user_message=True))
    apply(opened, append("k4"), user("six"))
    apply(opened, mail("m", 1))
    opened.log.close()
    disk.sync_all()
    return disk, session


def content(session: StoredSession) -> dict[str, bytes]:
    """The session's generations, the present one and those that were left behind."""
    return {
        name: data
        for name, data in session.tree().items()
        if name.startswith(paths.CONTEXT[:7]) and name.endswith(".jsonl")
    }


def scene(command: Mutation) -> Scene:
    disk, session = prepared()
    before = content(session)
    rehearsal = disk.clone()
    again = StoredSession(rehearsal, PATH)
    first = len(rehearsal.calls)
    opened = again.open()
    rewrite(opened, command)
    opened.log.close()
    calls = range(first, len(rehearsal.calls))
    return Scene(disk, before, content(again), again.mail(), calls)


def rewrite(opened: Opened, command: Mutation) -> Ack:
    """Apply a rewrite; a compaction comes with its summary."""
    return apply(opened, command, *([SUMMARY] if isinstance(command, CompactCommit) else []))


def attempt(session: StoredSession, command: Mutation) -> None:
    rewrite(session.open(), command)


def check(found: Scene, session: StoredSession, command: Mutation) -> None:
    """The session is as before or as after, and the same key leads to after, once."""
    opened = session.open()
    now = content(session)
    assert now in (found.before, found.after)
    assert (find_key(opened, command.key) is not None) == (now == found.after)
    assert opened.machine.mail == session.mail()
    waits = session.mail() is not None
    assert waits == (found.mail_after is not None if now == found.after else True)
    assert_no_stray(session)
    ack = rewrite(opened, command)
    assert ack.duplicate == (now == found.after)
    assert content(session) == found.after
    assert session.mail() == found.mail_after
    again = rewrite(opened, command)
    assert again.duplicate
    assert (again.first, again.head, again.rotated) == (ack.first, ack.head, ack.rotated)
    opened.log.close()
    assert session.open().machine.head == Position.parse(ack.head)


def assert_no_stray(session: StoredSession) -> None:
    expected = {paths.CONTEXT, paths.TIMELINE, paths.MARK, paths.QUARANTINE}
    expected |= {name for name in session.names() if paths.generation_of(name) is not None}
    assert session.names() <= expected | {f"{paths.MARK}.new"}


# --- deaths --------------------------------------------------------------------------------------


def deaths(found: Scene) -> Iterator[tuple[SimulatedDisk, StoredSession, Callable[[], None]]]:
    for call in found.calls:
        for moment in MOMENTS:
            for survival in (*Survival, None):
                disk, session = found.clone()
                disk.reseed(call)
                if survival is None:
                    disk.kill_at(call, moment)
                else:
                    disk.crash_at(call, moment)
                yield disk, session, lambda disk=disk, survival=survival: disk.restart(survival)


@EACH_AT_ANY_CALL
def test_a_rewrite_that_dies_at_any_call_is_as_before_or_as_after(command: Mutation) -> None:
    found = scene(command)
    states = set[bool]()
    for disk, session, restart in deaths(found):
        try:
            attempt(session, command)
        except Death:
            restart()
        else:
            # A death within a call that has no middle does not come.
            disk.heal()
            disk.crash()
        states.add(content(session).get("context_2.jsonl") is not None)
        check(found, session, command)
    assert states == {True, False}


@EACH_AT_ANY_CALL
def test_names_that_survive_in_any_order_leave_before_or_after(command: Mutation) -> None:
    found = scene(command)
    for call in found.calls:
        for seed in range(8):
            disk, session = found.clone()
            disk._names_in_order = False
            disk.reseed(seed)
            disk.crash_at(call)
            with pytest.raises(PowerCut):
                attempt(session, command)
            disk.restart()
            check(found, session, command)


# --- errors --------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_rewrite_that_fails_at_any_call_is_as_before_or_as_after(
    command: Mutation, effect: Effect
) -> None:
    found = scene(command)
    for call in found.calls:
        disk, session = found.clone()
        disk.fail_at(call, errno.EIO, effect)
        opened: Opened | None = None
        try:
            opened = session.open()
            rewrite(opened, command)
        except OSError:
            pass
        if opened is not None:
            opened.log.close()
        disk.heal()
        if not disk.calls[call].method.startswith("open"):
            assert not disk._handles, "a failed rewrite leaves no handle open"
        check(found, session, command)


# --- effects of a rewrite ------------------------------------------------------------------------


def test_a_revert_to_a_line_keeps_the_lines_before_it_byte_for_byte() -> None:
    _, session, opened = fresh()
    apply(opened, append("k1"), user("one"))
    apply(opened, checkpoint("c0"))
    apply(opened, append("k2"), user("two"))
    kept = session.file()
    apply(opened, append("k3"), user("three"))
    apply(opened, checkpoint("c1"))

    ack = apply(opened, revert_line("r", "0:3"))

    assert session.file() == kept
    assert (ack.head, ack.rotated) == ("1:3", f"{PATH}/context_1.jsonl")
    entry = session.timeline()[-1]
    assert (entry.kept, entry.details["position"], entry.details["checkpoint_id"]) == (3, "0:3", 1)
    # The checkpoint before the line is one still, and the one behind it is gone for ever.
    with pytest.raises(NotFound, match="reverted the session to line 0:3"):
        apply(opened, revert("r1", 1))
    assert apply(opened, checkpoint("c2")).checkpoint_id == 2
    assert apply(opened, revert("r2", 0)).head == "2:1"


def test_a_revert_to_the_first_line_leaves_nothing() -> None:
    _, session, opened = fresh()
    apply(opened, append("k1"), user("one"))
    assert apply(opened, revert_line("r", "0:0")).head == "1:0"
    assert session.file() == b""


@pytest.mark.parametrize(
    ("position", "error", "why"),
    [
        ("0:1", Conflict, "not of the present generation 1"),
        ("2:0", Conflict, "not of the present generation 1"),
        ("1:2", NotFound, "the session ends at 1:2"),
        ("1:3", NotFound, "the session ends at 1:2"),
    ],
)
def test_a_line_that_is_not_there_now_is_refused(
    position: str, error: type[Exception], why: str
) -> None:
    _, session, opened = fresh()
    apply(opened, append("k1"), user("one"), user("two"))
    apply(opened, clear("cleared"))
    apply(opened, append("k2"), user("three"))
    apply(opened, append("k3"), user("four"))
    before = session.file()
    with pytest.raises(error, match=why):
        apply(opened, revert_line("r", position))
    assert session.file() == before


@pytest.mark.parametrize(
    "target", [{}, {"checkpoint_id": 0, "position": "0:0"}], ids=["none", "both"]
)
def test_a_revert_names_one_target(target: dict[str, Any]) -> None:
    _, _, opened = fresh()
    apply(opened, checkpoint("c0"))
    with pytest.raises(BadRequest, match="give one of checkpoint_id and position"):
        apply(opened, RevertTo(session=SESSION, key="r", **target))


def test_a_revert_drops_damaged_lines_and_keeps_those_that_a_tolerant_reader_takes() -> None:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    good = [
        foreign("one"),
        b"\n",
        b'{"role":"user","content":"a tab \t and a bell \x07"}\n',
        b'{"role":"user","content":"half \xe4\xb8 a character"}\n',
        b'{"role":"user","content":"a number","weight":NaN}\n',
    ]
    bad = [
        b'{"role":"assistant","content":"cut\n', b'{"oops":"\t"}\n', b"\xe4\xb8\n", b'["\t"]\n',
        b'{"role":"user","content":"lost \0\0"}\n',
    ]  # fmt: skip
    mark = b'{"role":"_checkpoint","id":0}\n'
    mixed = [line for pair in zip(good, bad, strict=True) for line in pair]
    lines = [*mixed, mark, foreign("gone")]
    disk.plant(f"{PATH}/context.jsonl", b"".join(lines))
    session = StoredSession(disk, PATH)
    opened = session.open()

    ack = apply(opened, RevertTo(session=SESSION, key="r", checkpoint_id=0, drop_damaged=True))

    assert session.file() == b"".join(good)
    assert session.file("context_1.jsonl") == b"".join(lines)
    assert ack.head == f"1:{len(good)}"
    assert [entry.kept for entry in session.timeline()][-1] == 1


def test_a_checkpoint_that_does_not_exist_is_named_with_those_that_do() -> None:
    _, _, opened = fresh()
    with pytest.raises(NotFound, match="the session has none yet"):
        apply(opened, revert("r", 0))
    apply(opened, checkpoint("c0"))
    for number in (-1, 1):
        with pytest.raises(NotFound, match="0 to 0 were assigned"):
            apply(opened, revert("r", number))


BY_ANOTHER = b'{"role": "_system_prompt", "content": "be quick"}\n'


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (BY_ANOTHER + stamped("p", ["x"])[0], stamped("p", ["x"])),
        (b"\n" + BY_ANOTHER + foreign("x"), [b"\n", foreign("x")]),
        (foreign("x") + BY_ANOTHER + foreign("y") + BY_ANOTHER, [foreign("x"), foreign("y")]),
        (BY_ANOTHER * 3, []),
        (b'{"role":"\\u005fsystem_prompt","content":"odd"}\n' + foreign("x"), [foreign("x")]),
        (b'{"role":"_system_prompt"}\n', [b'{"role":"_system_prompt"}\n']),
    ],
)
def test_new_prompt_replaces_prompts_at_any_place(before: bytes, kept: list[bytes]) -> None:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    disk.plant(f"{PATH}/context.jsonl", before)
    session = StoredSession(disk, PATH)
    opened = session.open()
    ack = apply(opened, prompt("p2", "be kinder"))

    state = ContextState()
    state.apply_block(session.file())
    assert state.system_prompt == "be kinder"
    first, *others = session.file().splitlines(keepends=True)
    assert b"be kinder" in first
    assert others == kept
    assert ack.head == f"1:{1 + len(kept)}"
    assert session.file("context_1.jsonl") == before
    assert opened.machine.head.line == 1 + len(kept)


def test_a_generation_comes_back_and_the_present_one_is_left_behind() -> None:
    _, session, opened = fresh()
    apply(opened, append("k1"), user("one"))
    first = session.file()
    apply(opened, clear("c"))
    apply(opened, append("k2"), user("two"))
    second = session.file()

    ack = apply(opened, restore("r", 0))

    assert session.file() == first
    assert session.file("context_2.jsonl") == second
    assert ack.head == "2:1"
    with pytest.raises(NotFound, match="there are 0, 1"):
        apply(opened, restore("r2", 2))


@EACH
def test_a_rewrite_is_answered_again_also_when_its_left_behind_file_grew(
    command: Mutation,
) -> None:
    disk, session = prepared()
    opened = session.open()
    ack = rewrite(opened, command)
    apply(opened, append("k9"), user("nine"))
    opened.log.close()
    # kimi-cli writes on into the file that it has open.
    disk.foreign.append(f"{PATH}/context_2.jsonl", foreign("late"))

    opened = session.open()
    again = rewrite(opened, command)

    assert again.duplicate
    assert (again.first, again.head, again.rotated) == (ack.first, ack.head, ack.rotated)


def test_a_second_name_that_another_program_gave_the_file_does_not_stop_rewrites() -> None:
    disk, session, opened = fresh()
    apply(opened, append("k1"), user("one"))
    opened.log.close()
    disk.foreign.link(f"{PATH}/context.jsonl", "context_1.jsonl")

    opened = session.open()

    assert apply(opened, clear("c")).head == "1:0"
    assert lines_of(opened) == []
