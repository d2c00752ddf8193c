"""The names of sessions: a rename, deletion or restoration is one batch of messages about names.

    name p      gone, to q                 with the key of the command
    name q      the session, from p        with the key of the command
    session     own

The sessions below go with it in the same batch. Each message has its fence, and the servers store
all of them or none, so a command that was cut short has taken place or has not. The history of a
name has the keys of the commands that changed it, which answers their repeats on every host.
"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from errno import EEXIST
from typing import NamedTuple

import msgspec

from steno_protocol import paths
from steno_protocol.errors import BadRequest
from stenod.sessions.session_folders import FLAT_CHARS_MAX
from stenod_cluster import limits
from stenod_cluster.forks import Base
from stenod_cluster.journal import (
    Fenced,
    InDoubt,
    Kind,
    Label,
    Message,
    Publication,
    held,
    name_of_subject,
    published,
    subject_of_name,
)
from stenod_cluster.owned_folder import OwnedFolder, raise_first, ship_all
from stenod_cluster.ownership import Ownership


class Going(NamedTuple):
    """A session that gets a name.

    Attributes:
        folder: its folder, which this daemon owns, and whose files nobody changes.
        goal: the name.
        base: what a fork begins with; the caller publishes its source alone.
    """

    folder: OwnedFolder
    goal: str
    base: Base | None = None


class Names:
    """The names of sessions, as one daemon changes them; all methods block.

    Args:
        ownership: the sessions that this daemon owns.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._journal = ownership.journal

    def move(self, going: Sequence[Going], key: str) -> None:
        """Give sessions other names, or new ones their first names: all of them or none.

        Args:
            going: the sessions, the one above the others first.
            key: of the command.

        Raises:
            FileExistsError: one of the names is taken; nothing was changed.
            Held: another daemon took a session over; nothing was changed.
            StorageFailed: hosts still join the stream; nothing was changed.
            BadRequest: they are too many; nothing was changed.
            OSError: the journal failed; after `InDoubt` the names may be changed.
        """
        if len(going) > limits.MOVED_TOGETHER_MAX:
            raise BadRequest(
                f"{len(going)} sessions would go together, and a cluster moves at most"
                f" {limits.MOVED_TOGETHER_MAX} at once: rename or delete some of those below it"
                " first",
                session=going[0].folder.path,
            )
        with ExitStack() as stack:
            for each in sorted(going, key=lambda each: each.folder.path):
                stack.enter_context(each.folder.publishing)
            raise_first(ship_all(self._journal, [each.folder.settling() for each in going]))
            batch = [message for each in going for message in self._messages(each, key)]
            last = self._published(batch, going)
            sequences = {
                message.subject: last - len(batch) + place
                for place, message in enumerate(batch, start=1)
            }
            for folder, goal, base in going:
                if base is not None:
                    base.source.held(sequences[base.source.identity])
                before = folder.path
                own, name = sequences[folder.identity], sequences[subject_of_name(goal)]
                folder.moved(goal, own, name)
                self._ownership.keep(folder, before)

    def _messages(self, going: Going, key: str) -> list[Publication]:
        """The messages by which one session gets a name."""
        (folder, goal, base), owner = going, self._ownership.owner
        there = self._journal.last(subject_of_name(goal))
        if there is not None and there.kind is Kind.NAME:
            raise _taken(goal)
        self._ownership.check_new(goal)
        come = Label(folder.identity, "" if folder.is_new else folder.path)
        after = 0 if there is None else there.sequence
        found = [
            Publication(subject_of_name(goal), after, owner, Kind.NAME, come.body(), key),
            Publication(folder.identity, folder.sequence, owner, Kind.OWN, b""),
        ]
        if base is not None:
            found[:0] = self._ownership.holds.of_fork(base, folder.identity)
        if not folder.is_new:
            gone, subject = Label(folder.identity, goal), subject_of_name(folder.path)
            found.insert(
                0, Publication(subject, folder.name_sequence, owner, Kind.GONE, gone.body(), key)
            )
        return found

    def _published(self, batch: Sequence[Publication], going: Sequence[Going]) -> int:
        """Publish a batch; returns the sequence of its last message."""
        *also, last = batch
        wanted = msgspec.structs.replace(last, also=tuple(also))
        outcome = self._journal.publish([wanted])[0]
        if isinstance(outcome, int):
            return outcome
        for folder, _, base in going:
            if base is not None:
                base.source.held(outcome)
                self._ownership.note_outcome(base.source, base.source.lost)
            # Only the journal knows what came of it, and who owns the session.
            self._ownership.forget(folder.path)
            if folder.is_new and not isinstance(outcome, InDoubt):
                with suppress(OSError):
                    self._journal.purge(folder.identity, folder.sequence + 1)
        if not isinstance(outcome, Fenced):
            raise outcome
        name = name_of_subject(outcome.subject)
        if name is not None and name in {each.goal for each in going}:
            raise _taken(name)
        base = going[0].base
        lost = going[0].folder if base is None else base.source
        raise held(lost.path, outcome.newer.owner)

    # --- what commands did ------------------------------------------------------------------------

    def moved(self, path: str, key: str) -> str | None:
        """Return where the command with a key brought a session that had or got a name.

        Args:
            path: the name of the session before the command, or behind it.
            key: of the command.

        Returns:
            The new name, which may be one in the trash; None if no such command took place.
        """
        found = self._by(path, key)
        if found is None:
            return None
        return path if found.kind is Kind.NAME else found.label.other

    def _by(self, path: str, key: str) -> Message | None:
        """The message by which the command with a key changed a name."""
        subject = subject_of_name(path)
        last = self._journal.last(subject)
        if last is None or last.move == key:
            return last
        history = self._journal.read(subject, 0, last.sequence)
        return next((each for each in history if each.move == key), None)

    # --- the trash --------------------------------------------------------------------------------

    def fetch_deleted(self, session: str) -> None:
        """Bring what any daemon deleted under the name of a session into the trash of this disk.

        Raises:
            OSError: the journal or the disk failed.
        """
        flat = "~".join(session.split("/"))[:FLAT_CHARS_MAX]
        for path in sorted(self._journal.names(paths.TRASH)):
            entry = path.split("/")[1]
            if entry.split(".", 2)[2:] == [flat]:
                self._ownership.tidy(path)
                self._ownership.acquire(path)
        # Openings that were refused, as the journal was lost, left folders at its place.
        self._ownership.copies.remove_empty(session)

    def end_deleted(self, path: str) -> None:
        """Let a deleted session, and those deleted with it, end for good in the whole cluster.

        Raises:
            OSError: the journal failed; the next call goes on.
        """
        for each in [path, *self._journal.names(path)]:
            self._end(each)

    def _end(self, path: str) -> None:
        subject = subject_of_name(path)
        name = self._journal.last(subject)
        if name is None or (name.kind is Kind.GONE and name.label.other):
            # Another daemon restored it.
            return
        identity, owner, sequence = name.label.identity, self._ownership.owner, name.sequence
        holds = self._ownership.holds
        if name.kind is Kind.NAME:
            gone, also = Label(identity, "").body(), (holds.of_end(identity),)
            wanted = Publication(subject, sequence, owner, Kind.GONE, gone, also=also)
            try:
                sequence = published(self._journal, wanted)
            except Fenced:
                return
        self._ownership.forget(path)
        holds.end(identity)
        self._journal.purge(subject, sequence + 1)


def _taken(path: str) -> FileExistsError:
    return FileExistsError(EEXIST, "the journal has a session there", path)
