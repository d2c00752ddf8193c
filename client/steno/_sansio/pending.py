"""One request on its way: how often it was sent, and what it may end with."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from steno_protocol import limits
from steno_protocol.commands import (
    Command,
    CompactAbort,
    CompactBegin,
    Delete,
    Describe,
    Drain,
    Fork,
    Gc,
    Mutation,
    Open,
    Read,
    SessionCommand,
    command_name,
)
from steno_protocol.errors import ErrorCode, OutcomeUnknown, StenoError, Unreachable
from steno_protocol.replies import AnyReply, ErrorReply

RETRIED: Final = frozenset({ErrorCode.BUSY, ErrorCode.SHUTTING_DOWN, ErrorCode.EXPIRED})
"""Refusals that a later try can turn into a yes."""


class Pending:
    """One request and what became of it.

    Attributes:
        size: bytes of its records, and of the lines that it asks for.
        asked_bytes: what was asked on the connection up to its last copy.
        copies: how often it is under way on the present connection.
        uncertain: the reply to a sent copy will never arrive, so it may have been applied.
        refusal: a refusal that is not final, because a copy is under way or it will be sent again.
    """

    __slots__ = (
        "asked_bytes", "backoff_s", "block", "command", "copies", "deadline", "due", "error", "id",
        "interval_s", "records", "refusal", "reply", "size", "timeout_s", "uncertain", "wake",
    )  # fmt: skip

    def __init__(
        self,
        request_id: bytes,
        command: Command,
        records: Sequence[bytes],
        wake: Callable[[], None],
        now: float,
        timeout_s: float,
    ) -> None:
        self.id = request_id
        self.command = command
        self.records = records
        self.size = sum(map(len, records))
        if isinstance(command, Read):
            self.size += command.bytes_max
        self.wake = wake
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.due = inf
        self.interval_s = limits.RESEND_S
        self.backoff_s = limits.BUSY_RETRY_S
        self.asked_bytes = 0
        self.copies = 0
        self.uncertain = False
        self.refusal: StenoError | None = None
        self.reply: AnyReply | None = None
        self.block = b""
        self.error: StenoError | None = None

    @property
    def is_done(self) -> bool:
        """True once there is a reply or an error."""
        return self.reply is not None or self.error is not None

    @property
    def key(self) -> str | None:
        """The idempotency key of a command that changes something."""
        return (
            self.command.key if isinstance(self.command, Mutation | Fork | Delete | Open) else None
        )

    @property
    def session(self) -> str | None:
        """The session that it is about, if it is about one."""
        return self.command.session if isinstance(self.command, SessionCommand) else None

    def result(self) -> tuple[AnyReply, bytes]:
        """The reply and its block of lines; raises what the request ended with."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply, self.block

    def may_be_applied(self) -> bool:
        """True when a copy has been sent and not been refused."""
        return self.copies > 0 or self.uncertain

    def outcome(self, error: StenoError) -> StenoError:
        """`error`, unless this changes something and may have been applied."""
        if not _changes_something(self.command) or not self.may_be_applied():
            return error
        repeat = "repeat it" if self.key is None else f"repeat it with the key {self.key}"
        return OutcomeUnknown(
            f"{error.message}; it may have been applied: {repeat}",
            session=self.session,
            code=error.code,
            key=self.key,
        )

    def timed_out(self, trouble: str | None) -> StenoError:
        """What it ends with at its deadline; `trouble` is why there is no connection."""
        if self.refusal is not None and not self.may_be_applied():
            return self.refusal
        because = f" ({trouble})" if trouble else ""
        return self.outcome(
            Unreachable(
                f"no answer to {command_name(self.command)!r} within {self.timeout_s:g} s{because}:"
                " see `steno status` and the daemon's log",
                session=self.session,
            )
        )

    def is_retried_after(self, code: ErrorCode) -> bool:
        """Whether it is sent again behind a refusal of this kind."""
        # Another compactor may be at it for minutes: to wait for it is for the caller to say.
        is_for_caller = code is ErrorCode.BUSY and isinstance(self.command, CompactBegin)
        return code in RETRIED and not is_for_caller

    def refused(self, reply: ErrorReply) -> StenoError:
        """What it ends with when it was refused for good."""
        if reply.code is ErrorCode.EXISTS and self.uncertain and self.key is None:
            return OutcomeUnknown(
                f"{reply.message}; this very call may have made it, its first answer was lost",
                session=reply.session,
                code=reply.code,
            )
        return reply.exception(self.key)


def _changes_something(command: Command) -> bool:
    """True unless nothing anywhere is different once it was carried out."""
    match command:
        case Open():
            return command.create
        case Gc():
            return not command.dry_run
        case _:
            return isinstance(
                command, Mutation | Fork | Delete | Describe | CompactBegin | CompactAbort | Drain
            )
