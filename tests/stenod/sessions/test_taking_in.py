"""Prepared folders that become sessions: what is refused, deaths on a real disk, leftovers."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steno_protocol import paths
from steno_protocol.commands import TakeIn
from steno_protocol.errors import BadRequest, Busy, Exists, NotFound
from stenod.runtime.config import Config
from stenod.sessions import taking_in
from stenod.sessions.session_folders import SessionFolders
from stenod.store.posix import PosixDisk
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S
from support.whole_sessions import PATH, TREE, World

KEY = "k"
LINE = b'{"role":"user","content":"one"}\n'


class Killed(BaseException):
    """The process ends at a call."""


class MortalDisk:
    """A real disk whose process dies at one of its calls.

    Args:
        dies_at: the number of the call; None for a process that lives.
        is_after: the call itself still takes place.
    """

    def __init__(self, dies_at: int | None = None, *, is_after: bool = False) -> None:
        self._disk = PosixDisk()
        self._dies_at = dies_at
        self._is_after = is_after
        self._open: set[int] = set()
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._disk, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            dies = self._dies_at is not None and number >= self._dies_at
            if dies and not (self._is_after and number == self._dies_at):
                raise Killed
            result = found(*arguments, **named)
            if name.startswith("open"):
                self._open.add(result)
            elif name == "close":
                self._open.discard(arguments[0])
            if dies:
                raise Killed
            return result

        return call

    def end(self) -> None:
        """Close what a dead process had open, as the kernel does."""
        for handle in self._open:
            os.close(handle)


class Root:
    """A root on the real disk with a prepared session."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = path / paths.SESSIONS
        self.prepared = self.tree / paths.IMPORTS / KEY / paths.PREPARED

    def prepare(self) -> None:
        (self.prepared / "subagents" / "a1").mkdir(parents=True)
        for folder in (self.prepared, self.prepared / "subagents" / "a1"):
            (folder / "context.jsonl").write_bytes(LINE)
        for each in (self.path, *self.path.rglob("*")):
            each.chmod(0o700 if each.is_dir() else 0o600)

    def take_in(self, disk: Any, session: str = "team/demo") -> bool:
        """Take the prepared session in; whether it was done before."""
        trees = SessionFolders(Config(self.path, self.path / "socket"), disk)
        wanted = taking_in.Wanted(TakeIn(session=session, key=KEY), trees.place(session))
        if taking_in.find(trees, wanted):
            return True
        taking_in.take_in(disk, trees, wanted, NOW_S)
        return False

    def sessions(self) -> dict[str, bytes]:
        """The contents of the files of all sessions."""
        return {
            str(each.relative_to(self.tree)): each.read_bytes()
            for each in sorted(self.tree.rglob("*.jsonl"))
            if paths.IMPORTS not in each.parts
        }


@pytest.fixture
def prepared(tmp_path: Path) -> Root:
    root = Root(tmp_path / "root")
    root.prepare()
    return root


WHOLE = {
    "team/demo/context.jsonl": LINE,
    "team/demo/subagents/a1/context.jsonl": LINE,
}


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_take_in_that_dies_at_any_call_of_a_real_disk_took_place_or_did_not(
    tmp_path: Path, is_after: bool
) -> None:
    living = Root(tmp_path / "living")
    living.prepare()
    rehearsal = MortalDisk()
    assert not living.take_in(rehearsal)
    outcomes = set[bool]()
    for call in range(rehearsal.calls):
        root = Root(tmp_path / str(call))
        root.prepare()
        dying = MortalDisk(call, is_after=is_after)
        with contextlib.suppress(Killed):
            root.take_in(dying)
        dying.end()
        found = root.sessions()
        assert found in ({}, WHOLE)
        outcomes.add(bool(found))
        assert root.take_in(PosixDisk()) == bool(found)
        assert root.sessions() == WHOLE
        assert root.take_in(PosixDisk())
        assert not root.prepared.exists()
    assert outcomes == {False, True}


def link(root: Root) -> None:
    (root.prepared / "link").symlink_to("/etc/passwd")


def link_to_a_folder(root: Root) -> None:
    (root.prepared / "subagents" / "more").symlink_to("/etc")


def second_name(root: Root) -> None:
    os.link(root.prepared / "context.jsonl", root.path / "another name")


def pipe(root: Root) -> None:
    os.mkfifo(root.prepared / "pipe")


def writable_file(root: Root) -> None:
    (root.prepared / "subagents" / "a1" / "context.jsonl").chmod(0o620)


def writable_folder(root: Root) -> None:
    (root.prepared / "subagents").chmod(0o702)


def writable_nest(root: Root) -> None:
    root.prepared.parent.chmod(0o722)


def no_context(root: Root) -> None:
    (root.prepared / "context.jsonl").unlink()


def linked_nest(root: Root) -> None:
    nest = root.prepared.parent
    nest.rename(root.path / "moved")
    nest.symlink_to(root.path / "moved")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (link, "link is not taken in: refused to open: it is a symbolic link"),
        (link_to_a_folder, "more is not taken in: refused to open: it is a symbolic link"),
        (second_name, "context.jsonl is not taken in: it has another name elsewhere"),
        (pipe, "pipe is not taken in: refused to open: it is a (FIFO|pipe|named pipe)"),
        (writable_file, "a1/context.jsonl is not taken in: another user may write to it"),
        (writable_folder, "subagents is not taken in: another user may write to it"),
        (writable_nest, "k is not taken in: another user may write to it"),
        (no_context, "session has no context.jsonl, so it is no session"),
        (linked_nest, "session is no folder"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_no_session_has_is_refused(
    prepared: Root, spoil: Callable[[Root], None], why: str
) -> None:
    spoil(prepared)
    with pytest.raises(BadRequest, match=why):
        prepared.take_in(PosixDisk())
    assert prepared.sessions() == {}
    assert not (prepared.tree / paths.MOVES).exists(), "nothing was begun"


def test_a_taken_place_is_left_alone(prepared: Root) -> None:
    there = prepared.tree / "team" / "demo" / "below" / "context.jsonl"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"")
    with pytest.raises(Exists, match="choose another id"):
        prepared.take_in(PosixDisk())
    assert prepared.prepared.exists()
    prepared.take_in(PosixDisk(), "other")
    assert (prepared.tree / "other" / "context.jsonl").read_bytes() == LINE


def test_nothing_prepared_is_not_found(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.tree.mkdir(parents=True)
    with pytest.raises(NotFound, match=r"nothing is prepared at .*/\.imports/k/session"):
        root.take_in(PosixDisk())


def test_a_folder_that_is_being_removed_is_not_taken_in(prepared: Root) -> None:
    other = PosixDisk()
    handle = other.open_root(str(prepared.prepared))
    assert other.lock(handle)
    with pytest.raises(Busy, match="try again in a moment"):
        prepared.take_in(PosixDisk())
    other.close(handle)
    assert not prepared.take_in(PosixDisk())


# --- the simulated disk --------------------------------------------------------------------------


def test_files_that_the_client_did_not_sync_survive_a_power_cut() -> None:
    world = World(SimulatedDisk())
    world.disk.plant(f"{TREE}/.imports/{KEY}/session/old", b"")
    world.disk.foreign.replace(f"{TREE}/.imports/{KEY}/session/context.jsonl", LINE)
    for seed in range(10):
        copy = world.clone()
        copy.take_in(KEY)
        copy.disk.reseed(seed)
        copy.disk.crash()
        assert copy.files(f"{PATH}/") == {"context.jsonl": LINE, "old": b""}


def test_a_sync_that_fails_takes_nothing_in() -> None:
    world = World(SimulatedDisk())
    world.disk.plant(f"{TREE}/.imports/{KEY}/session/context.jsonl", LINE)
    world.disk.fail_next("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        world.take_in(KEY)
    assert world.ids() == []


def abandoned() -> World:
    world = World(SimulatedDisk())
    world.disk.plant(f"{TREE}/.imports/{KEY}/session/below/context.jsonl", LINE)
    world.disk.plant(f"{TREE}/.imports/{KEY}/session/context.jsonl", LINE)
    return world


def test_what_nobody_took_in_is_swept() -> None:
    world = abandoned()
    assert world.sweep(under_way=[KEY]) == (0, 0)
    assert world.sweep() == (1, 0)
    assert world.files(f"{TREE}/.imports/") == {}


@pytest.mark.parametrize("locked", [KEY, f"{KEY}/session"])
def test_what_is_prepared_or_moved_is_not_swept(locked: str) -> None:
    world = abandoned()
    handle = world.disk.open_root(f"{TREE}/.imports/{locked}")
    assert world.disk.lock(handle)
    assert world.sweep() == (0, 0)
    assert set(world.files(f"{TREE}/.imports/{KEY}/session/")) == {
        "context.jsonl",
        "below/context.jsonl",
    }
    world.disk.close(handle)
    assert world.sweep() == (1, 0)
