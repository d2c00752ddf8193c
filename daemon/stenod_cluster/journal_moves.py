"""Moves of folders that ended with a process: what the journal has of them, and how they end.

A move publishes the folders whole at their goal, then that they are gone from their place, and only
then moves them on the disk. Each message has the key of its command, so a repeat can be answered by
any daemon.
"""

from collections.abc import Callable
from typing import Final

from steno_protocol import paths
from stenod_cluster.journal import Fenced, Kind, Message, Owner, Publication
from stenod_cluster.ownership import Ownership, as_lost

_EMPTY: Final = frozenset({Kind.GONE, Kind.OWN})
"""Messages behind which a folder that is gone is still gone."""


class JournalMoves:
    """The moves of folders in the journal, as one daemon settles them; all methods block.

    Args:
        ownership: the folders that this daemon owns.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._journal = ownership.journal

    # --- of this daemon's root -------------------------------------------------------------------

    def finish(self, path: str, goal: str, move: Callable[[], None]) -> bool:
        """Call `move` if the journal has a folder at its goal alone, where this daemon moved it.

        Returns:
            Whether it was called. Nobody opens the folder at its old place meanwhile.
        """
        with self._ownership.alone(path):
            last, there = self._journal.last(path), self._journal.last(goal)
            if last is None or last.kind is not Kind.GONE or not self._is_own(last):
                return False
            if there is None or not self._began(goal, there):
                return False
            # A read may miss the last message; only a publication shows that none came since.
            if not self._publish_gone(path, last):
                return False
            move()
            self._ownership.forget(path)
            return True

    def _began(self, path: str, last: Message) -> bool:
        """Whether the journal has a folder, and its first change is this daemon's."""
        first: Message | None = None
        for message in self._journal.read(path, 0, last.sequence):
            if message.kind is Kind.GONE:
                first = None
            elif message.kind is not Kind.OWN:
                first = first or message
        return first is not None and self._is_own(first)

    def has_left(self, path: str) -> bool:
        """Whether the last that this host published of a folder is that it is gone."""
        last = self._journal.last(path)
        kinds = [
            message.kind
            for message in self._journal.read(path, 0, 0 if last is None else last.sequence)
            if self._is_own(message)
        ]
        return kinds[-1:] == [Kind.GONE]

    def take_back(self, path: str, goal: str) -> None:
        """Give a folder back to its old place that this daemon has published at a goal alone.

        What is at the goal stays if another daemon has changed or opened it since.

        Args:
            path: the folder's old place, where its files are.
            goal: where the command was to move it, where this daemon has no files.
        """
        last = self._journal.last(goal)
        if last is not None and last.kind is not Kind.GONE and not self._may_take_back(goal, last):
            return
        # The journal has it at both places for a moment, and never at none. A read may miss the
        # last message of the old place, and owning that does not.
        is_session = not path.startswith((f"{paths.TRASH}/", f"{paths.IMPORTS}/"))
        if is_session and self._ownership.rejoin(path) is None:
            return
        with self._ownership.alone(goal):
            last = self._journal.last(goal)
            if last is not None and self._may_take_back(goal, last):
                self._publish_gone(goal, last)
                self._ownership.forget(goal)

    def _may_take_back(self, path: str, last: Message) -> bool:
        # Where the owner is all that the last message says, the folder may have been handed over.
        is_change = last.kind not in _EMPTY
        return is_change and self._is_own(last) and not self._ownership.is_here(path)

    # --- of any daemon ---------------------------------------------------------------------------

    def left_by(self, path: str, key: str) -> Message | None:
        """Return the message by which a command moved a folder away; None if none did.

        It is found as long as the folder is gone, and mostly also behind one that was made since.
        A move that was taken back is none.
        """
        last = self._journal.last(path)
        if last is None or _is_by(last, key):
            return last
        gone: Message | None = None
        before: Message | None = None
        for message in self._journal.read(path, 0, last.sequence):
            if message.kind is Kind.GONE:
                gone = message if _is_by(message, key) else gone
            elif message.kind is not Kind.OWN:
                # A new folder begins right behind the message that the old one is gone.
                is_new = before is not None and before.kind is Kind.GONE
                return gone if is_new else None
            before = message
        return gone

    def renamed_elsewhere(self, path: str, goal: str, key: str) -> bool:
        """Return whether another daemon renamed a folder by the command with a key.

        What it began and cannot finish any more is taken back, so that this daemon can do it.

        Raises:
            Held: that daemon lives, and may go on.
            OSError: the journal or the disk failed.
        """
        if self.left_by(path, key) is None:
            self._take_back_of_others(path, goal, key)
        gone = self.left_by(path, key)
        return gone is not None and gone.goal == goal

    def deleted_elsewhere(self, path: str, key: str) -> str | None:
        """Return where another daemon has what it deleted by the command with a key.

        Returns:
            The path in the session tree there; None if no daemon deleted the folder by that.

        Raises:
            Held: a living daemon owns the folder.
            OSError: the journal or the disk failed.
        """
        # A deletion of this daemon's own that did not take place on its disk is taken back by this.
        folder = self._ownership.acquire(path)
        gone = self.left_by(path, key)
        if gone is None or not gone.is_deletion or (self._is_own(gone) and folder is not None):
            return None
        self.confirm_deletion(path, key)
        return gone.goal

    def confirm_deletion(self, path: str, key: str) -> None:
        """Publish again that a folder and those below it are gone, as far as a command says so.

        A daemon that died before it moved their files would bring them back when it starts.
        """
        names = [path, *self._journal.folders(path)]
        for name, last in zip(names, self._journal.last_of(names), strict=True):
            if not isinstance(last, Message) or not _is_by(last, key) or self._is_own(last):
                continue
            if self._ownership.is_here(name):
                # An old copy, which an opening puts aside. It is no file of that move.
                self._ownership.acquire(name)
            else:
                self._publish_gone(name, last)

    def deleted_by(self, path: str) -> Owner | None:
        """Return the daemon that moved a folder to its trash; None if the folder is not gone."""
        last = self._journal.last(path)
        return last.owner if last is not None and last.is_deletion else None

    def _take_back_of_others(self, path: str, goal: str, key: str) -> None:
        """Publish that what another daemon's move has brought to its goal is gone.

        What has left its old place already stays at the goal: it is nowhere else.
        """
        there = [goal, *self._journal.folders(goal)]
        for name, last in zip(there, self._journal.last_of(there), strict=True):
            if not isinstance(last, Message) or not self._has_come(name, last, key):
                continue
            # Its former owner cannot go on with the move once this daemon owns the folder.
            folder = self._ownership.acquire(path + name.removeprefix(goal))
            if folder is None or not folder.manifest.names or self._is_open(name, last):
                continue
            if self._publish_gone(name, last):
                self._ownership.forget(name)

    def _has_come(self, path: str, last: Message, key: str) -> bool:
        """Whether a folder is as a command brought it."""
        if last.kind is Kind.GONE:
            return False
        if last.kind is not Kind.OWN:
            return last.move == key
        # It was opened since, which changes nothing.
        moves = (
            message.move
            for message in self._journal.read(path, 0, last.sequence)
            if message.kind not in _EMPTY
        )
        return next(moves, None) == key and all(move == key for move in moves)

    def _is_open(self, path: str, last: Message) -> bool:
        """Whether a daemon that lives may have a folder open."""
        here = self._ownership.found(path)
        if here is not None:
            return bool(here.handles)
        return self._ownership.hosts.living(last.owner.host) is not None

    # --- inside ----------------------------------------------------------------------------------

    def _publish_gone(self, path: str, last: Message) -> bool:
        """Publish behind a message that the folder is gone; False if another one came first.

        Behind one that says so already it names the same command.
        """
        body, move = (last.body, last.move) if last.kind is Kind.GONE else (b"", "")
        message = Publication(path, last.sequence, self._ownership.owner, Kind.GONE, body, move)
        outcome = self._journal.publish([message])[0]
        if isinstance(outcome, OSError) and not isinstance(outcome, Fenced):
            raise as_lost(outcome)
        return isinstance(outcome, int)

    def _is_own(self, message: Message) -> bool:
        return message.owner.host == self._ownership.owner.host


def _is_by(message: Message, key: str) -> bool:
    return message.kind is Kind.GONE and message.move == key
