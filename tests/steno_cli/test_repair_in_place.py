"""Repairs of a transcript in place, killed at any call."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import steno_system
from steno_cli.command_limits import REPAIR_BACKUPS_MAX
from steno_cli.repair import repair_in_place
from steno_cli.repair.transcripts import LocalFolder
from steno_protocol.checks import edits_of
from steno_protocol.errors import Conflict, OutcomeUnknown, StorageFailed, TooLarge
from steno_protocol.line_schemas import OtherSchema
from support.lines import foreign

DAMAGED = foreign("a") + b'{"role":"us' + foreign("b") + b"garbage\n" + foreign("c")[:-1]
MENDED = foreign("a") + foreign("b") + foreign("c")

CALLS = ("open", "write", "pwrite", "fchown", "fchmod", "fsync", "link", "rename", "unlink", "stat")


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    file = tmp_path / "talk.jsonl"
    file.write_bytes(DAMAGED)
    return file


def repair(path: Path) -> str | None:
    """Repair a file as the command does."""
    with closing(LocalFolder(path.parent)) as folder:
        repair_in_place.lock(folder, path.parent)
        original = repair_in_place.original_of(folder, path.name)
        _, edits = edits_of(folder.blocks(path.name), OtherSchema())
        return repair_in_place.replace_file(folder, path, original, edits) if edits else None


def failure_of(path: Path) -> type[Exception] | None:
    """The outcome of a repair."""
    try:
        repair(path)
    except (StorageFailed, OutcomeUnknown, OSError) as error:
        return type(error)
    return None


def _home(name: str) -> object:
    """Where a repair finds a call: the sync differs between systems."""
    return steno_system if name == "fsync" else repair_in_place.os


def count_calls(monkeypatch: pytest.MonkeyPatch, at_call: Callable[[int], None]) -> None:
    """Have every call of the system counted, and something done before it."""
    done = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            at_call(done)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(_home(name), name, counted(getattr(os, name)))


def die_at(number: int, path: Path) -> int:
    """Repair in a child that is killed before its call of this number; how it ended."""
    child = os.fork()
    if child == 0:
        try:
            with pytest.MonkeyPatch.context() as patch:
                count_calls(
                    patch,
                    lambda call: os.kill(os.getpid(), signal.SIGKILL) if call == number else None,
                )
                repair(path)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def originals(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.parent.glob("talk.jsonl.before-repair-*"))]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_repair_killed_at_any_call_leaves_the_original_or_the_repaired_file(
    talk: Path,
) -> None:
    states, number, end = set[bytes](), 1, -signal.SIGKILL
    while end == -signal.SIGKILL:
        for file in talk.parent.iterdir():
            file.unlink()
        talk.write_bytes(DAMAGED)
        end = die_at(number, talk)
        now = talk.read_bytes()
        states.add(now)
        assert now in (DAMAGED, MENDED)
        assert all(kept == DAMAGED for kept in originals(talk))

        repair(talk)
        assert talk.read_bytes() == MENDED
        assert originals(talk) == [DAMAGED]
        assert len(list(talk.parent.iterdir())) == 2, "nothing that was begun is left"
        number += 1
    assert states == {DAMAGED, MENDED}
    assert number > 8


def test_a_repair_with_a_failing_disk_reports_the_truth(talk: Path) -> None:
    raised, failing = set[type[Exception]](), 0
    has_failed = True
    while has_failed:
        failing += 1
        for file in talk.parent.iterdir():
            file.unlink()
        talk.write_bytes(DAMAGED)
        has_failed = False

        def fail(call: int, failing: int = failing) -> None:
            nonlocal has_failed
            if call == failing:
                has_failed = True
                raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            count_calls(patch, fail)
            kind = failure_of(talk)
        if kind is not None:
            raised.add(kind)
            assert talk.read_bytes() == (MENDED if kind is OutcomeUnknown else DAMAGED)
        repair(talk)
        assert (talk.read_bytes(), originals(talk)) == (MENDED, [DAMAGED])
    assert raised == {OSError, StorageFailed, OutcomeUnknown}


def test_new_bytes_are_synced_before_the_name_and_the_name_before_the_end(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*arguments, **options)

        return call

    for name in ("fsync", "link", "rename"):
        monkeypatch.setattr(_home(name), name, noting(name))
    repair(talk)
    assert calls == ["fsync", "link", "fsync", "rename", "fsync"]


def test_a_file_that_changes_while_it_is_looked_at_is_left_alone(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(*arguments: Any, **options: Any) -> None:
        with talk.open("ab") as file:
            file.write(b"more\n")
        real(*arguments, **options)

    monkeypatch.setattr(repair_in_place.os, "link", link)
    with pytest.raises(Conflict, match="changed during"):
        repair(talk)
    assert talk.read_bytes() == DAMAGED + b"more\n"


def test_a_write_to_the_original_during_a_repair_is_reported(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename
    writer = talk.open("ab", buffering=0)

    def rename(*arguments: Any, **options: Any) -> None:
        writer.write(b"late\n")
        real(*arguments, **options)

    monkeypatch.setattr(repair_in_place.os, "rename", rename)
    with writer, pytest.raises(Conflict, match=f"from byte {len(DAMAGED)} on"):
        repair(talk)
    assert talk.read_bytes() == MENDED
    assert originals(talk) == [DAMAGED + b"late\n"]


def test_originals_beside_a_file_are_bounded(talk: Path) -> None:
    for _ in range(REPAIR_BACKUPS_MAX):
        talk.unlink()
        talk.write_bytes(DAMAGED)
        repair(talk)
    talk.unlink()
    talk.write_bytes(DAMAGED)
    with pytest.raises(TooLarge, match="remove those"):
        repair(talk)
    assert talk.read_bytes() == DAMAGED
