"""Mapping of a writer's errors to error replies and log entries."""

import errno
from collections.abc import Callable
from typing import Final

from steno_protocol import paths
from steno_protocol.commands import Mutation
from steno_protocol.compression import Contradicted, Damaged, Unexpandable
from steno_protocol.errors import (
    Busy,
    Corrupt,
    ErrorCode,
    Expired,
    Held,
    Internal,
    NotFound,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    StorageFailed,
)
from stenod.runtime.internal_errors import fault_of
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.store.disk import DiskRefused
from stenod.store.jsonl import Replaced

_OWNER: Final = "check its owner and permissions (`steno doctor`)"
_NO_LINKS: Final = "put the root on a file system with hard links, which rewrites and forks need"
_HANDLES: Final = "let the daemon have more open files (`ulimit -n`, LimitNOFILE of systemd)"

_REMEDIES: Final = {
    errno.EIO: "repair the disk (the kernel's log has the cause)",
    errno.ENOSPC: "make room (`df` and `df -i` show whether bytes or inodes are short)",
    errno.EDQUOT: "make room in the user's quota",
    errno.EFBIG: "let the daemon write larger files (`ulimit -f`, LimitFSIZE of systemd)",
    errno.EROFS: "mount it for writing again (the kernel's log has the cause)",
    errno.EACCES: _OWNER,
    errno.EPERM: _OWNER,
    errno.EMFILE: _HANDLES,
    errno.ENFILE: "let the machine have more open files (fs.file-max)",
    errno.EAGAIN: "let the daemon have more threads (`ulimit -u`, TasksMax of systemd)",
    errno.ENOTSUP: "do what it says",
    errno.EXDEV: "give the root a file system of its own instead of an overlay",
}

_LINKLESS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without hard links, such as exFAT."""


class ErrorMapping:
    """Maps the errors of one session.

    Args:
        session: its id.
        log: logs an event with fields.

    Attributes:
        last_error: the text of the last error, None if there was none.
    """

    def __init__(self, session: str, log: Callable[..., None]) -> None:
        self.last_error: str | None = None
        self._session = session
        self._log = log

    def of(self, error: Exception) -> StenoError:
        """Map an error before any write."""
        match error:
            case StenoError():
                return forget_way(error)
            case DiskRefused():
                self._note("storage_refused", str(error))
                return error.refusal(self._session)
            case OSError():
                return self.storage_failed(error)
            case _:
                return self.internal(error)

    def storage_failed(self, error: OSError, path: str | None = None) -> StenoError:
        """Map a disk error after which nothing of the command is on the disk.

        A replicated disk has a refusal of its own, such as that another daemon owns the session.

        Args:
            error: the disk's error.
            path: the path of the file, which the error may lack or shorten.
        """
        if isinstance(error, DiskRefused):
            self._note("storage_refused", str(error))
            return error.withdrawn(self._session)
        if isinstance(error, Damaged):
            self._note("damaged", str(error))
            return Corrupt(
                f"{error.filename} is damaged: it has other bytes than it was compressed with, and"
                " nothing was changed; take it from a backup (`zstd -dc` prints what is before the"
                " damage)",
                session=self._session,
            )
        if isinstance(error, Contradicted):
            self._note("contradicted", str(error))
            return Corrupt(
                f"{error.filename}: {error.strerror}; nothing was changed", session=self._session
            )
        if isinstance(error, Unexpandable):
            self._note("unexpandable", str(error))
            return StorageFailed(
                f"{error.strerror}, and send the command again; nothing was changed",
                session=self._session,
            )
        text = str(error) if path is None else f"[Errno {error.errno}] {error.strerror}: {path!r}"
        self._note("storage_failed", text)
        return StorageFailed(
            f"the disk failed: {text}; nothing of the command was kept, {remedy_of(error)} and"
            " send it again",
            session=self._session,
        )

    def not_rewritten(self, error: OSError) -> StenoError:
        """Map the error of a rewrite that did not take place."""
        if not isinstance(error, Replaced):
            return self.storage_failed(error)
        return Busy(
            f"another program is replacing the session's file: {error}; nothing was rewritten,"
            " try again",
            session=self._session,
        )

    def unknown(self, what: str, key: str | None = None) -> OutcomeUnknown:
        """Map the error of a command that may or may not be on the disk."""
        self._note("outcome_unknown", what)
        return OutcomeUnknown(
            f"{what}: send the command again with its key to learn whether it was applied",
            session=self._session,
            code=ErrorCode.STORAGE_FAILED,
            key=key,
        )

    def internal(self, error: Exception) -> Internal:
        """Map an internal error before any write."""
        self._note("internal", fault_of(error))
        return Internal(
            f"steno itself failed ({type(error).__name__}); nothing was written: please report it"
            " with the daemon's log",
            session=self._session,
        )

    def expired(self, late_s: float) -> Expired:
        """Return the error of a command that reached its writer after its deadline."""
        return Expired(
            f"the command came {late_s:.3f} s after its deadline: send it again with a later one",
            session=self._session,
        )

    def _note(self, event: str, error: str) -> None:
        self.last_error = error
        self._log(event, session=self._session, error=error)


def forget_way(error: StenoError) -> StenoError:
    """Return the error without its traceback.

    The frames of the traceback hold the refused message and the error itself: a cycle, which keeps
    up to 64 MiB until the garbage collector runs, and it runs rarely.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def remedy_of(error: OSError) -> str:
    """Return the remedy of a disk error, for the operator of the machine."""
    if error.errno in _LINKLESS and _is_generation(error.filename2):
        return _NO_LINKS
    return _REMEDIES.get(error.errno or 0, "make room or repair the disk")


def _is_generation(name: object) -> bool:
    return isinstance(name, str) and paths.generation_of(name) is not None


def draining() -> ShuttingDown:
    """Return the error for a command that reaches a draining daemon."""
    return ShuttingDown("the daemon is ending: the next one takes the command, try again")


def ended(session: str) -> ShuttingDown:
    """Return the error for a command that reaches a writer that has ended."""
    return ShuttingDown("the session is being closed: try again", session=session)


def with_key(error: StenoError, key: str) -> StenoError:
    """Return a group's error for one of its commands."""
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(error.message, session=error.session, code=error.code, key=key)
    return error


def doubted(
    error: StenoError, command: Mutation, unknown: UnknownOutcomes, gone: str | None = None
) -> StenoError:
    """Return the error of a command with a failed key lookup: it may have been applied before.

    Args:
        error: the error of the lookup.
        command: the command.
        unknown: the keys whose outcome is unknown.
        gone: why a session that existed before does not exist now; None if none existed.
    """
    if isinstance(error, (Expired, OutcomeUnknown)) or not unknown.covers(command, error):
        return error
    if isinstance(error, Held) and error.endpoint is not None:
        # The client repeats it at the owner, which looks its key up.
        return error
    if isinstance(error, NotFound):
        if gone is None:
            return error
        unknown.add([command.key])
        return OutcomeUnknown(
            f"{error.message}; {gone}",
            session=error.session,
            code=error.code,
            key=command.key,
        )
    unknown.add([command.key])
    return OutcomeUnknown(
        f"the command may have been applied when it was sent before, and the lookup of its key"
        f" failed ({error.message}): send it again with its key to learn its outcome",
        session=error.session,
        code=error.code,
        key=command.key,
    )
