"""A session's files, changed step by step without a task."""

from dataclasses import dataclass

from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail, Verification
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.machine import Answered, Lines, Machine, Mailing, Rewrite
from stenod.recovery import crash_recovery, file_opening, inspection, key_lookup, stream_opening
from stenod.recovery.inspection import Inspection
from stenod.recovery.opened import Opened, Opening
from stenod.rewrite import delivery, planner
from stenod.sessions.verify import verify
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import FileView, SharedHandle
from stenod.store.names import read_file
from support.happenings import check_facts
from support.lines import SESSION, uuid7
from support.simulated_disk import SimulatedDisk

NOW_S = 1_700_000_000.0


def fresh_key(number: int = 1) -> str:
    """A key that was made after a test's daemon started: no daemon can have had it before."""
    return uuid7(int(NOW_S + 1) * 1000, number)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session in a folder of a disk.

    Attributes:
        path: its folder, which exists.
    """

    disk: Disk
    path: str

    def open(
        self,
        *,
        now_s: float = NOW_S,
        create: bool = True,
        stamp: bool = True,
        shared: bool = False,
        proven: int | None = None,
        changed_while_open: bool = False,
        incarnation: str = "first",
    ) -> Opened:
        """Open it for its writer."""
        opening = Opening(
            session=SESSION,
            path=self.path,
            now=now_s,
            incarnation=incarnation,
            create=create,
            stamp=stamp,
            shared=shared,
            proven=proven,
            changed_while_open=changed_while_open,
        )
        return file_opening.open_session(self.disk, self.disk.open_root(self.path), opening)

    def inspect(self) -> Inspection:
        """Look at it without opening it for writing."""
        folder = self.disk.open_root(self.path)
        handle = self.disk.open_read(folder, paths.CONTEXT)
        try:
            return inspection.inspect(self.disk, folder, handle, FailedSyncs())
        finally:
            self.disk.close(handle)
            self.disk.close(folder)

    def mail(self) -> Mail | None:
        """The pending D-Mail, read without opening the session for writing."""
        folder = self.disk.open_root(self.path)
        try:
            return inspection.pending_mail(self.disk, folder)
        finally:
            self.disk.close(folder)

    def view(self, name: str) -> FileView:
        """The readable part of one of its files while it is closed; the caller releases it."""
        folder = self.disk.open_root(self.path)
        try:
            shared = SharedHandle(self.disk, self.disk.open_read(folder, name))
            present = crash_recovery.present_generation(self.disk, folder)
            size = inspection.readable_size(
                self.disk, folder, shared.handle, name, present, FailedSyncs()
            )
            return FileView(shared, size)
        finally:
            self.disk.close(folder)

    def verified(self) -> Verification:
        """The reply to `verify` while it is closed."""
        context = self.view(paths.CONTEXT)
        wire = self.view(paths.WIRE) if paths.WIRE in self.names() else context
        folder = self.disk.open_root(self.path)
        try:
            views = {paths.CONTEXT: context, paths.WIRE: wire}
            return verify(self.disk, folder, SESSION, views, live=None, failed_syncs=FailedSyncs())
        finally:
            self.disk.close(folder)
            for view in {context, wire}:
                view.release()

    def open_wire(self) -> Opened:
        """Open its wire file for the writer; the context has to be open."""
        opening = Opening(session=SESSION, path=self.path, now=NOW_S, incarnation="wire")
        folder = self.disk.open_root(self.path)
        return stream_opening.open_stream(
            self.disk,
            folder,
            opening,
            name=paths.WIRE,
            stamp=True,
            context_head=lambda: Position(0, 0),
        )

    def file(self, name: str = paths.CONTEXT) -> bytes:
        """The contents of one of its files, empty when it is missing."""
        folder = self.disk.open_root(self.path)
        try:
            return read_file(self.disk, folder, name)
        finally:
            self.disk.close(folder)

    def names(self) -> set[str]:
        """The names in its folder."""
        folder = self.disk.open_root(self.path)
        try:
            return set(self.disk.names(folder))
        finally:
            self.disk.close(folder)

    def tree(self) -> dict[str, bytes]:
        """All its files."""
        return {name: self.file(name) for name in self.names() if name != paths.QUARANTINE}

    def quarantined(self) -> list[bytes]:
        """The pieces in quarantine, each once."""
        if paths.QUARANTINE not in self.names():
            return []
        nest = self.disk.open_root(f"{self.path}/{paths.QUARANTINE}")
        try:
            return [read_file(self.disk, nest, name) for name in sorted(self.disk.names(nest))]
        finally:
            self.disk.close(nest)

    def timeline(self) -> list[TimelineEntry]:
        """The entries of its timeline."""
        entries = timeline.decode(self.file(paths.TIMELINE))
        check_facts(entries)
        return entries


def lines_of(opened: Opened) -> list[bytes]:
    """The durable lines of an open session's present generation."""
    log = opened.log
    return log.read(log.generation, 0, log.synced).splitlines(keepends=True)


def find_key(opened: Opened, key: str) -> key_lookup.Applied | None:
    """The applied command of a key, from memory or from the files."""
    known = opened.machine.applied(key)
    return known or key_lookup.look_up(opened.log, opened.log.path, key)


def apply(opened: Opened, command: Mutation, *data: bytes, now_s: float = NOW_S) -> Ack:
    """Apply one command and make it durable, as the writer does."""
    machine, log = opened.machine, opened.log
    decision = machine.decide(command, data, find_key(opened, command.key))
    match decision:
        case Answered():
            return decision.ack
        case Lines():
            log.append(decision.data)
            log.sync()
            machine.commit()
            return decision.ack
        case Rewrite():
            assert isinstance(machine, Machine)
            plan = planner.plan(log, machine, decision)
            entry = planner.intent(log, plan, decision.command, now_s)
            rotated = log.replace(plan.pieces, timeline.encode(entry))
            applied = timeline.applied_of(entry, rotated)
            ack = machine.rewritten(command.key, applied, plan.head, plan.counters)
            machine.checkpoint_floor = plan.checkpoint_floor
            machine.mail = dmail.pending(timeline.decode(log.timeline()), log.generation)
            return ack
        case Mailing():
            assert isinstance(machine, Machine)
            entry = delivery.send(log, machine, decision.command, now_s)
            return machine.mailed(dmail.mail_of(entry), dmail.applied_of(entry))


def fresh() -> tuple[SimulatedDisk, StoredSession, Opened]:
    """A new session in `/disk/demo`, opened."""
    disk = SimulatedDisk()
    disk.foreign.make_folder("/disk/demo")
    session = StoredSession(disk, "/disk/demo")
    return disk, session, session.open()
