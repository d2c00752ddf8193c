"""How much sessions may take: quotas, and a floor of free space, looked at once a group.

What does not fit is refused before anything is written. A quota is a limit set by the operator, so
it is `too_large`, as every other limit; too little free space is `storage_failed`, what the disk
would say a little later, and callers can handle a full disk. A repeat of what was applied gets its
first answer all the same.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from steno_protocol import limits
from steno_protocol.commands import Clear, Mutation
from steno_protocol.errors import StenoError, StorageFailed, TooLarge
from steno_protocol.settings import Settings
from stenod.store.usage import session_bytes, tree_bytes


class Room(msgspec.Struct):
    """What is left for one group that does not fit as a whole.

    Attributes:
        left: bytes that still fit.
        refusal: the reply for the others.
    """

    left: float
    refusal: StenoError

    def check(self, command: Mutation, size: int) -> None:
        """Refuse what does not fit; clearing a session hardly adds anything, and is let through.

        Raises:
            TooLarge, StorageFailed: nothing was done.
        """
        if isinstance(command, Clear):
            return
        if size >= self.left:
            raise self.refusal
        self.left -= size


class _Account(msgspec.Struct):
    """What was last found out about one session's room."""

    left: float
    until_s: float
    refusal: StenoError | None


class Quotas:
    """The room of one daemon's sessions.

    Args:
        settings: the options in force.
        clock: monotonic seconds.
        path_of: the folder of a session.
        folders: the trees that hold sessions.
        free_bytes: what may still be written on the disk of a folder; looks at once.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        path_of: Callable[[str], str],
        folders: Callable[[], Sequence[Path]],
        free_bytes: Callable[[str], int],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._path_of = path_of
        self._folders = folders
        self._free_bytes = free_bytes
        self._accounts: dict[str, _Account] = {}
        self._root_bytes: int | None = None
        self._is_root_full = False

    def room(self, session: str, size: int) -> Room | None:
        """None if `size` more bytes fit in a session; else what is left."""
        account = self._accounts.get(session)
        if account is None or account.left <= size or self._clock() > account.until_s:
            account = self._look(session)
        if account.left > size or account.refusal is None:
            account.left -= size
            if self._root_bytes is not None:
                self._root_bytes += size
            return None
        return Room(account.left, account.refusal)

    @property
    def wants_root(self) -> bool:
        """Whether the sizes of all sessions have to be known."""
        return bool(self._settings().count("disk.root_bytes"))

    @property
    def is_root_full(self) -> bool:
        """Whether a command was refused by the root's quota since the last measurement."""
        return self._is_root_full

    def measure_root(self) -> int:
        """Bytes of all sessions, their trash included; blocks."""
        return sum(tree_bytes(str(folder)) for folder in self._folders())

    def root_measured(self, size: int) -> None:
        """Go by this measure from now on."""
        self._root_bytes, self._is_root_full = size, False
        self._accounts.clear()

    def _look(self, session: str) -> _Account:
        """Find out anew what is left for a session."""
        if len(self._accounts) >= limits.OPEN_SESSIONS_MAX:
            self._accounts.clear()
        path = self._path_of(session)
        left, refusal = min(
            (self._free_left(session, path), self._session_left(session, path),
             self._root_left(session)),
            key=lambda entry: entry[0],
        )  # fmt: skip
        account = _Account(left, self._clock() + limits.ROOM_CHECK_S, refusal)
        self._accounts[session] = account
        return account

    def _free_left(self, session: str, path: str) -> tuple[float, StenoError | None]:
        floor = self._settings().count("disk.free_bytes")
        if not floor:
            return float("inf"), None
        try:
            free = self._free_bytes(path)
        except OSError:
            # Unknown; the write itself will show it.
            return float("inf"), None
        return free - floor, StorageFailed(
            f"the disk of {path} has {free} bytes left, and disk.free_bytes keeps {floor} of them"
            " free: make room (`steno gc` says what can go), then send it again",
            session=session,
        )

    def _session_left(self, session: str, path: str) -> tuple[float, StenoError | None]:
        quota = self._settings().count("disk.session_bytes")
        if not quota:
            return float("inf"), None
        used = session_bytes(path)
        return quota - used, TooLarge(
            f"the session has {used} bytes, and its quota is {quota}: drop what rewrites left"
            f" behind with `steno gc --keep-generations 1`, or raise disk.session_bytes",
            session=session,
        )

    def _root_left(self, session: str) -> tuple[float, StenoError | None]:
        quota = self._settings().count("disk.root_bytes")
        if not quota or self._root_bytes is None:
            return float("inf"), None
        self._is_root_full |= self._root_bytes >= quota
        return quota - self._root_bytes, TooLarge(
            f"all sessions have {self._root_bytes} bytes, and their quota is {quota}: delete what"
            " is not needed and see `steno gc`, or raise disk.root_bytes",
            session=session,
        )
