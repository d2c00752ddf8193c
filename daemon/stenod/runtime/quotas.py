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


class Account(msgspec.Struct):
    """The room of one session, shared by its writers and valid for `ROOM_CHECK_S`.

    A writer takes the bytes of a group from its account and calls `Quotas.renew` only if the
    account is too old or too small: most groups never call this module.

    Attributes:
        session: the session's id.
        left: bytes that still fit.
        until_s: when the account must be renewed; seconds of the monotonic clock.
        refusal: the error for commands that do not fit.
        taken: bytes taken that are not yet in the size of all sessions.
    """

    session: str
    left: float = float("inf")
    until_s: float = float("inf")
    refusal: StenoError | None = None
    taken: int = 0

    def check(self, command: Mutation, size: int) -> None:
        """Refuse a command of a group that does not fit as a whole, or take its bytes.

        `clear` hardly adds bytes, and is always allowed.

        Raises:
            TooLarge, StorageFailed: the command does not fit; nothing was written.
        """
        if isinstance(command, Clear):
            return
        if size >= self.left and self.refusal is not None:
            raise self.refusal
        self.left -= size
        self.taken += size


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
        self._accounts: dict[str, Account] = {}
        self._root_bytes: int | None = None
        self._is_root_full = False

    def account(self, session: str) -> Account:
        """Return the account of a session, to be renewed before its first use."""
        found = self._accounts.get(session) or Account(session, until_s=-float("inf"))
        self._keep(found)
        return found

    def renew(self, account: Account, written: int = 0) -> None:
        """Look at the disk and at the sizes again, and set the remaining room of a session.

        Args:
            account: the account of the session.
            written: bytes that are to be taken, and are on the disk already.
        """
        self._keep(account)
        path = self._path_of(account.session)
        account.left, account.refusal = min(
            (self._free_left(account.session, path, written),
             self._session_left(account.session, path), self._root_left(account.session)),
            key=lambda entry: entry[0],
        )  # fmt: skip
        account.until_s = self._clock() + limits.ROOM_CHECK_S

    @property
    def has_limits(self) -> bool:
        """Whether any quota or floor is set."""
        settings = self._settings()
        names = ("disk.free_bytes", "disk.session_bytes", "disk.root_bytes")
        return any(settings.count(name) for name in names)

    def take(self, session: str, size: int, *, is_written: bool = False) -> None:
        """Take room for what a command on a whole session writes.

        Args:
            session: its id.
            size: the bytes.
            is_written: they are on the disk already, but not yet in a session.

        Raises:
            TooLarge, StorageFailed: it does not fit; nothing was written.
        """
        account = self.account(session)
        self.renew(account, size if is_written else 0)
        if is_written:
            # What is on the disk already is no room for later commands.
            account.until_s = -float("inf")
        if account.refusal is not None and account.left <= size:
            raise account.refusal
        account.taken += size

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
        for account in self._accounts.values():
            account.until_s, account.taken = -float("inf"), 0

    def _keep(self, account: Account) -> None:
        if len(self._accounts) >= limits.OPEN_SESSIONS_MAX:
            if self._root_bytes is not None:
                self._root_bytes = self._count_root(self._root_bytes)
            self._accounts.clear()
        self._accounts[account.session] = account

    def _count_root(self, size: int) -> int:
        """Add what was taken from the accounts to the size of all sessions."""
        for account in self._accounts.values():
            size, account.taken = size + account.taken, 0
        return size

    def _free_left(self, session: str, path: str, written: int) -> tuple[float, StenoError | None]:
        floor = self._settings().count("disk.free_bytes")
        if not floor:
            return float("inf"), None
        try:
            free = self._free_bytes(path)
        except OSError:
            # The free space is unknown; the write itself will fail if the disk is full.
            return float("inf"), None
        return free + written - floor, StorageFailed(
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
            f" `steno gc {session} --keep-generations 1`, go on in another session, or raise"
            " disk.session_bytes",
            session=session,
        )

    def _root_left(self, session: str) -> tuple[float, StenoError | None]:
        quota = self._settings().count("disk.root_bytes")
        if not quota or self._root_bytes is None:
            return float("inf"), None
        self._root_bytes = self._count_root(self._root_bytes)
        self._is_root_full |= self._root_bytes >= quota
        return quota - self._root_bytes, TooLarge(
            f"all sessions and the trash have {self._root_bytes} bytes, and their quota is {quota}:"
            " remove past generations with `steno gc --keep-generations 1`, or delete sessions,"
            " lower disk.trash_days and run `steno gc --trash`, or raise disk.root_bytes",
            session=session,
        )
