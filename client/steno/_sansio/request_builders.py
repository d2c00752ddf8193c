"""The commands that both clients send, and the replies that they accept."""

from typing import Any, Literal, TypeVar

from steno._sansio.keys import new_key
from steno.values import Ack, File
from steno_protocol import limits
from steno_protocol.commands import Fork, Mutation, Open
from steno_protocol.errors import BadRequest, Incompatible, OutcomeUnknown, StenoError
from steno_protocol.paths import check_key, key_time_ms
from steno_protocol.positions import Position
from steno_protocol.replies import AnyReply, Reply, SessionStat

Durability = Literal["synced", "written"]
PositionLike = Position | str
"""A position, or its text."""

Followed = Literal["context", "wire", "both"]
"""Which of a session's files a subscription is to."""

ReplyT = TypeVar("ReplyT", bound=Reply)
MutationT = TypeVar("MutationT", bound=Mutation)


def mutation(
    kind: type[MutationT],
    session: str,
    by: str,
    key: str | None,
    expect: PositionLike | None,
    durability: Durability,
    **fields: Any,
) -> MutationT:
    """A command that changes a session.

    Raises:
        BadRequest: the key or the position cannot be one.
    """
    return kind(
        session=session,
        key=new_key() if key is None else check_key(key),
        # A key that looks fresh by its shape may still be one that the caller used before.
        repeat=key is not None and key_time_ms(key) is not None,
        expect=None if expect is None else position_text(expect),
        durability=durability,
        by=by,
        **fields,
    )


def opening(
    session: str,
    by: str,
    key: str | None,
    *,
    create: bool = True,
    exclusive: bool = False,
    stamp: bool = True,
) -> Open:
    """The command that opens a session; without a key it gets a new one.

    Raises:
        BadRequest: the key cannot be one.
    """
    key = new_key() if key is None else check_key(key)
    return Open(session=session, create=create, exclusive=exclusive, stamp=stamp, by=by, key=key)


def position_text(position: PositionLike) -> str:
    """The text of a position; raises BadRequest when it is none."""
    # A Position can hold any numbers, and the text of a str of one's own can be another one.
    return str(Position.parse(str(position) if isinstance(position, Position) else position))


def seconds(timeout: object) -> float:
    """The `timeout` of a client in seconds; raises BadRequest when it is out of range."""
    # Of what is no number, or not finite, the clocks would complain in the middle of a call.
    if isinstance(timeout, int | float) and 0 <= timeout <= limits.REQUEST_TIMEOUT_S_MAX:
        return float(timeout)
    raise BadRequest(
        f"the timeout {timeout!r:.80} is no number of seconds that a request can take: give one"
        f" from 0 to {limits.REQUEST_TIMEOUT_S_MAX:g}, or leave it out for"
        f" {limits.REQUEST_TIMEOUT_S:g}"
    )


def expected(reply: AnyReply, kind: type[ReplyT]) -> ReplyT:
    """`reply`, which has to be of this kind; raises Incompatible when it is not."""
    if isinstance(reply, kind):
        return reply
    raise Incompatible(
        f"the daemon answered with {type(reply).__name__}, not {kind.__name__}: restart it, so that"
        " both are of one version"
    )


def start_of(after: PositionLike) -> str:
    """The `after` of a subscription: `start`, `now`, or the text of a position."""
    return after if after in ("start", "now") and isinstance(after, str) else position_text(after)


def starts_of(
    records: Followed, after: PositionLike, wire_after: PositionLike | None
) -> list[tuple[File, str]]:
    """Where a subscription begins in each of the files that it is to.

    Raises:
        BadRequest: what is given is no start, or a start in one file is missing.
    """
    match records:
        case "context":
            return [("context", start_of(after))]
        case "wire":
            return [("wire", start_of(after if wire_after is None else wire_after))]
        case "both":
            return [("context", start_of(after)), ("wire", _start_beside(after, wire_after))]
        case _:
            raise BadRequest(f"records is {records!r}: it has to be context, wire or both")


def _start_beside(after: PositionLike, wire_after: PositionLike | None) -> str:
    if wire_after is None and after not in ("start", "now"):
        raise BadRequest(
            f"{after} is a position of the context, and the wire file has positions of its own:"
            " give wire_after, too"
        )
    return start_of(after if wire_after is None else wire_after)


def not_contained(session: str, ack: Ack) -> OutcomeUnknown:
    """What is said when something acknowledged does not come back to the mirror."""
    return OutcomeUnknown(
        f"it was acknowledged as {ack.durability} up to {ack.head}, but has not come back: it may"
        f" have been withdrawn; repeat it with the key {ack.key}",
        session=session,
        key=ack.key,
    )


def _made_unfollowed(error: StenoError, session: str, remedy: str, key: str | None) -> StenoError:
    """What is said when a session was made by a call that could not follow it then.

    Args:
        error: why it is not followed.
        remedy: how the caller gets at what was made.
        key: names the making, when it has one.
    """
    return OutcomeUnknown(
        f"the session was made, and cannot be followed now ({error.message}): {remedy}",
        session=session,
        head=error.head,
        code=error.code,
        key=key,
    )


def open_unfollowed(error: StenoError, stat: SessionStat, key: str | None) -> StenoError:
    """What `open` ends with when the session is open and cannot be followed."""
    if not stat.created:
        return error
    if key is None:
        remedy = "open it again without exclusive, with follow=False if that is enough"
    else:
        remedy = f"repeat it with the key {key}, with follow=False if that is enough"
    return _made_unfollowed(error, stat.session, remedy, key)


def fork_unfollowed(error: StenoError, command: Fork) -> StenoError:
    """What a fork ends with when it is made and cannot be followed."""
    remedy = f"repeat it with the key {command.key}, or open the new session with follow=False"
    return _made_unfollowed(error, command.new_session, remedy, command.key)


def not_followed(session: str) -> BadRequest:
    """What is said when a mirror is asked for that was never made."""
    return BadRequest(
        "the session was opened with follow=False and has no history here: open it with"
        " follow=True, call restore(), or read it with records()",
        session=session,
    )
