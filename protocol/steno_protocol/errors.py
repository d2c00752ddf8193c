"""The tree of errors, divided by cause and remedy.

StenoError
  Refused          the command was not applied: `outcome` is "not_applied"
    BadRequest, NotFound, Exists, Conflict, Expired, Busy, Held, TooLarge, Corrupt,
    Incompatible, Unauthorized, ShuttingDown, StorageFailed, Internal, Unreachable
  OutcomeUnknown   the command may have been applied: repeat it with the same key

The error codes are a closed list.
"""

import enum
from typing import Final


class ErrorCode(enum.StrEnum):
    """The `code` of an error reply; PROTOCOL.md has a row for each."""

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
    """The state of a command after its error."""

    NOT_APPLIED = "not_applied"
    """This call changed nothing and never will. An earlier call with the same key may have been
    applied if no daemon was reached now."""

    UNKNOWN = "unknown"
    """The command may have been applied; repeating it with its key is safe and shows it."""


class StenoError(Exception):
    """Base of all errors.

    Args:
        message: what failed, on which session and file, and what to do next.
        session: the session of the failed command, if there is one.
        head: the head of that session (`generation:line`), if the daemon knows it.
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

    `key` is that key, so that another process can repeat the command.
    """

    outcome: Outcome = Outcome.UNKNOWN

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
    """The command was not applied."""


class Unreachable(Refused):
    """No daemon answered, and the command was not sent: start one, or read its log."""


class BadRequest(Refused):
    """The command, a field, a record or an id is invalid."""

    code: ErrorCode | None = ErrorCode.BAD_REQUEST


class NotFound(Refused):
    """The session, checkpoint, generation or position does not exist."""

    code: ErrorCode | None = ErrorCode.NOT_FOUND


class Exists(Refused):
    """The session exists, and the command asked for a new one."""

    code: ErrorCode | None = ErrorCode.EXISTS


class Conflict(Refused):
    """Another writer was faster: `head` is the session's present head."""

    code: ErrorCode | None = ErrorCode.CONFLICT


class Expired(Refused):
    """The command reached its writer after its deadline."""

    code: ErrorCode | None = ErrorCode.EXPIRED


class Busy(Refused):
    """Backpressure: a queue is full; retry a little later."""

    code: ErrorCode | None = ErrorCode.BUSY


class Held(Refused):
    """Another daemon owns the root or the session's folder."""

    code: ErrorCode | None = ErrorCode.HELD


class TooLarge(Refused):
    """A record, batch, header or field is over its limit."""

    code: ErrorCode | None = ErrorCode.TOO_LARGE


class StorageFailed(Refused):
    """The disk failed, and the bytes of the command were removed again."""

    code: ErrorCode | None = ErrorCode.STORAGE_FAILED


class Corrupt(Refused):
    """The session's files contradict each other; the message names the place."""

    code: ErrorCode | None = ErrorCode.CORRUPT


class Incompatible(Refused):
    """Client and daemon speak different versions of the protocol."""

    code: ErrorCode | None = ErrorCode.INCOMPATIBLE


class Unauthorized(Refused):
    """The client lacks the right for this command."""

    code: ErrorCode | None = ErrorCode.UNAUTHORIZED


class ShuttingDown(Refused):
    """The daemon is draining; the next daemon takes the command."""

    code: ErrorCode | None = ErrorCode.SHUTTING_DOWN


class Internal(Refused):
    """A bug in steno: please report it with the daemon's log."""

    code: ErrorCode | None = ErrorCode.INTERNAL


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
    """Return the exception for an error reply, of the type that the daemon raised."""
    if outcome is Outcome.UNKNOWN:
        return OutcomeUnknown(message, session=session, head=head, code=code, key=key)
    return REFUSALS[code](message, session=session, head=head)
