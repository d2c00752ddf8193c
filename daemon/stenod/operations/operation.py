"""What the operations share: their parts, and that a command with a key is applied once."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from steno_protocol import limits
from steno_protocol.commands import Delete, DeleteStream, Fork, List, Rename, TakeIn, Undelete
from steno_protocol.errors import ErrorCode, Exists, Held, OutcomeUnknown
from steno_protocol.replies import SessionEntry
from stenod.sessions import moves, trash
from stenod.sessions.queries import Queries
from stenod.sessions.registry import Registry
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.usage import BLOCK_BYTES
from stenod.writer.services import Services

T = TypeVar("T")

KeyedCommand = Fork | Rename | Delete | DeleteStream | Undelete | TakeIn
"""The commands that create, move or remove a session by a key of their own."""


class Parts(msgspec.Struct, frozen=True):
    """What the operations of one daemon work with.

    Attributes:
        trees: the session trees.
        sessions: the open ones and their writers.
        queries: queries about them.
        services: clocks and threads.
    """

    trees: SessionFolders
    sessions: Registry
    queries: Queries
    services: Services


class Operation:
    """The commands of one subject; the effect of each is durable when its method returns.

    Args:
        parts: what they work with.

    Raises:
        StenoError: of each command: it was refused, or its outcome is unknown.
        OSError: of each command: the disk failed; nothing was changed.
    """

    def __init__(self, parts: Parts) -> None:
        self._trees = parts.trees
        self._disk = parts.trees.disk
        self._sessions = parts.sessions
        self._queries = parts.queries
        self._services = parts.services

    @property
    def _expiry_s(self) -> float:
        return trash.expiry_of(self._services.settings())

    def _entries(self, prefix: str = "") -> list[SessionEntry]:
        """Return all sessions whose id begins with a prefix; blocks."""
        found: list[SessionEntry] = []
        more = True
        while more:
            after = found[-1].session if found else ""
            wanted = List(prefix=prefix, after=after, limit=limits.LIST_SESSIONS_MAX)
            page = self._trees.sessions(wanted)
            found += page.sessions
            more = page.more
        return found

    async def _take_room(
        self, session: str, measure: Callable[[], int | None], *, is_written: bool = False
    ) -> None:
        """Refuse to create a session that does not fit.

        Args:
            session: its id.
            measure: returns its bytes, None if it exists already; blocks.
            is_written: they are on the disk already, but not yet in a session.

        Raises:
            TooLarge, StorageFailed: nothing was created.
        """
        quotas = self._services.quotas
        if quotas is not None and quotas.has_limits:
            size = await self._services.read(measure)
            if size is not None:
                quotas.take(session, size, is_written=is_written)

    async def _acquire_new(self, place: Place) -> Exists | None:
        """Own the place of a new session; returns the error if another daemon has it."""
        try:
            await self._sessions.acquire(place.session)
        except Held as error:
            return Exists(
                f"{place.session!r} exists already: choose another id, or rename or delete that"
                f" session first; the daemon at {error.endpoint} owns it",
                session=place.session,
            )
        return None

    async def _done_before(self, command: KeyedCommand, find: Callable[[], T]) -> T:
        """Return the result of an earlier copy of a command, by `find`.

        Raises:
            OutcomeUnknown: the disk cannot be read, or cannot sync the result of that copy.
        """
        with looking_up(command):
            return await self._services.read(find)

    async def took_place(self, command: KeyedCommand) -> bool:
        """Return whether a daemon of the cluster served a command that names a session."""
        made = command.new_session if isinstance(command, Fork) else command.session
        return await self._moved_to(self._trees.place(made), command.key) is not None

    async def _moved_to(self, place: Place, key: str) -> str | None:
        """Return where a daemon of the cluster brought a session by the command with a key."""
        member = self._sessions.member
        if member is None or place.shared:
            return None

        def find() -> str | None:
            found = member.moved(place.session, key)
            if found is None:
                # What this disk knows to be begun did not take place.
                moves.forget_begun(self._trees, place, key)
            return found

        return await self._services.read(find)


@contextmanager
def looking_up(command: KeyedCommand) -> Generator[None]:
    """Report a failure of the block as that of a lookup: an earlier copy may have succeeded.

    Raises:
        OutcomeUnknown: the disk or the journal failed.
    """
    try:
        yield
    except OSError as error:
        raise OutcomeUnknown(
            f"the disk failed while an earlier result was looked up or synced ({error}): send"
            " the command again with its key",
            session=command.session,
            code=ErrorCode.STORAGE_FAILED,
            key=command.key,
        ) from None


def take_room(services: Services, session: str) -> None:
    """Refuse a command that writes a little and does not fit.

    Raises:
        TooLarge, StorageFailed: nothing was written.
    """
    quotas = services.quotas
    if quotas is not None and quotas.has_limits:
        quotas.take(session, BLOCK_BYTES)
