"""The sessions that this daemon owns, and how it comes to own one.

A name says which session is meant. The daemon that appended the last message of a session owns it;
the journal refuses all others from then on. What was published before and not answered cannot come
any more, so the files are made equal to the journal after that, and opened as after a crash.
"""

import itertools
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOENT
from typing import TypeGuard

import msgspec

from steno_protocol import paths
from steno_protocol.errors import BadRequest, Busy, Held, StenoError, StorageFailed
from steno_protocol.limits import SESSION_ID_CHARS_MAX, SESSION_SEGMENT_CHARS_MAX
from stenod.core.manifest import Manifest
from stenod.store.disk import Disk
from stenod_cluster import limits
from stenod_cluster.copies import Copies, Unjoined
from stenod_cluster.forks import Holds
from stenod_cluster.hosts import Hosts
from stenod_cluster.journal import (
    REMEDY,
    Fenced,
    ForeignStream,
    InDoubt,
    Journal,
    JournalLost,
    Kind,
    Label,
    Message,
    Owner,
    Publication,
    held,
    published,
    subject_of_name,
    subject_of_notes,
)
from stenod_cluster.mirror import (
    HERE,
    Mark,
    Mirror,
    read_mark,
    save_first_mark,
    save_mark,
    save_marks,
    seen_files,
    session_files,
)
from stenod_cluster.owned_folder import OwnedFolder, is_hint, raise_first, ship, ship_all


class Counts(msgspec.Struct):
    """What happened since this daemon started.

    Attributes:
        takeovers: folders that were another daemon's before.
        last_takeover: the last of these.
        last_takeover_at: Unix time in seconds of that.
        last_takeover_s: seconds that it took.
        fenced: publications that were refused because another daemon owned the folder.
        in_doubt: publications without an answer in time.
    """

    takeovers: int = 0
    last_takeover: str | None = None
    last_takeover_at: float | None = None
    last_takeover_s: float | None = None
    fenced: int = 0
    in_doubt: int = 0


class Ownership:
    """The owned folders of one daemon.

    Args:
        disk: the disk of the session tree, without replication.
        tree: the path of the session tree.
        journal: the messages of all folders.
        hosts: the other daemons.
        log: logs an event with fields.
        boot: this machine's boot, empty if unknown.

    Attributes:
        counts: what happened so far.
        holds: who needs the messages of which session.
        is_joining: other hosts may not have joined the stream yet; no session begins.
        on_lost: called with a folder when the journal refused this daemon as its owner.
        heard_at: monotonic time at which the journal last said that no folder was taken over.
    """

    def __init__(
        self,
        disk: Disk,
        tree: str,
        journal: Journal,
        hosts: Hosts,
        log: Callable[..., None],
        boot: str = "",
    ) -> None:
        self._boot = boot
        self.journal = journal
        self.hosts = hosts
        self.counts = Counts()
        self.heard_at = -math.inf
        self.is_joining = False
        self.on_lost: Callable[[str], None] = _forget_loss
        self._disk = disk
        self._tree = tree
        self._log = log
        self._made = itertools.count(1)
        self.holds = Holds(journal, hosts.owner)
        self.copies = Copies(
            disk, tree, journal, hosts.owner.host, self._is_used_below, self._compare,
            self._keep_beside,
        )  # fmt: skip
        self.opened, self.is_here = self.copies.opened, self.copies.is_here
        self.alone, self._marking = self.copies.alone, self.copies.marking
        self._folders: OrderedDict[str, OwnedFolder] = OrderedDict()
        self._lock = threading.Lock()
        # The last note for this host that was handled.
        self._noted = 0
        # The sessions that are being taken over, each with the last note that another daemon did.
        self._taking: dict[str, Message | None] = {}

    @property
    def owner(self) -> Owner:
        """This daemon."""
        return self.hosts.owner

    def __len__(self) -> int:
        return sum(folder.lost is None for folder in list(self._folders.values()))

    def found(self, path: str) -> OwnedFolder | None:
        """Return a folder that this daemon owns, as far as it knows; None otherwise."""
        folder = self._folders.get(path)
        return folder if folder is not None and folder.lost is None else None

    def known(self, path: str) -> OwnedFolder | None:
        """Return a folder that this daemon owns or has lost; None otherwise."""
        return self._folders.get(path)

    def acquire(self, path: str, *, create: bool = False) -> OwnedFolder | None:
        """Own the session of a name, and make its files equal to the journal; blocks.

        Args:
            path: the name.
            create: a folder that is nowhere begins with the next change.

        Returns:
            Its folder; None if neither the journal nor this disk has it.

        Raises:
            Held: a living daemon owns it.
            Busy: its ownership changes too often.
            Corrupt: the journal contradicts itself.
            Fenced: this daemon lost it, and has not closed its files yet.
            OSError: the journal or the disk failed.
        """
        folder = self.found(path)
        if folder is not None:
            return folder
        with self.alone(path):
            return self.found(path) or self._acquire(path, create=create)

    def acquire_new(self, paths: Sequence[str]) -> list[str]:
        """Own sessions of this disk that the journal never had, in one round trip; blocks.

        Nobody is asked before: the fences of a first message let it in only if the journal has
        neither its name nor its session.

        Returns:
            The names that are left to `acquire`, as they need more, or could not be owned.

        Raises:
            OSError: the disk failed; some are owned.
        """
        begun: list[OwnedFolder] = []
        noted_bytes = 0
        with ExitStack() as alone:
            for path in paths:
                is_free = alone.enter_context(self.copies.free(path))
                if not is_free or path in self._folders:
                    continue
                alone.enter_context(self._using(path))
                try:
                    folder = self._unjoined(path)
                except JournalLost:
                    # The locks of all of them would be held for as many deadlines.
                    break
                except (OSError, StenoError):
                    continue
                if folder is not None:
                    begun.append(folder)
                    noted_bytes += sum(each.size for each in folder.manifest.files.values())
                if noted_bytes >= limits.JOIN_BYTES:
                    break
            outcomes = self._begin_with(begun)
        owned = {each.path for each, outcome in zip(begun, outcomes, strict=True) if not outcome}
        return [path for path in paths if path not in owned]

    def follow(self, path: str) -> None:
        """Make the files of a session that another daemon owns equal to the journal; blocks.

        Raises:
            Corrupt: the journal contradicts itself.
            Fenced: this daemon lost it, and has not closed its files yet.
            OSError: the journal or the disk failed.
        """
        with self.alone(path):
            if self.found(path) is not None:
                return
            self._check_closed(path)
            name = self.journal.last(subject_of_name(path))
            if name is None or name.kind is Kind.GONE:
                return
            last = self.journal.last(name.label.identity)
            if last is None or last.owner.host == self.owner.host:
                return
            self.copies.make_room(path, name)
            self._follow(path, name.label.identity, last)

    def _follow(self, path: str, identity: str, last: Message) -> bool:
        """Make the files equal to the journal up to a message of another daemon.

        Returns:
            False if this disk has newer files; nothing was changed.
        """
        if last.kind not in {Kind.OWN, Kind.CHANGE}:
            # Its owner is in the middle of a change.
            return True
        with self.opened(path, create=True) as handle:
            made = self._mirror(handle, path, identity, last.sequence).make()
            if made is None:
                return False
            mark = Mark(
                last.sequence, self.owner.host, made.manifest, self._boot,
                seen_files(self._disk, handle, made.manifest), identity,
                self.journal.stream(), last.owner.endpoint, last.owner.host,
            )  # fmt: skip
            save_mark(self._disk, handle, mark)
        return True

    def _mirror(self, handle: int, path: str, identity: str, last: int) -> Mirror:
        return Mirror(
            self._disk, handle, identity, self.owner.host,
            lambda after: self._messages(path, identity, after, last),
            self._boot, self.journal.stream(),
            lambda: self._keep_acknowledged(path, identity, last),
            lambda name, inode: self.copies.is_beside(path, name, inode),
        )  # fmt: skip

    def _compare(self, path: str, identity: str) -> bool:
        """Make files equal to a session whose name is not their path, unless they are newer."""
        last = self.journal.last(identity)
        assert last is not None
        with self.opened(path) as handle:
            return self._mirror(handle, path, identity, last.sequence).make() is not None

    def _keep_acknowledged(self, path: str, identity: str, last: int) -> bool:
        """Let files that differ from the journal be another session, if it may lack their records.

        False if not: nothing of them was acknowledged, or the host that took the folder over, with
        all that was, has used the session since.
        """
        mark = self.copies.mark(path)
        if mark is not None and not mark.sequence:
            return False
        if mark is not None and mark.is_left:
            since = self.journal.read(identity, self.journal.began(), last)
            if any(each.owner.host == mark.left_to for each in since):
                return False
        return self._keep_beside(path)

    def _keep_beside(self, path: str) -> bool:
        """Let the files of this disk be another session; False if they cannot be."""
        room = min(
            SESSION_ID_CHARS_MAX - len(path),
            SESSION_SEGMENT_CHARS_MAX - len(path.rpartition("/")[2]),
        )
        if is_in_trash(path) or room < limits.KEPT_CHARS_MAX:
            return False
        kept = self.copies.keep_beside(path)
        self._log("kept_beside", session=path, kept=kept)
        # If it cannot be published now, it is one that did not join yet.
        with suppress(OSError, StenoError):
            self.acquire(kept)
        return True

    def acquire_all(self, path: str, below: Iterable[str]) -> list[OwnedFolder]:
        """Own a session and all those below it, on whichever disks they are; blocks.

        Args:
            path: the name of the session.
            below: names below it on this disk; the journal knows others.

        Returns:
            Their folders, the one above first.

        Raises:
            FileNotFoundError: there is no such session.
            Held: a living daemon owns the session.
            BadRequest: a living daemon owns one below it.
            Busy, Corrupt, Fenced, OSError: as `acquire`.
        """
        above = self.acquire(path)
        if above is None:
            raise FileNotFoundError(ENOENT, "the session is gone from the journal", path)
        found = [above]
        for name in sorted({*self.journal.names(path), *below} - {path}):
            try:
                folder = self.acquire(name)
            except Held as error:
                # A client that goes to that daemon would be sent back.
                raise self._held_below(name, error.endpoint) from None
            found += [] if folder is None else [folder]
        return found

    def _held_below(self, path: str, endpoint: str | None) -> BadRequest:
        return BadRequest(
            f"the daemon at {endpoint} owns the session {path!r}, which would go with the one above"
            f" it: move it here first with `steno cluster move {path} {self.owner.endpoint}`, then"
            " send the command again",
            session=path,
        )

    def begin(self, path: str, name_sequence: int = 0, identity: str = "") -> OwnedFolder:
        """Return a folder for a new session, of which the journal has nothing."""
        # No process has the incarnation of another one.
        identity = identity or f"{self.owner.host}-{self.owner.incarnation}-{next(self._made)}"
        return OwnedFolder(
            path, identity, self.owner, 0, Manifest(), {}, name_sequence, is_new=True
        )

    def release_to(self, path: str, owner: Owner) -> None:
        """Give a closed folder to another daemon, which owns it and has its files on return.

        Raises:
            Busy: the other daemon does not say that it has it.
            OSError: this daemon owns it no more, or the journal failed.
        """
        folder = self.acquire(path)
        if folder is None or owner.host == self.owner.host:
            return
        with folder.publishing:
            raise_first(ship(self.journal, [folder]))
            self.save_mark(folder)
        self.forget(path)
        if not self.hosts.give(path, owner.host):
            raise Busy(
                f"the daemon at {owner.endpoint} does not say that it has taken the session over:"
                f" `steno cluster status {path}` shows the owner; send the command again",
                session=path,
            )

    def take(self, path: str, giver: Owner) -> None:
        """Take over a session that another daemon gives to this one; blocks.

        Raises:
            StenoError, OSError: as `acquire`.
        """
        with self.alone(path):
            if self.found(path) is not None:
                # Either daemon missed a word: this one that it lost it, or the giver the answer.
                with suppress(Held):
                    self.confirm(path)
            if self.found(path) is None:
                self._acquire(path, giver=giver.host)
            else:
                self.hosts.tell_taken(path, ())

    def shorten(self, path: str) -> None:
        """Publish a copy of the whole folder, and remove all messages before it.

        Raises:
            Held: a living daemon owns the folder.
            OSError: the journal or the disk failed; the messages are as before, or more.
        """
        folder = self.acquire(path)
        if folder is None or not folder.manifest.names:
            return
        with folder.publishing, self.opened(path) as handle:
            self._leave_out_hints(folder, handle)
            raise_first(ship_all(self.journal, [folder.snapshot(self._disk, handle)]))
            needed = folder.snapshot_sequence
            self.save_mark(folder)
        # Each fork of an earlier message is stored by now; writers need not wait for the removals.
        self.holds.shorten(folder.identity, needed)

    def forget(self, path: str) -> None:
        """Forget a closed folder and those below it; the next use reads the journal."""
        with self._lock:
            for each in [each for each in self._folders if is_within(each, path)]:
                del self._folders[each]

    def keep(self, folder: OwnedFolder, before: str | None = None) -> None:
        """Keep a folder under its name, and under no name that it had before."""
        with self._lock:
            if before is not None:
                self._folders.pop(before, None)
        self._keep(folder)

    def forget_unpublished(self, path: str) -> None:
        """Forget a closed folder of which the journal has nothing: another daemon may make it."""
        with self._lock:
            folder = self._folders.get(path)
            if folder is not None and folder.is_new and not folder.handles:
                del self._folders[path]

    def lose(self, path: str, owner: Owner) -> None:
        """Lose a folder that another daemon says to own: the next opening asks the journal."""
        with self._lock:
            folder = self._folders.get(path)
            if folder is not None and folder.lost is None:
                folder.lost = Fenced(path, Message(0, owner, Kind.OWN, b"", time.time()))

    def look_for_losses(self) -> list[tuple[str, Owner]]:
        """Lose the folders that others took over, whose announcement may be lost; blocks.

        Returns:
            The lost folders that this daemon counted as its own, with their owners.

        Raises:
            JournalLost: no majority of the servers answers.
        """
        began = time.monotonic()
        found: list[tuple[str, Owner]] = []
        notes = self.journal.taken_from(self.owner.host, self._noted)
        for note in notes:
            path = note.body.decode(errors="surrogateescape")
            folder = self.found(path)
            # What this daemon published since shows that the other one came too late.
            if folder is not None and folder.sequence < note.sequence:
                self.lose(path, note.owner)
                found.append((path, note.owner))
            if note.kind is Kind.CHANGE:
                self._note_left(path, note)
            self._noted = note.sequence
            if note.kind is Kind.CHANGE:
                self.hosts.tell_left(path)
        if notes:
            with suppress(OSError):
                self.journal.purge(subject_of_notes(self.owner.host), self._noted + 1)
        self.heard_at = began
        return found

    def _note_left(self, path: str, note: Message) -> None:
        """Note on this disk that another daemon's copy of a folder is newer.

        The folder may have come back since, and the note says nothing of another stream's files.
        """
        with self._marking(path), suppress(OSError):
            if path in self._taking:
                self._taking[path] = note
            with self.opened(path) as handle:
                mark = read_mark(self._disk, handle, self.owner.host)
                if mark is None or mark.stream != self.journal.stream():
                    return
                if mark.sequence < note.sequence:
                    left = msgspec.structs.replace(
                        mark, left=note.owner.endpoint, left_to=note.owner.host
                    )
                    save_mark(self._disk, handle, left)

    def confirm(self, path: str) -> None:
        """Ask the journal whether this daemon still owns a folder that it did own; blocks.

        Raises:
            Held: another daemon owns it.
            OSError: the journal failed.
        """
        # Any replica answers a read, also one that is cut off from the others.
        self.journal.confirm()
        folder = self._folders.get(path)
        last = None if folder is None else self.journal.last(folder.identity, at_leader=True)
        if last is not None and last.owner.host != self.owner.host:
            self.on_lost(path)
            self.lose(path, last.owner)
            raise held(path, last.owner)

    def note_outcome(self, folder: OwnedFolder, outcome: OSError | None) -> None:
        """Count a publication that failed; a folder that another daemon owns is lost."""
        match outcome:
            case Fenced():
                self.counts.fenced += 1
                self._log("fenced", session=folder.path, owner=outcome.newer.owner.endpoint)
                self.on_lost(folder.path)
            case InDoubt():
                self.counts.in_doubt += 1
                self._log("in_doubt", session=folder.path, why=outcome.strerror)
            case _:
                pass

    def close(self) -> None:
        """Save the marks that are behind, and tell the others that this daemon ends."""
        for folder in list(self._folders.values()):
            if folder.is_behind_mark:
                with suppress(OSError):
                    self.save_mark(folder)
        self.hosts.tell_ended()

    def save_mark(self, folder: OwnedFolder) -> None:
        """Save the folder's place in the journal for the next opening, if all is published."""
        path = folder.path
        with suppress(FileNotFoundError), self._marking(path), self.opened(path) as handle:
            self._save_mark(folder, handle)

    def _save_mark(self, folder: OwnedFolder, handle: int) -> None:
        with folder.lock:
            if folder.is_published:
                save_mark(self._disk, handle, self._mark_of(folder, handle))
                folder.note_marked()

    def _mark_of(self, folder: OwnedFolder, handle: int) -> Mark:
        seen = seen_files(self._disk, handle, folder.manifest)
        return Mark(
            folder.sequence, self.owner.host, folder.manifest, self._boot, seen, folder.identity,
            self.journal.stream(),
        )  # fmt: skip

    def tidy(self, path: str) -> None:
        """Put away a copy at a name that leads to another session, or to none; blocks.

        Raises:
            OSError: the journal or the disk failed.
        """
        with self.alone(path):
            known, name = self._folders.get(path), self.journal.last(subject_of_name(path))
            if known is not None and known.lost is None and _is_of_other(name, known):
                # The word that it took the session over was lost.
                self.lose(path, name.owner)
                self.on_lost(path)
            if known is None or (known.lost is not None and not known.handles):
                self.copies.make_room(path, name)

    # --- inside ----------------------------------------------------------------------------------

    def _is_used_below(self, path: str) -> bool:
        folders = list(self._folders.items())
        used = [name for name, folder in folders if folder.lost is None or folder.handles]
        return any(name.startswith(f"{path}/") for name in [*used, *list(self._taking)])

    def _leave_out_hints(self, folder: OwnedFolder, handle: int) -> None:
        """Drop the recovery points that the mirror made for this disk from the journal's files."""
        with folder.lock:
            for name, number in list(folder.manifest.names.items()):
                found = self._disk.stat_name(handle, name) if is_hint(name) else None
                if is_hint(name) and (found is None or folder.inodes.get(found.inode) != number):
                    folder.note_unlink(name)

    def _check_closed(self, path: str) -> None:
        # The writer of a lost folder knows nothing of what its new owner wrote. Only an opening
        # makes the files equal to the journal, and not while that writer has them open.
        lost = self._folders.get(path)
        if lost is not None and lost.lost is not None and lost.handles:
            raise lost.lost

    def _acquire(self, path: str, *, create: bool = False, giver: str = "") -> OwnedFolder | None:
        self._check_closed(path)
        with self._using(path):
            return self._taken(path, create=create, giver=giver)

    @contextmanager
    def _using(self, path: str) -> Generator[None]:
        """Keep a folder where it is: one above it would move with all that is below."""
        with self.copies.moving:
            self._taking[path] = None
        try:
            yield
        finally:
            del self._taking[path]

    def _taken(self, path: str, *, create: bool, giver: str) -> OwnedFolder | None:
        begin_s = time.monotonic()
        subject = subject_of_name(path)
        name = self.journal.last(subject)
        for _ in range(limits.OWN_ATTEMPTS_MAX):
            unjoined = self.copies.make_room(path, name)
            if unjoined and name is not None and self._bring_back(path, name, unjoined.mark):
                name = self.journal.last(subject)
                continue
            if name is None or name.kind is Kind.GONE:
                return self._without_name(path, name, unjoined, create=create)
            identity, name_sequence = name.label.identity, name.sequence
            sequence, previous, is_newest = self._own(path, identity, giver)
            # What owns the session is stored behind all that a former owner did to its name.
            before, name = name, self.journal.last(subject)
            if name == before:
                break
        else:
            raise _contended(path)
        with self.opened(path, create=True) as handle:
            made = self._mirror(handle, path, identity, sequence).make()
        if made is None:
            self._check_newest(path, self.copies.mark(path))
            return self._shipped(path, identity, sequence, name_sequence, previous)
        if not made.manifest.names and not create:
            return None
        folder = OwnedFolder(
            path, identity, self.owner, sequence, made.manifest, made.inodes, name_sequence
        )  # fmt: skip
        if previous is None or previous.owner.host == self.owner.host:
            self._become_newest(folder, made.others)
        else:
            self._become_newest(folder, {*made.others, previous.owner.host})
            self._note_takeover(path, previous.owner, made.read_bytes, time.monotonic() - begin_s)
        if is_newest:
            # Other hosts with a copy wait for this one.
            raise_first(ship_all(self.journal, [folder.renewing()]))
        self._keep(folder)
        return folder

    def _become_newest(self, folder: OwnedFolder, others: Collection[str]) -> None:
        """Let other hosts mark their copies of a session as old ones, before this one changes it.

        Of two copies without such a mark, either may be brought into another stream.
        """
        path = folder.path
        if others:
            self._note_here(folder)
        for host in sorted(others):
            self.journal.note_taken(path, host, self.owner, Kind.CHANGE)
        # Behind the notes: an opening that dies before them reads the same messages once more.
        with suppress(FileNotFoundError), self._marking(path), self.opened(path) as handle:
            self._check_taking(folder)
            self._save_mark(folder, handle)
        if others:
            self.hosts.tell_taken(path, others)

    def _note_here(self, folder: OwnedFolder) -> None:
        """Note on this disk that it has the newest files, before another host notes it."""
        path = folder.path
        with suppress(FileNotFoundError), self._marking(path), self.opened(path) as handle:
            self._check_taking(folder)
            mark = read_mark(self._disk, handle, self.owner.host)
            if mark is not None and mark.is_left:
                save_mark(self._disk, handle, msgspec.structs.replace(mark, left=HERE))

    def _check_taking(self, folder: OwnedFolder) -> None:
        """Raise Held if another daemon had a folder meanwhile, whose note is on this disk."""
        note = self._taking.get(folder.path)
        if note is not None and note.sequence > folder.sequence:
            raise held(folder.path, note.owner)

    def _without_name(
        self, path: str, name: Message | None, unjoined: Unjoined | None, *, create: bool
    ) -> OwnedFolder | None:
        """Own a name that leads to nothing: with the files that the journal never had, or none."""
        sequence = 0 if name is None else name.sequence
        if unjoined is not None:
            identity = self._former_identity(unjoined.mark)
            folder = self._unpublished(path, sequence, identity, unjoined)
            raise_first(self._begin_with([folder]))
            return folder
        if create:
            self.check_new(path)
            folder = self.begin(path, sequence)
            # The files may come later, with another folder.
            with suppress(FileNotFoundError), self.opened(path) as handle:
                save_first_mark(
                    self._disk, handle, self.owner.host, folder.identity, self.journal.stream()
                )
        else:
            return None
        self._keep(folder)
        return folder

    def _unjoined(self, path: str) -> OwnedFolder | None:
        """Return a folder for what is at a name, if the journal never had that."""
        unjoined = self.copies.unjoined(path)
        if unjoined is None:
            return None
        identity = "" if unjoined.mark is None else unjoined.mark.identity
        return self._unpublished(path, 0, identity, unjoined)

    def _unpublished(
        self, path: str, sequence: int, identity: str, unjoined: Unjoined
    ) -> OwnedFolder:
        """Return a folder for files that the journal never had, with all of them noted."""
        self._check_newest(path, unjoined.mark)
        folder = self.begin(path, sequence, identity)
        with self.opened(path) as handle:
            folder.note_names(self._disk, handle, unjoined.names)
        return folder

    def _begin_with(self, folders: Sequence[OwnedFolder]) -> list[OSError | None]:
        """Publish new folders side by side, which nobody else uses yet, and keep them."""
        outcomes = ship(self.journal, folders)
        published = [each for each, outcome in zip(folders, outcomes, strict=True) if not outcome]
        with ExitStack() as stack:
            marks: dict[int, Mark] = {}
            marked: list[OwnedFolder] = []
            for folder in published:
                with suppress(FileNotFoundError):
                    stack.enter_context(self._marking(folder.path))
                    handle = stack.enter_context(self.opened(folder.path))
                    marks[handle] = self._mark_of(folder, handle)
                    marked.append(folder)
            # Without its mark a session is compared with the journal when it is next used.
            with suppress(FileNotFoundError):
                save_marks(self._disk, marks)
                for folder in marked:
                    folder.note_marked()
        for folder in published:
            self._keep(folder)
        return outcomes

    def _bring_back(self, path: str, gone: Message, mark: Mark | None) -> bool:
        """Give a session the name again that it got back since the old copy of the stream.

        Returns:
            False if it is another session, or has gone further.
        """
        identity, place = gone.label
        there = self.journal.last(subject_of_name(place)) if place else None
        if mark is None or there is None or there.kind is not Kind.NAME:
            return False
        if not mark.identity == identity == there.label.identity:
            return False
        self._check_newest(path, mark)
        left = Publication(
            subject_of_name(place), there.sequence, self.owner, Kind.GONE,
            Label(identity, path).body(),
        )  # fmt: skip
        come = Publication(
            subject_of_name(path), gone.sequence, self.owner, Kind.NAME,
            Label(identity, place).body(), also=(left,),
        )  # fmt: skip
        try:
            published(self.journal, come)
        except Fenced:
            # Another daemon named it meanwhile.
            return True
        except InDoubt as error:
            raise JournalLost(None, error.strerror) from None
        return True

    def _former_identity(self, mark: Mark | None) -> str:
        """The identity that a session had in another stream, by which hosts with a copy know it."""
        if mark is None or not mark.identity or self.journal.last(mark.identity) is not None:
            return ""
        return mark.identity

    def _shipped(
        self, path: str, identity: str, sequence: int, name_sequence: int, previous: Message | None
    ) -> OwnedFolder:
        """Publish the files of this disk, which are newer than those of the journal."""
        folder = OwnedFolder(
            path, identity, self.owner, sequence, Manifest(), {}, name_sequence
        )  # fmt: skip
        with folder.publishing, self.opened(path) as handle:
            folder.note_all(self._disk, handle, session_files(self._disk, handle))
            raise_first(ship_all(self.journal, [folder.snapshot(self._disk, handle)]))
        before = {folder.owner.host if previous is None else previous.owner.host}
        self._become_newest(folder, before - {self.owner.host})
        self._keep(folder)
        return folder

    def check_new(self, path: str) -> None:
        """Refuse a new name while a host that joins later may have a session there.

        Raises:
            StorageFailed: the operator lets the hosts join another stream.
        """
        if self.is_joining and not is_in_trash(path):
            raise StorageFailed(
                "no session begins here while hosts join another stream, as one of them may have"
                " the id: run `steno cluster join --again` on each host that did not since the"
                " loss, then `steno restart` on this one; nothing of the command was kept",
                session=path,
            )

    def _check_newest(self, path: str, mark: Mark | None) -> None:
        """Refuse to bring an old copy into a new stream, where it would hide the newest one.

        Raises:
            BadRequest: another daemon took the folder over in the stream before.
        """
        if mark is None or mark.stream == self.journal.stream():
            return
        if not mark.sequence:
            # Of what this root never acknowledged, another one may have later records.
            self.check_new(path)
        if self._is_newer_elsewhere(mark):
            remedy = (
                "run `steno restart` here once all other hosts have joined, then `steno cluster"
                " join`"
                if self.is_joining
                else f"remove {self._tree}/{path}/{paths.JOURNAL_MARK} and join again"
            )
            raise BadRequest(
                f"the newest records of the session are on the host of {mark.left}: run `steno"
                " cluster join --again` there first; if that host is lost, or joined without the"
                f" session, {remedy}",
                session=path,
            )

    def _is_newer_elsewhere(self, mark: Mark) -> bool:
        """Whether another host may bring newer files into the stream than those of a mark.

        Once all hosts have joined again, the one that took the folder over has lost it.
        """
        return mark.is_left and (self.is_joining or not self.journal.is_again())

    def _messages(self, path: str, identity: str, after: int, last: int) -> Iterator[Message]:
        """The messages of a session behind its mark, up to the one that owns it.

        Those of the sources come before those of a fork.
        """
        if after > last:
            # The servers have lost messages: what comes behind would continue other files.
            raise ForeignStream(
                None,
                f"this root knows message {after} of {path!r}, and the servers have messages up to"
                f" {last} only: {REMEDY}",
            )
        above: list[tuple[str, int, int]] = []
        while True:
            messages = self.journal.read(identity, after, last)
            first = next(messages, None)
            if first is None or first.kind is not Kind.FORK:
                break
            above.append((identity, first.sequence, last))
            identity, after, last = first.label.identity, 0, int(first.label.other)
        yield from messages if first is None else itertools.chain([first], messages)
        for each in reversed(above):
            yield from self.journal.read(*each)

    def _note_takeover(self, path: str, before: Owner, read_bytes: int, took_s: float) -> None:
        self.counts.takeovers += 1
        self.counts.last_takeover = path
        self.counts.last_takeover_at = time.time()
        self.counts.last_takeover_s = round(took_s, 3)
        self._log(
            "taken_over", session=path, after=before.endpoint, read_bytes=read_bytes,
            took_s=round(took_s, 3),
        )  # fmt: skip

    def _own(self, path: str, identity: str, giver: str) -> tuple[int, Message | None, bool]:
        """Append a message behind the last one.

        Returns:
            Its sequence, the last one, and whether this disk has newer files than the journal.
        """
        last = self.journal.last(identity)
        for _ in range(limits.OWN_ATTEMPTS_MAX):
            is_newest = last is not None and self._is_newest_here(path, identity, last)
            if last is not None and last.owner.host != self.owner.host:
                if not is_newest and last.owner.host != giver:
                    self._check_free(path, last)
                self.journal.note_taken(path, last.owner.host, self.owner, Kind.OWN)
            after = 0 if last is None else last.sequence
            wanted = Publication(identity, after, self.owner, Kind.OWN, b"")
            try:
                return published(self.journal, wanted), last, is_newest
            except Fenced as error:
                last = error.newer
            except InDoubt as error:
                # Nothing of a command is in doubt then, and the next attempt finds the message.
                raise JournalLost(None, error.strerror) from None
        raise _contended(path)

    def _is_newest_here(self, path: str, identity: str, last: Message) -> bool:
        """Whether this disk has the newest files, as far as is known, whoever owns the session.

        The last owner before a loss of the stream has them in an old copy that nobody changed
        since. Otherwise files that were never compared are made equal to the journal, unless they
        begin with all that it has.

        Raises:
            BadRequest: the newest files are on another host, which did not join yet.
            StorageFailed: they may be.
        """
        if not self.copies.is_uncompared(path):
            return False
        mark = self.copies.mark(path)
        if mark is not None and mark.sequence and mark.identity == identity:
            since = self.journal.read(identity, self.journal.began(), last.sequence)
            if all(each.kind is Kind.OWN for each in since):
                self._check_newest(path, mark)
                if not mark.is_left:
                    return True
        if last.owner.host == self.owner.host or self._follow(path, identity, last):
            return False
        self._check_newest(path, mark)
        return True

    def _check_free(self, path: str, last: Message) -> None:
        owner = last.owner
        if last.sequence <= self.journal.began():
            # The stream has an old copy, and another host may have the newest files.
            self.check_new(path)
        living = self.hosts.living(owner.host)
        if living is None and self.hosts.may_live(owner):
            living = owner
        # What is in the trash is nobody's, and the fence lets one daemon restore it.
        if living is not None and not is_in_trash(path):
            raise held(path, living)

    def _keep(self, folder: OwnedFolder) -> None:
        with self._lock:
            self._folders[folder.path] = folder
            self._folders.move_to_end(folder.path)
            surplus = len(self._folders) - limits.FOLDERS_OWNED_MAX
            if surplus > 0:
                idle = (each for each in self._folders.values() if _is_idle(each))
                for each in list(itertools.islice(idle, surplus)):
                    if each is not folder:
                        self.save_mark(each)
                        del self._folders[each.path]


def _is_idle(folder: OwnedFolder) -> bool:
    """Whether nothing is lost if a folder is forgotten."""
    return not folder.handles and (folder.is_published or folder.lost is not None)


def _is_of_other(name: Message | None, known: OwnedFolder) -> TypeGuard[Message]:
    """Whether another daemon gave a name that leads to an owned session to another one, or none."""
    if name is None or known.is_new:
        return False
    return name.sequence > known.name_sequence and name.owner.host != known.owner.host


def _contended(path: str) -> Busy:
    return Busy("other daemons keep taking the session over: try again", session=path)


def _forget_loss(path: str) -> None:
    """Do nothing for a lost folder: the default without a daemon."""
    del path


def is_within(path: str, above: str) -> bool:
    """Whether a folder is another one or below it."""
    return path == above or path.startswith(f"{above}/")


def is_in_trash(path: str) -> bool:
    """Whether a name is that of a deleted session."""
    return path.startswith(f"{paths.TRASH}/")
