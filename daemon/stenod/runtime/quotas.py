"""Quotas of sessions, and the floor of free space.

Both are checked once a group, and a command that does not fit is refused before it is written. A
quota is a limit set by the operator, so its error is `too_large`, as for every other limit. Too
little free space is `storage_failed`, the error of a full disk a little later. A repeat of an
applied command gets its first answer all the same.
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
    """The remaining room for a group that does not fit as a whole.

    Attributes:
        left: bytes that still fit.
        refusal: the error for commands that do not fit.
    """

    left: float
    refusal: StenoError

    def check(self, command: Mutation, size: int) -> None:
        """Refuse a command that does not fit; `clear` hardly adds bytes, and is always allowed.

        Raises:
            TooLarge, StorageFailed: the command does not fit; nothing was written.
        """
        if isinstance(command, Clear):
            return
        if size >= self.left:
            raise self.refusal
        self.left -= size


class _Account(msgspec.Struct):
    """The last check of one session's room."""

    left: float
    until_s: float
    refusal: StenoError | None


class Quotas:
    """The room of one daemon's sessions.

    Args:
        settings: returns the options in force.
        clock: monotonic seconds.
        path_of: returns the folder of a session.
        folders: returns the trees that hold sessions.
        free_bytes: returns the free space on the disk of a folder.
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
        """Return None if `size` more bytes fit in a session, else the remaining room."""
        account = self._accounts.get(session)
        if account is None or account.left <= size or self._clock() > account.until_s:
            account = self._check(session)
        if account.left > size or account.refusal is None:
            account.left -= size
            if self._root_bytes is not None:
                self._root_bytes += size
            return None
        return Room(account.left, account.refusal)

    @property
    def wants_root(self) -> bool:
        """Whether there is a quota for all sessions together."""
        return bool(self._settings().count("disk.root_bytes"))

    @property
    def is_root_full(self) -> bool:
        """Whether a command was refused by the root's quota since the last measurement."""
        return self._is_root_full

    def measure_root(self) -> int:
        """Return the bytes of all sessions, their trash included; blocks."""
        return sum(tree_bytes(str(folder)) for folder in self._folders())

    def root_measured(self, size: int) -> None:
        """Use this measurement from now on."""
        self._root_bytes, self._is_root_full = size, False
        self._accounts.clear()

    def _check(self, session: str) -> _Account:
        """Determine the remaining room of a session."""
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
            # The free space is unknown; the write itself will fail if the disk is full.
            return float("inf"), None
        return free - floor, StorageFailed(
            f"the disk of {path} has {free} bytes left, and disk.free_bytes reserves {floor}: make"
            " room (`steno gc --dry-run` lists what can be removed), then send the command again",
            session=session,
        )

    def _session_left(self, session: str, path: str) -> tuple[float, StenoError | None]:
        quota = self._settings().count("disk.session_bytes")
        if not quota:
            return float("inf"), None
        used = session_bytes(path)
        return quota - used, TooLarge(
            f"the session has {used} bytes, and its quota is {quota}: remove past generations with"
            f" `steno gc {session} --keep-generations 1`, or raise disk.session_bytes",
            session=session,
        )

    def _root_left(self, session: str) -> tuple[float, StenoError | None]:
        quota = self._settings().count("disk.root_bytes")
        if not quota or self._root_bytes is None:
            return float("inf"), None
        self._is_root_full |= self._root_bytes >= quota
        return quota - self._root_bytes, TooLarge(
            f"all sessions have {self._root_bytes} bytes, and their quota is {quota}: delete"
            " sessions that are not needed, see `steno gc --dry-run`, or raise disk.root_bytes",
            session=session,
        )
