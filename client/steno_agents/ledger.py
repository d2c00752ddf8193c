"""The tokens of all sessions of a root, read again only where something was added.

On the daemon's machine the lines are read from its files, as `steno grep` does: the tokens of a
line that is not yet durable may be counted a moment early. Elsewhere, in a cluster and in a mount
the daemon sends them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from steno import BlockingClient
from steno.local import expanded, open_regular, open_stored
from steno_agents.detection import FORMATS
from steno_agents.limits import SPENDING_LINE_BYTES_MAX
from steno_agents.origin import reader_among
from steno_agents.spending import Account, Counted, OwnRecords, Seen
from steno_protocol import compression, paths
from steno_protocol.errors import (
    NotFound,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    Unreachable,
)
from steno_protocol.positions import Position
from steno_protocol.replies import SessionEntry

_FILES: Final[Mapping[str, type[Counted]]] = {
    paths.stream_file(each.stream): each for each in FORMATS
}


AWAY: Final = (Unreachable, ShuttingDown, OutcomeUnknown)
"""The daemon's own trouble, which is no fault of a session."""


@dataclass(slots=True)
class _Read:
    """How far a session was read.

    Attributes:
        account: its tokens.
        stamp: what changes when something is added.
        file: the identity of the file on this machine.
        offset: the bytes of it that were read.
        position: the lines that the daemon sent.
    """

    account: Account
    stamp: object = None
    file: tuple[int, int] = (0, 0)
    offset: int = 0
    position: Position = field(default_factory=partial(Position, 0, 0))


class Ledger:
    """The tokens of many sessions.

    Args:
        client: of the daemon.
        files: the folder of its sessions; None if its files are elsewhere, or may be old.

    Attributes:
        unread: why sessions could not be read, by their ids.
    """

    def __init__(self, client: BlockingClient, files: Path | None) -> None:
        self._client = client
        self._files = files
        self.unread: dict[str, str] = {}
        self._seen = Seen()
        self._read: dict[str, _Read] = {}

    @property
    def accounts(self) -> Mapping[str, Account]:
        """The tokens by session."""
        return {session: each.account for session, each in self._read.items()}

    def account(self, session: str) -> Account | None:
        """Return the tokens of a session; None if it was not read yet."""
        found = self._read.get(session)
        return None if found is None else found.account

    def keep(self, sessions: Iterable[str]) -> None:
        """Forget the other sessions, which are gone."""
        for session in self._read.keys() - set(sessions):
            del self._read[session]

    def update(
        self, entries: Iterable[SessionEntry], is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Read what was added to some sessions.

        Args:
            entries: the sessions; where two have a copy of the same request, the first counts it.
            is_over: asked between two sessions; once it is true, the rest waits.

        Returns:
            Whether all of them were read.

        Raises:
            StenoError: the daemon does not answer.
        """
        for entry in entries:
            if is_over():
                return False
            self.unread.pop(entry.session, None)
            try:
                self._update(entry)
            except (NotFound, FileNotFoundError):
                # It was deleted or renamed meanwhile.
                continue
            except AWAY:
                raise
            except (StenoError, OSError) as error:
                self.unread[entry.session] = str(error)
        return True

    def _update(self, entry: SessionEntry) -> None:
        mount, segments = paths.split_session(entry.session)
        if self._files is None or mount is not None:
            self._ask(entry)
        else:
            self._look(entry, self._files.joinpath(*segments))

    # --- files of this machine --------------------------------------------------------------------

    def _look(self, entry: SessionEntry, folder: Path) -> None:
        name, kind = _transcript_in(folder)
        read = self._begun(entry.session, kind)
        file, stored = open_stored(folder / name)
        with file:
            stat = os.fstat(file.fileno())
            identity, size = (stat.st_dev, stat.st_ino), stat.st_size
            if stored != name:
                # Without a whole head it is damaged, which its expansion reports.
                size = compression.plain_size(file.read(compression.HEAD_BYTES)) or size
            if identity != read.file or size < read.offset:
                read.account.restart()
                read.file, read.offset = identity, 0
                if kind is OwnRecords:
                    for path in _past_generations(folder):
                        self._add_past(read.account, path)
            if size == read.offset:
                return
            with expanded(file, stored) as plain:
                plain.seek(read.offset)
                while line := plain.readline(SPENDING_LINE_BYTES_MAX):
                    if not line.endswith(b"\n") and len(line) < SPENDING_LINE_BYTES_MAX:
                        # The daemon is writing it.
                        break
                    read.account.add(line)
                    read.offset += len(line)

    def _add_past(self, account: Account, path: Path) -> None:
        with suppress(OSError), expanded(open_regular(path), path.name) as file:
            while line := file.readline(SPENDING_LINE_BYTES_MAX):
                account.add(line, is_past=True)

    def _begun(self, session: str, kind: type[Counted]) -> _Read:
        read = self._read.get(session)
        if read is None or read.account.counted is not kind:
            read = self._read[session] = _Read(Account(kind, self._seen))
        return read

    # --- through the daemon -----------------------------------------------------------------------

    def _ask(self, entry: SessionEntry) -> None:
        stamp = entry.modified_at, entry.bytes, entry.generations
        known = self._read.get(entry.session)
        if known is not None and known.stamp == stamp:
            return
        session = self._client.session(entry.session)
        kind = reader_among(each.name for each in session.streams())
        read = self._begun(entry.session, kind or OwnRecords)
        if kind is None:
            head = Position.parse(session.stat().head)
        else:
            head = session.stream(kind.stream).head()
        if head.generation != read.position.generation or head.line < read.position.line:
            read.account.restart()
            read.position = Position(head.generation, 0)
        if kind is None:
            if read.position.line == 0:
                for number in range(head.generation):
                    # `gc` may have removed it.
                    with suppress(NotFound):
                        for line in session.lines(Position(number, 0)):
                            read.account.add(line, is_past=True)
            lines: Iterator[bytes] = session.lines(read.position, head)
        else:
            lines = session.stream(kind.stream).lines(read.position, head)
        for line in lines:
            read.account.add(line)
        read.position, read.stamp = head, stamp


def _transcript_in(folder: Path) -> tuple[str, type[Counted]]:
    """The file of a session with its tokens, and what tells them."""
    with os.scandir(folder) as entries:
        found = {paths.plain_file(each.name) for each in entries}
    for name, kind in _FILES.items():
        if name in found:
            return name, kind
    return paths.CONTEXT, OwnRecords


def _past_generations(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        names = {each.name for each in entries}
    # One that is being compressed has two names for a moment.
    numbered = {number: each for each in names if (number := paths.generation_of(each))}
    return [folder / name for _, name in sorted(numbered.items())]
