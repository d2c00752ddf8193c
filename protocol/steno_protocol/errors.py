"""The tree of errors, divided by cause and remedy; the codes are a closed list.

StenoError
  Refused          nothing happened, and nothing will: `outcome` is "not_applied"
    BadRequest, NotFound, Exists, Conflict, Expired, Busy, Held, TooLarge, Corrupt,
    Incompatible, Unauthorized, ShuttingDown, StorageFailed, Internal, Unreachable
  OutcomeUnknown   it may have happened: repeat it with the same key, that is harmless
"""

import enum
from typing import Final


class ErrorCode(enum.StrEnum):
    """What an error reply says in `code`; PROTOCOL.md has a row for each."""

    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    EXISTS = "exists"
    CONFLICT = "conflict"
    EXPIRED = "expired"
    BUSY = "busy"
    HELD = "held"
    TOO_LARGE = "too_large"
    STORAGE_FAILED = "storage_failed"
    CORRUPT = "corrupt"
    INCOMPATIBLE = "incompatible"
    UNAUTHORIZED = "unauthorized"
    SHUTTING_DOWN = "shutting_down"
    INTERNAL = "internal"


class Outcome(enum.StrEnum):
    """What is true of the command after its error."""

    NOT_APPLIED = "not_applied"
    """This call changed nothing and never will. If no daemon was reached, an earlier call with the
    same key may still have been applied."""

    UNKNOWN = "unknown"
    """It may have happened; the same command with the same key finds out and does no harm."""


class StenoError(Exception):
    """Anything that steno refuses or fails to do.

    Args:
        message: what happened, where, and what to do next.
        session: the session it happened to, when there is one.
        head: the real head of that session (`generation:line`), when the daemon knows it.
    """

    code: ErrorCode | None = None
    outcome: Outcome = Outcome.NOT_APPLIED

    def __init__(
        self, message: str, *, session: str | None = None, head: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.session = session
        self.head = head

    def __str__(self) -> str:
        where = f" [session {self.session}]" if self.session is not None else ""
        return f"{self.message}{where}"


class OutcomeUnknown(StenoError):
    """The outcome of the command is unknown: repeat it with the same key.

    `key` is that key, so that the command can be repeated even by another process.
    """

    outcome = Outcome.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        session: str | None = None,
        head: str | None = None,
        code: ErrorCode | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, session=session, head=head)
        self.code = code
        self.key = key


class Refused(StenoError):
    """The command was definitely not applied."""


class Unreachable(Refused):
    """No daemon answered, and the command was never sent: start one, or look at its log."""


class BadRequest(Refused):
    """The caller's mistake: the command, a field, a record or an id is not what it has to be."""

    code = ErrorCode.BAD_REQUEST


class NotFound(Refused):
    """The session, checkpoint, generation or position does not exist."""

    code = ErrorCode.NOT_FOUND


class Exists(Refused):
    """The session was to be new, and is there already."""

    code = ErrorCode.EXISTS


class Conflict(Refused):
    """Another writer was faster: `head` is where the session ends now."""

    code = ErrorCode.CONFLICT


class Expired(Refused):
    """The command reached its writer after its deadline."""

    code = ErrorCode.EXPIRED


class Busy(Refused):
    """Too much is waiting already; try again a little later."""

    code = ErrorCode.BUSY


class Held(Refused):
    """Another daemon owns the root or the session's folder."""

    code = ErrorCode.HELD


class TooLarge(Refused):
    """A record, batch, header or field is over its limit."""

    code = ErrorCode.TOO_LARGE


class StorageFailed(Refused):
    """The disk refused, and what was written of the command has been taken back."""

    code = ErrorCode.STORAGE_FAILED


class Corrupt(Refused):
    """The session's files contradict themselves; the message says where."""

    code = ErrorCode.CORRUPT


class Incompatible(Refused):
    """Client and daemon speak different versions of the protocol."""

    code = ErrorCode.INCOMPATIBLE


class Unauthorized(Refused):
    """This peer may not do that."""

    code = ErrorCode.UNAUTHORIZED


class ShuttingDown(Refused):
    """The daemon is draining; the next one will take the command."""

    code = ErrorCode.SHUTTING_DOWN


class Internal(Refused):
    """A fault of steno itself: please report it with the daemon's log."""

    code = ErrorCode.INTERNAL


REFUSALS: Final[dict[ErrorCode, type[Refused]]] = {
    ErrorCode(cls.code or ""): cls
    for cls in (
        BadRequest, NotFound, Exists, Conflict, Expired, Busy, Held, TooLarge, StorageFailed,
        Corrupt, Incompatible, Unauthorized, ShuttingDown, Internal,
    )
}  # fmt: skip
"""The exception of each code, for errors with a known outcome."""


def error_from_reply(
    code: ErrorCode,
    message: str,
    outcome: Outcome,
    *,
    session: str | None,
    head: str | None,
    key: str | None,
) -> StenoError:
    """The exception that stands for one error reply, the same type that the daemon raised."""
    if outcome is Outcome.UNKNOWN:
        return OutcomeUnknown(message, session=session, head=head, code=code, key=key)
    return REFUSALS[code](message, session=session, head=head)
