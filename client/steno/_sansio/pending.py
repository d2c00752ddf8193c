"""Requests under way: the copies, deadline and result of each, and a bound for slow ones."""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

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
    Rename,
    SessionCommand,
    TakeIn,
    Undelete,
    command_name,
)
from steno_protocol.errors import Busy, ErrorCode, Held, OutcomeUnknown, StenoError, Unreachable
from steno_protocol.replies import AnyReply, ErrorReply

if TYPE_CHECKING:
    from steno._sansio.route import Route


RETRIED: Final = frozenset({ErrorCode.BUSY, ErrorCode.SHUTTING_DOWN, ErrorCode.EXPIRED})
"""Refusals after which a later attempt may succeed."""


class Pending(msgspec.Struct, eq=False):
    """One request and its result.

    Attributes:
        id: the request id.
        command: without the deadline, which is set anew for each copy.
        records: of the command, each on one line.
        timeout_s: seconds that the request may take.
        deadline: when it ends without an answer, on the clock of the exchange.
        size: bytes of its records, and of the lines that it asks for.
        is_slow: the daemon looks at files for it, so few of its kind are under way at a time.
        wake: called once it is done; None while nothing sleeps until then.
        due: when it is sent again unless an answer came.
        interval_s: how long the next copy waits for its answer.
        backoff_s: the pause before it is sent again after a refusal.
        asked_bytes: bytes that were asked on the connection up to its last copy.
        copies: how often it is under way on the present connection.
        uncertain: the reply to a sent copy will never arrive, so it may have been applied.
        refusal: a refusal that is not final, because a copy is under way or it will be sent again.
        reply: the result, with `block`; None until it is done, and after an error.
        error: the error that it ended with.
        route: its way through the daemons of a cluster; None: it never left the home daemon.
    """

    id: bytes
    command: Command
    records: Sequence[bytes]
    timeout_s: float
    deadline: float
    size: int = 0
    is_slow: bool = False
    wake: Callable[[], None] | None = None
    due: float = inf
    interval_s: float = limits.RESEND_S
    backoff_s: float = limits.BUSY_RETRY_S
    asked_bytes: int = 0
    copies: int = 0
    uncertain: bool = False
    refusal: StenoError | None = None
    reply: AnyReply | None = None
    block: bytes = b""
    error: StenoError | None = None
    route: "Route | None" = None

    @property
    def is_done(self) -> bool:
        """True once there is a reply or an error."""
        return self.reply is not None or self.error is not None

    @property
    def key(self) -> str | None:
        """The idempotency key of a command that changes something."""
        match self.command:
            case (
                Mutation() | Fork() | Rename() | Delete() | Undelete() | TakeIn() | Open()
            ) as keyed:  # fmt: skip
                return keyed.key
            case _:
                return None

    @property
    def session(self) -> str | None:
        """The session of the command, if it has one."""
        return self.command.session if isinstance(self.command, SessionCommand) else None

    def may_be_applied(self) -> bool:
        """True when a copy has been sent and not been refused."""
        return self.copies > 0 or self.uncertain

    def outcome(self, error: StenoError) -> StenoError:
        """`error`, or OutcomeUnknown if the command may have been applied."""
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
        """The error at the deadline; `trouble` is why there is no connection."""
        if self.refusal is not None and not self.may_be_applied():
            return self.refusal
        if self.route is not None and self.route.named is not None:
            return self.outcome(
                Held(self.route.unanswered(), session=self.session, endpoint=self.route.named)
            )
        because = f" ({trouble})" if trouble else ""
        return self.outcome(
            Unreachable(
                f"no answer to {command_name(self.command)!r} within {self.timeout_s:g} s{because}:"
                " see `steno status` and the daemon's log",
                session=self.session,
            )
        )

    def is_retried_after(self, code: ErrorCode) -> bool:
        """Whether it is sent again after a refusal of this kind."""
        # Another compaction may take minutes: the caller decides whether to wait for it.
        is_for_caller = code is ErrorCode.BUSY and isinstance(self.command, CompactBegin)
        return code in RETRIED and not is_for_caller

    def refused(self, reply: ErrorReply) -> StenoError:
        """The error after a final refusal."""
        if reply.code is ErrorCode.EXISTS and self.uncertain and self.key is None:
            return OutcomeUnknown(
                f"{reply.message}; this very call may have made it, its first answer was lost",
                session=reply.session,
                code=reply.code,
            )
        return reply.exception(self.key)


def _changes_something(command: Command) -> bool:
    """True when the command can change anything."""
    match command:
        case Open():
            return command.create
        case Gc():
            return not command.dry_run
        case _:
            return isinstance(
                command,
                Mutation | Fork | Rename | Delete | Undelete | TakeIn | Describe
                | CompactBegin | CompactAbort | Drain,
            )  # fmt: skip


class SlowRequests:
    """Admitted slow requests, and those that wait for their answers.

    `forget_all` repairs what an interrupt left half-done.

    Attributes:
        waiting: by their ids, the oldest first.
    """

    def __init__(self) -> None:
        self._under_way: set[bytes] = set()
        self.waiting: dict[bytes, Pending] = {}

    def admits(self, pending: Pending) -> bool:
        """Whether a slow request may be sent now; if not, `next` returns it once it may."""
        if pending.id in self._under_way:
            return True
        if not self.waiting and len(self._under_way) < limits.CLIENT_LOOKUPS_MAX:
            self._under_way.add(pending.id)
            return True
        self.waiting[pending.id] = pending
        pending.refusal = Busy(
            f"{limits.CLIENT_LOOKUPS_MAX} requests of this client, behind which this one waited,"
            " were not answered in time: ask for less at a time",
            session=pending.session,
        )
        return False

    def end(self, pending: Pending) -> None:
        """Make room for another request after this one has ended; safe in a finaliser."""
        self._under_way.discard(pending.id)

    def release(self, pending: Pending) -> None:
        """Forget a request that another daemon gets, whether it was sent or waits."""
        self._under_way.discard(pending.id)
        if self.waiting.pop(pending.id, None) is not None:
            pending.refusal = None

    def next(self) -> Pending | None:
        """The oldest waiting request, if one more may be sent; it is admitted until it ends."""
        if not self.waiting or len(self._under_way) >= limits.CLIENT_LOOKUPS_MAX:
            return None
        pending = self.waiting.pop(next(iter(self.waiting)))
        self._under_way.add(pending.id)
        return pending

    def forget_all(self) -> None:
        """Admit all requests anew: the connection has ended, and none is under way."""
        for pending in self.waiting.values():
            # It waits for a connection now, and no longer for other requests.
            pending.refusal = None
        self._under_way.clear()
        self.waiting.clear()
