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

from steno_protocol import limits


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
    """The state of a command after its error.

    Attributes:
        NOT_APPLIED: this call changed nothing and never will. An earlier call with the same key may
            have been applied if no daemon was reached now.
        UNKNOWN: the command may have been applied; repeating it with its key is safe and shows it.

    Example:
        >>> steno.NotFound.outcome, steno.OutcomeUnknown.outcome
        (<Outcome.NOT_APPLIED: 'not_applied'>, <Outcome.UNKNOWN: 'unknown'>)
    """

    NOT_APPLIED = "not_applied"
    """This call changed nothing and never will. An earlier call with the same key may have been
    applied if no daemon was reached now."""

    UNKNOWN = "unknown"
    """The command may have been applied; repeating it with its key is safe and shows it."""


class StenoError(Exception):
    """The base of all errors.

    Args:
        message: what failed, on which session and file, and what to do next.
        session: the session of the failed command, if there is one.
        head: the head of that session (`generation:line`), if the daemon knows it.

    Attributes:
        code: the code of the error in the protocol; None if the client itself raised it.
        outcome: whether the command was applied.

    Example:
        >>> try:
        ...     ack = await session.revert_to(7)
        ... except steno.StenoError as error:
        ...     print(error.code, error.outcome, error.session)
        not_found not_applied talk
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
        if self.session is None:
            return self.message
        # A longer id is no session's, and may be a text of any length.
        is_long = len(self.session) > limits.SESSION_ID_CHARS_MAX
        session = f"{self.session[: limits.SHOWN_CHARS_MAX]}…" if is_long else self.session
        return f"{self.message} [session {session}]"


class OutcomeUnknown(StenoError):
    """The outcome of the command is unknown: repeat it with the same key.

    The answer was lost, or the disk failed while the daemon took the bytes back. If the command was
    applied, a repeat is answered with the first ack; otherwise it is applied now.

    Attributes:
        key: the idempotency key of the command, so that another process can repeat it.

    Example:
        >>> message = {"role": "user", "content": "once"}
        >>> try:
        ...     ack = await session.append_message(message)
        ... except steno.OutcomeUnknown as error:
        ...     ack = await session.append_message(message, key=error.key)
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
    """The command was not applied; the base of all errors but `OutcomeUnknown`.

    Example:
        >>> issubclass(steno.Conflict, steno.Refused), steno.Refused.outcome
        (True, <Outcome.NOT_APPLIED: 'not_applied'>)
    """


class Unreachable(Refused):
    """No daemon answered, and the command was not sent: start one, or read its log.

    Example:
        >>> steno.connect_sync(endpoint="ipc:///tmp/no-daemon.sock", timeout=0.1)
        Traceback (most recent call last):
        steno.Unreachable: ...
    """


class BadRequest(Refused):
    """The command, a field, a record or an id is invalid: correct the call.

    Example:
        >>> await client.open("../other")
        Traceback (most recent call last):
        steno.BadRequest: '../other' is not a session id: ...
    """

    code: ErrorCode | None = ErrorCode.BAD_REQUEST


class NotFound(Refused):
    """The session, checkpoint, generation or position does not exist.

    Attributes:
        new_session: the new id of a session that was renamed while a client followed it.

    Example:
        >>> await client.open("nowhere", create=False)
        Traceback (most recent call last):
        steno.NotFound: there is no such session: ... [session nowhere]
    """

    code: ErrorCode | None = ErrorCode.NOT_FOUND

    def __init__(
        self,
        message: str,
        *,
        session: str | None = None,
        head: str | None = None,
        new_session: str | None = None,
    ) -> None:
        super().__init__(message, session=session, head=head)
        self.new_session = new_session


class Exists(Refused):
    """The session exists, and the command asked for a new one.

    Example:
        >>> await client.open("talk", exclusive=True)
        Traceback (most recent call last):
        steno.Exists: the session exists already: open it without exclusive [session talk]
    """

    code: ErrorCode | None = ErrorCode.EXISTS


class Conflict(Refused):
    """Another writer was faster, or the key was used before with other contents.

    `head` is the session's present head: read from there, then decide again.

    Example:
        >>> await session.append_message({"role": "user", "content": "late"}, expect="0:1")
        Traceback (most recent call last):
        steno.Conflict: another writer was faster: 0:1 was expected and the session ends at 0:2; ...
    """

    code: ErrorCode | None = ErrorCode.CONFLICT


class Expired(Refused):
    """The command reached its writer after its deadline: repeat it with a longer timeout.

    Example:
        >>> async def think_too_long(messages):
        ...     await anyio.sleep(60)
        >>> texts = [{"role": "user", "content": str(number)} for number in range(9)]
        >>> ack = await session.append_message(texts)
        >>> await session.compact(think_too_long, timeout=0.01)
        Traceback (most recent call last):
        steno.Expired: there was no summary within 0.01 s: nothing was changed; ...
    """

    code: ErrorCode | None = ErrorCode.EXPIRED


class Busy(Refused):
    """Backpressure: a queue is full, or another client holds what the command needs; retry later.

    Example:
        >>> async def compact_again(messages):
        ...     await session.compact(compact_again)
        >>> texts = [{"role": "user", "content": str(number)} for number in range(9)]
        >>> ack = await session.append_message(texts)
        >>> await session.compact(compact_again)
        Traceback (most recent call last):
        steno.Busy: planner is compacting the session ...
    """

    code: ErrorCode | None = ErrorCode.BUSY


class Held(Refused):
    """Another daemon owns the root, the session's folder or the session: use that one, or stop it.

    A client of a cluster goes to the owner by itself, and raises this at its deadline only.

    Attributes:
        endpoint: the address of the daemon that owns the session, `tcp://host:port` or
            `ipc:///path`, if the daemon that replied knows it.

    Example:
        >>> try:
        ...     session = await client.open("talk")
        ... except steno.Held as error:
        ...     print("the other daemon:", error.endpoint, error.message)
    """

    code: ErrorCode | None = ErrorCode.HELD

    def __init__(
        self,
        message: str,
        *,
        session: str | None = None,
        head: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        super().__init__(message, session=session, head=head)
        self.endpoint = endpoint


class TooLarge(Refused):
    """A record, batch, header or field is over its limit, or a quota is full.

    Example:
        >>> await session.append_message([{"role": "user", "content": "x"}] * 5000)
        Traceback (most recent call last):
        steno.TooLarge: the batch has 5000 messages, at most 4096 are allowed: send several batches
    """

    code: ErrorCode | None = ErrorCode.TOO_LARGE


class StorageFailed(Refused):
    """The disk failed, and the bytes of the command were removed again: make room, then repeat it.

    Example:
        >>> try:
        ...     ack = await session.append_message({"role": "user", "content": "more"})
        ... except steno.StorageFailed as error:
        ...     print("check the disk:", error.message)
    """

    code: ErrorCode | None = ErrorCode.STORAGE_FAILED


class Corrupt(Refused):
    """The session's files contradict each other; the message names the place.

    Example:
        >>> size = session.file_backend.with_name("state.json").write_text("{")
        >>> await session.describe(title="Plan A")
        Traceback (most recent call last):
        steno.Corrupt: .../state.json is damaged ...
    """

    code: ErrorCode | None = ErrorCode.CORRUPT


class Incompatible(Refused):
    """Client and daemon speak different versions: `steno restart`, or update the client.

    Attributes:
        protocol: the protocol version of the daemon, in its own refusal of another one.

    Example:
        >>> try:
        ...     status = await client.status()
        ... except steno.Incompatible:
        ...     print("restart the daemon with `steno restart`")
    """

    code: ErrorCode | None = ErrorCode.INCOMPATIBLE

    def __init__(
        self,
        message: str,
        *,
        session: str | None = None,
        head: str | None = None,
        protocol: int | None = None,
    ) -> None:
        super().__init__(message, session=session, head=head)
        self.protocol = protocol


class Unauthorized(Refused):
    """The client lacks the right for this command, or a key file is readable by other users.

    Example:
        >>> key_file = session.file_backend.with_name("laptop.key")
        >>> key_file.touch(0o644)
        >>> steno.connect_sync(endpoint="tcp://127.0.0.1:7117", key_file=key_file)
        Traceback (most recent call last):
        steno.Unauthorized: other users may read .../laptop.key: run `chmod 600 ...
    """

    code: ErrorCode | None = ErrorCode.UNAUTHORIZED


class ShuttingDown(Refused):
    """The daemon is draining; the next daemon takes the command, so repeat it.

    Example:
        >>> try:
        ...     ack = await session.append_message({"role": "user", "content": "more"})
        ... except steno.ShuttingDown:
        ...     ack = await session.append_message({"role": "user", "content": "more"})
    """

    code: ErrorCode | None = ErrorCode.SHUTTING_DOWN


class Internal(Refused):
    """A bug in steno: please report it with the daemon's log (`steno logs`).

    Example:
        >>> try:
        ...     ack = await session.append_message({"role": "user", "content": "more"})
        ... except steno.Internal as error:
        ...     print("please report:", error.message)
    """

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
    endpoint: str | None = None,
) -> StenoError:
    """Return the exception for an error reply, of the type that the daemon raised."""
    if outcome is Outcome.UNKNOWN:
        return OutcomeUnknown(message, session=session, head=head, code=code, key=key)
    if code is ErrorCode.HELD:
        return Held(message, session=session, head=head, endpoint=endpoint)
    return REFUSALS[code](message, session=session, head=head)
