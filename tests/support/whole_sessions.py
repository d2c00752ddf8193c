"""Forks, renames, descriptions, deletions and restorations on a simulated disk."""

import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steno_protocol import limits, paths
from steno_protocol.commands import Delete, Describe, Fork, List, Rename, TakeIn, Undelete
from steno_protocol.errors import OutcomeUnknown
from steno_protocol.replies import Deleted, Moved, SessionEntry, SessionStat
from stenod.core import timeline
from stenod.recovery.opened import Opened
from stenod.runtime.config import Config
from stenod.sessions import fork, metadata, moves, rename, taking_in, trash
from stenod.sessions.fork import Wanted
from stenod.sessions.fork_point import Instant, Snapshot, cut
from stenod.sessions.metadata import Description
from stenod.sessions.session_folders import SessionFolders
from support.lines import SESSION, append, line, user
from support.simulated_disk import MOMENTS, Effect, SimulatedDisk, Survival
from support.simulated_faults import Call
from support.stored_session import NOW_S, StoredSession, apply

ROOT = "/disk"
TREE = f"{ROOT}/{paths.SESSIONS}"
PATH = f"{TREE}/{SESSION}"
EXPIRY_S = limits.TRASH_EXPIRY_S


@dataclass(frozen=True, slots=True)
class World:
    """One root on a disk, and its session `demo`."""

    disk: SimulatedDisk

    @property
    def trees(self) -> SessionFolders:
        """The folders of the sessions."""
        return SessionFolders(Config(Path(ROOT), Path(f"{ROOT}/socket")), self.disk)

    def stored(self, session: str = SESSION) -> StoredSession:
        """The files of a session."""
        return StoredSession(self.disk, f"{TREE}/{session}")

    def clone(self) -> "World":
        """The same once more."""
        return World(self.disk.clone())

    def listed(self, **fields: Any) -> list[SessionEntry]:
        """The listed sessions."""
        return self.trees.sessions(List(**fields)).sessions

    def ids(self) -> list[str]:
        """The sessions that there are."""
        return [entry.session for entry in self.listed()]

    @contextmanager
    def captured(self, opened: Opened) -> Iterator[Snapshot]:
        """The session as it is now."""
        trees, log = self.trees, opened.log
        place = trees.place(SESSION)
        wire = trees.readable_stream(place, paths.WIRE).view
        context = log.view(log.generation)
        try:
            yield Snapshot(
                session=SESSION,
                generation=log.generation,
                context=context,
                wire=wire,
                next_id=opened.machine.next_checkpoint_id,
                past=lambda generation: trees.past(place, generation),
                timeline=timeline.decode(log.timeline()),
                incarnation=opened.incarnation,
            )
        finally:
            context.release()
            wire.release()

    def cut(self, **fields: Any) -> Instant:
        """The point at which a fork would cut the session."""
        opened = self.stored().open(create=False)
        try:
            with self.captured(opened) as captured:
                return cut(captured, Fork(session=SESSION, new_session="other", key="f", **fields))
        finally:
            opened.log.close()

    def fork(
        self, key: str, new: str = "other", *, incarnation: str = "forked", **fields: Any
    ) -> SessionStat:
        """Fork the session, step by step as the daemon does."""
        trees, command = self.trees, Fork(session=SESSION, new_session=new, key=key, **fields)
        source, target = trees.place(SESSION), trees.place(new)
        wanted = Wanted(command, source, target, incarnation, stamp=True, now=NOW_S)
        made = fork.find(self.disk, trees, wanted)
        opened = self.stored().open(create=False)
        try:
            entries = timeline.decode(opened.log.timeline())
            if made is None:
                fork.check_key(wanted, entries)
                with self.captured(opened) as captured:
                    made = fork.make(self.disk, trees, captured, wanted)
            if not fork.is_recorded(wanted, entries):
                opened.log.append_timeline(timeline.encode(fork.source_entry(wanted, made)))
        finally:
            if not self.disk.died:
                opened.log.close()
        return made

    def describe(self, *, now: float = NOW_S, **fields: Any) -> Description:
        """Describe the session; returns its new metadata."""
        folder = self.trees.open_folder(self.trees.place(SESSION))
        command = Describe(session=SESSION, **fields)
        try:
            metadata.change(self.disk, folder, command, PATH, now)
        finally:
            if not self.disk.died:
                self.disk.close(folder)
        return self.described()

    def described(self) -> Description:
        """The metadata of the session."""
        return self.trees.description(self.trees.place(SESSION))

    def delete(self, key: str, session: str = SESSION, *, now: float = NOW_S) -> Deleted:
        """Delete a session, step by step as the daemon does."""
        trees, command = self.trees, Delete(session=session, key=key)
        place = trees.place(session)
        found = trash.find(trees, place, command, EXPIRY_S)
        return found or trash.discard(self.disk, trees, place, command, now, EXPIRY_S)

    def undelete(
        self, key: str, session: str = SESSION, *, now: float = NOW_S, **fields: Any
    ) -> Moved:
        """Restore a deleted session, step by step as the daemon does."""
        trees, command = self.trees, Undelete(session=session, key=key, **fields)
        place = trees.place(session)
        found = trash.restored(trees, place, command)
        return found or trash.restore(self.disk, trees, place, command, now, EXPIRY_S)

    def take_in(self, key: str, session: str = SESSION, *, now: float = NOW_S) -> Moved:
        """Take a prepared session in, step by step as the daemon does."""
        trees, command = self.trees, TakeIn(session=session, key=key)
        wanted = taking_in.Wanted(command, trees.place(session))
        if not taking_in.find(trees, wanted):
            taking_in.take_in(self.disk, trees, wanted, now)
        return Moved(session=session, folder=wanted.place.path)

    def rename(
        self, key: str, new: str = "other", *, session: str = SESSION, now: float = NOW_S
    ) -> Moved:
        """Rename a session, step by step as the daemon does, except the line of its timeline."""
        trees, command = self.trees, Rename(session=session, new_session=new, key=key)
        wanted = rename.Wanted(command, trees.place(session), trees.place(new))
        rename.check(wanted)
        found = rename.find(trees, wanted)
        made = found or rename.rename(self.disk, trees, wanted, now)
        if not made.is_complete:
            rename.finish(trees, wanted.source, key)
        return made.answer

    def forget_moves(self, now: float) -> int:
        """Remove the expired records of renames and restorations."""
        tree = self.disk.open_root(TREE)
        try:
            return moves.sweep(self.disk, tree, now, EXPIRY_S)
        finally:
            self.disk.close(tree)

    def sweep(self, now: float = NOW_S, under_way: Collection[str] = ()) -> tuple[int, int]:
        """Clean up as a daemon does at its start, beside forks with these keys."""
        tree = self.disk.open_root(TREE)
        try:
            left = fork.remove_abandoned(self.disk, tree, paths.FORKS, under_way.__contains__)
            left += fork.remove_abandoned(self.disk, tree, paths.IMPORTS, under_way.__contains__)
            return left, trash.sweep(self.disk, tree, now, EXPIRY_S)
        finally:
            self.disk.close(tree)

    def files(self, below: str) -> dict[str, bytes]:
        """Every file below a folder, by its path there."""
        found = self.disk.tree().items()
        return {path.removeprefix(below): data for path, data in found if path.startswith(below)}


def turn(at: str | None, number: int, **extra: Any) -> bytes:
    """The line of a `TurnBegin`, which mentions an upload."""
    payload = {"user_input": f"turn {number}, see uploads/{number}.mp4"}
    return _event("TurnBegin", payload, at, f"t{number}", extra)


def part(at: str | None, number: int, **extra: Any) -> bytes:
    """The line of another event."""
    return _event("TextPart", {"text": f"part {number}"}, at, f"p{number}", extra)


HEADER = line({"type": "metadata", "protocol_version": "1.10"})


def _event(kind: str, payload: Any, at: str | None, key: str, extra: dict[str, Any]) -> bytes:
    joined = {"_at": at, "_id": key} if at is not None else {}
    message = {"type": kind, "payload": payload}
    return line({"timestamp": 1.5, "message": message, **joined, **extra})


@dataclass(frozen=True, slots=True)
class Dying:
    """One way for a procedure to be cut short."""

    world: World
    survival: Survival | None

    def restart(self) -> None:
        """The machine, or the daemon, is on again."""
        if self.world.disk.died:
            self.world.disk.restart(self.survival)
        else:
            # A death within a call that has no middle does not come.
            self.world.disk.heal()
            self.world.disk.crash()


def deaths(world: World, procedure: Callable[[World], object]) -> Iterator[Dying]:
    """A copy of the world for each call of a procedure and each way to die there."""
    rehearsal = world.clone()
    first = len(rehearsal.disk.calls)
    procedure(rehearsal)
    for call in range(first, len(rehearsal.disk.calls)):
        for moment in MOMENTS:
            for survival in (*Survival, None):
                copy = world.clone()
                copy.disk.reseed(call)
                if survival is None:
                    copy.disk.kill_at(call, moment)
                else:
                    copy.disk.crash_at(call, moment)
                yield Dying(copy, survival)


def failures(
    world: World, procedure: Callable[[World], object], effect: Effect
) -> Iterator[tuple[World, Call, Exception | None]]:
    """A copy of the world for each call of a procedure, in which it met an error at that call.

    Yields:
        the copy, whose disk works again; the call; what the procedure raised, if anything.
    """
    rehearsal = world.clone()
    first = len(rehearsal.disk.calls)
    procedure(rehearsal)
    for number in range(first, len(rehearsal.disk.calls)):
        copy, raised = world.clone(), None
        copy.disk.fail_at(number, errno.EIO, effect)
        try:
            procedure(copy)
        except (OSError, OutcomeUnknown) as error:
            raised = error
        copy.disk.heal()
        call = copy.disk.calls[number]
        if not call.method.startswith("open"):
            assert not copy.disk._handles, "what fails leaves no handle open"
        yield copy, call, raised


def prepared() -> World:
    """A session with another one below it, and a neighbour."""
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    apply(opened, append("k0"), user("one"))
    opened.log.close()
    world.disk.plant(f"{PATH}/subagents/a1/context.jsonl", b"")
    world.disk.plant(f"{TREE}/neighbour/context.jsonl", b"")
    world.disk.sync_all()
    return world
