"""Known keys of an opened session, without a read of all files."""

import random
from collections.abc import Callable

import pytest

from steno_protocol import limits, paths
from stenod.recovery.opened import Opened
from stenod.recovery.recovery_points import save_recovery_point
from support.lines import append, clear, foreign, user, uuid7
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S, StoredSession, apply, fresh

PATH = "/disk/demo"
NOW_MS = int(NOW_S * 1000)


def key(made: int, number: int = 0) -> str:
    """A key that was made so many milliseconds after the first opening."""
    return uuid7(NOW_MS + made, number)


def again(session: StoredSession, opened: Opened, *, marked: bool) -> Opened:
    """Close a session as its writer does, or as a kill does, and open it an hour later."""
    if marked:
        save_recovery_point(opened)
    opened.log.close()
    return session.open(now_s=NOW_S + 3600)


def test_a_session_that_was_just_made_knows_that_no_key_was_used() -> None:
    _, _, opened = fresh()

    assert opened.machine.keys.youngest_ms == 0
    assert not opened.machine.keys.must_be_looked_up(key(-1), repeat=True)


@pytest.mark.parametrize(("beyond", "is_known"), [(0, True), (1, False)])
def test_a_distant_recovery_point_says_nothing_about_keys(
    monkeypatch: pytest.MonkeyPatch, beyond: int, is_known: bool
) -> None:
    _, session, opened = fresh()
    apply(opened, append(key(5)), user("one"))
    save_recovery_point(opened)
    marked = opened.log.synced
    apply(opened, append(key(9)), user("x" * 300))
    apply(opened, append(key(8)), user("two"))
    monkeypatch.setattr(limits, "BLOCK_BYTES", 10)
    monkeypatch.setattr(limits, "UNPROVEN_BYTES_MAX", opened.log.synced - marked - beyond)
    keys = again(session, opened, marked=False).machine.keys

    assert (keys.youngest_ms is not None) == is_known
    assert keys.get(key(9)) is not None or keys.must_be_looked_up(key(9), repeat=True)


def _without_a_mark(disk: SimulatedDisk) -> None:
    disk.foreign.delete(f"{PATH}/{paths.MARK}")


def _with_other_lines(disk: SimulatedDisk) -> None:
    disk.foreign.replace(f"{PATH}/{paths.CONTEXT}", foreign("x") + foreign("y"))


@pytest.mark.parametrize("spoil", [_without_a_mark, _with_other_lines])
def test_keys_are_unknown_without_a_valid_recovery_point(
    spoil: Callable[[SimulatedDisk], None],
) -> None:
    disk, session, opened = fresh()
    apply(opened, append(key(5)), user("one"))
    save_recovery_point(opened)
    opened.log.close()
    spoil(disk)
    keys = session.open(now_s=NOW_S + 3600).machine.keys

    assert keys.youngest_ms is None
    assert keys.must_be_looked_up(key(6), repeat=False)


@pytest.mark.parametrize("seed", range(10))
def test_no_used_key_counts_as_new_after_any_accident(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(limits, "BLOCK_BYTES", chance.choice([300, 1000, 20_000]))
    monkeypatch.setattr(limits, "UNPROVEN_BYTES_MAX", chance.choice([0, 500, 2000]))
    _, session, opened = fresh()
    used: list[str] = []
    for number in range(60):
        name = key(chance.randrange(-10_000, 10_000), number)
        act = chance.random()
        if act < 0.7:
            apply(opened, append(name), user("x" * chance.randrange(200)))
        elif act < 0.8:
            apply(opened, clear(name))
        elif act < 0.85:
            save_recovery_point(opened)
            continue
        else:
            opened = again(session, opened, marked=chance.random() < 0.5)
            continue
        used.append(name)
        keys = opened.machine.keys
        for each in used:
            is_known = opened.machine.applied(each) is not None
            assert is_known or keys.must_be_looked_up(each, repeat=True)


@pytest.mark.parametrize("length", [0, 20, 60])
def test_no_mark_is_made_of_a_file_that_another_program_changed(length: int) -> None:
    disk, session, opened = fresh()
    apply(opened, append(key(5)), user("one"))
    apply(opened, append(key(6)), user("two"))
    disk.foreign.truncate(f"{PATH}/{paths.CONTEXT}", length)
    disk.foreign.append(f"{PATH}/{paths.CONTEXT}", b"\n" + foreign("theirs" * 30))

    with pytest.raises(OSError, match="another program changed"):
        save_recovery_point(opened)
    opened.log.close()
    assert foreign("theirs" * 30) in session.file()
    session.open(now_s=NOW_S + 3600).log.close()
    assert foreign("theirs" * 30) in session.file()
