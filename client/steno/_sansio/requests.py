"""A client's requests: keys, commands and headers, checked before sending.

The daemon closes the connection at a frame over its limit, without an error. So the client checks
every size here, where the caller gets the error.
"""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard, TypeVar, cast
from zlib import crc32

import msgspec

from steno._sansio.argument_checks import briefly, given_count, given_labels, given_number
from steno._sansio.messages import Message, encode_messages
from steno._sansio.pending import Pending
from steno.values import Ack, Checkpoint
from steno_protocol import limits, replies
from steno_protocol.commands import (
    Command,
    Describe,
    Fork,
    Mutation,
    Open,
    command_name,
)
from steno_protocol.errors import BadRequest, Incompatible, OutcomeUnknown, StenoError, TooLarge
from steno_protocol.paths import check_key, key_time_ms
from steno_protocol.positions import Position

CheckpointLike = int | str | Checkpoint
"""A checkpoint: its id, the result of `checkpoint`, or that result's `handle`."""

HANDLE_PATTERN: Final = r"^[0-9]{1,16}(@[0-9]+:[0-9]+@[0-9A-Za-z-]{1,64})?$"
"""The form of a handle's text."""

_HANDLE: Final = re.compile(HANDLE_PATTERN, re.ASCII)


class Target(msgspec.Struct, frozen=True):
    """A checkpoint in a command; the fields have the names of the protocol.

    Attributes:
        checkpoint_id: its id.
        checkpoint_at: the position at which its line was created; None accepts any line.
        incarnation: the incarnation of the session that the position belongs to.
    """

    checkpoint_id: int
    checkpoint_at: Position | None = None
    incarnation: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a command."""
        at = None if self.checkpoint_at is None else str(self.checkpoint_at)
        return {**msgspec.structs.asdict(self), "checkpoint_at": at}


def target_of(checkpoint: CheckpointLike) -> Target:
    """Return the checkpoint that a caller names.

    Raises:
        BadRequest: it is neither an id nor a checkpoint nor a handle.
    """
    match checkpoint:
        case Checkpoint():
            return target_of(checkpoint.handle)
        case int():
            return Target(checkpoint)
        case str() if _HANDLE.match(checkpoint):
            number, *bound = checkpoint.split("@")
            if not bound:
                return Target(int(number))
            return Target(int(number), Position.parse(bound[0]), bound[1])
        case _:
            raise BadRequest(
                f"checkpoint_id is {briefly(checkpoint)}: give the id of a checkpoint, or what"
                " `checkpoint` returned, or the `handle` of that"
            )


def reverted(target: CheckpointLike | Position) -> dict[str, Any]:
    """Return the fields of a command that reverts to a checkpoint or a position.

    Raises:
        BadRequest: it is neither.
    """
    return {"position": str(target)} if isinstance(target, Position) else target_of(target).fields()


def checkpoint_of(ack: Ack) -> Checkpoint:
    """Return the ack of a command that set a checkpoint.

    Raises:
        Incompatible: the daemon's reply has no checkpoint.
    """
    if isinstance(ack, Checkpoint):
        return ack
    if ack.checkpoint_id is None:
        raise Incompatible(
            "the daemon's reply has no checkpoint: restart it, so that both are of one version"
        )
    # A daemon of an earlier version, or the repeat of a command that such a daemon applied.
    known = msgspec.structs.asdict(ack)
    return Checkpoint(**known, id=ack.checkpoint_id, at=ack.first, incarnation="")


Durability = Literal["synced", "written", "replicated"]
"""`synced`: on the disk. `written`: in the page cache. `replicated`: on a cluster's majority."""

PositionLike = Position | str
"""A position, or its text."""

ReplyT = TypeVar("ReplyT", bound=replies.Reply)
MutationT = TypeVar("MutationT", bound=Mutation)

_LATER_BYTES: Final = 64
"""Room in a header for the fields that are added when it is sent: the deadline, and `repeat`."""

_KEYS_TOGETHER: Final = 64
"""Keys whose random bits are drawn at once: a system call costs more than making a key."""

_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""For 4 random bits the digit that has 2 of them behind the variant's, which are 10."""

_encode = msgspec.json.Encoder().encode

_key_ends: Final[list[str]] = []
# Otherwise a child process would use the same ends as its parent.
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_key_ends.clear)

# --- keys and commands ----------------------------------------------------------------------------


def new_key() -> str:
    """A fresh key: 36 characters, 48 bits of milliseconds and 74 random bits.

    Source: RFC 9562, section 5.7.
    """
    try:
        # One step, so that two threads never get the same.
        end = _key_ends.pop()
    except IndexError:
        end, *more = _draw_key_ends()
        _key_ends.extend(more)
    start = f"{time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF:012x}"
    return f"{start[:8]}-{start[8:]}-{end}"


def _draw_key_ends() -> list[str]:
    """The part after the milliseconds, for `_KEYS_TOGETHER` keys."""
    drawn = os.urandom(10 * _KEYS_TOGETHER).hex()
    pieces = [drawn[start : start + 20] for start in range(0, len(drawn), 20)]
    return [f"7{each[:3]}-{_VARIANT[each[3]]}{each[4:7]}-{each[7:19]}" for each in pieces]


def given_key(key: str | None) -> str:
    """A caller's key, or a fresh one; raise BadRequest when it is no key."""
    return new_key() if key is None else check_key(key)


def page_size(limit: int | None, listed: int, least: int = 1) -> int:
    """The sessions to ask for when `listed` of at most `limit` are there already."""
    if limit is None:
        return limits.LIST_PAGE_SESSIONS_MAX
    return min(limits.LIST_PAGE_SESSIONS_MAX, given_count(limit, "limit", least) - listed)


def encode_records(records: Message | Sequence[Message], what: str = "message") -> list[bytes]:
    """The records of one append, as bytes; see `encode_messages`, which explains what it refuses.

    Nearly every append is one dict of texts, which JSON holds without loss.
    """
    if _is_of_texts(records):
        try:
            data = _encode(records)
        except UnicodeEncodeError:
            return encode_messages(records, what)
        if len(data) <= limits.RECORD_BYTES_MAX:
            return [data]
    return encode_messages(records, what)


def _is_of_texts(value: Any) -> TypeGuard[dict[str, str]]:
    if value.__class__ is not dict:
        return False
    # A loop, because `all` of a generator takes three times as long.
    for key, text in value.items():
        if text.__class__ is not str or key.__class__ is not str:
            return False
    return True


def mutation(
    kind: type[MutationT],
    session: str,
    by: str,
    key: str | None,
    expect: PositionLike | None,
    durability: Durability,
    **fields: Any,
) -> MutationT:
    """Make a command that changes a session.

    Raises:
        BadRequest: the key is no key, or `expect` is no position.
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
    """Make the command that opens a session; without a key it gets a new one.

    Raises:
        BadRequest: the key is no key.
    """
    return Open(
        session=session, create=create, exclusive=exclusive, stamp=stamp, by=by, key=given_key(key)
    )


def position_text(position: PositionLike) -> str:
    """Return the text of a position; raise BadRequest when it is no position."""
    # A Position can hold any numbers, and a subclass of str can have another text.
    return str(Position.parse(str(position) if isinstance(position, Position) else position))


# --- headers --------------------------------------------------------------------------------------


def encode_header(command: Command) -> bytes:
    """Encode a command as the header of its request.

    Raises:
        BadRequest: JSON has no value for a field, or UTF-8 cannot encode its text.
        TooLarge: the header is over its limit.
    """
    # The encoder would write bytes as Base64, which the caller did not mean.
    values = msgspec.structs.astuple(command)
    kinds = [*map(type, values)]
    if bytes in kinds or (tuple in kinds and any(map(_has_bytes, values))):
        raise BadRequest(f"{command_name(command)!r} takes text, and was given bytes: decode them")
    try:
        header = _encode(command)
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadRequest(
            f"the command {command_name(command)!r} cannot be written as JSON: {error}"
        ) from None
    except (TypeError, ValueError, RecursionError):
        raise BadRequest(
            f"the command {command_name(command)!r} cannot be written as JSON"
            f" ({_odd_fields(command)}): give texts, numbers and lists of them"
        ) from None
    if len(header) > limits.HEADER_BYTES_MAX - _LATER_BYTES:
        raise TooLarge(
            f"the header of {command_name(command)!r} has {len(header)} bytes, at most"
            f" {limits.HEADER_BYTES_MAX} are allowed: shorten its longest field"
        )
    return header


def _has_bytes(value: object) -> bool:
    return isinstance(value, tuple) and bytes in map(type, cast("tuple[object, ...]", value))


def _odd_fields(command: Command) -> str:
    """The fields that JSON has no value for, with their values."""
    parts: list[str] = []
    for name, value in msgspec.structs.asdict(command).items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError):
            parts.append(f"{name} is {briefly(value)}")
    return "; ".join(parts)


# --- replies --------------------------------------------------------------------------------------


def ack_of(reply: replies.Ack, key: str) -> Ack:
    """Convert the daemon's ack to the caller's value."""
    first = Position.parse(reply.first)
    last = first if reply.last == reply.first else Position.parse(reply.last)
    ack = Ack(
        first=first,
        last=last,
        head=last if reply.head == reply.last else Position.parse(reply.head),
        durability=reply.durability,
        duplicate=reply.duplicate,
        checkpoint_id=reply.checkpoint_id,
        rotated=Path(reply.rotated) if reply.rotated is not None else None,
        overtaken=reply.overtaken,
        key=key,
    )
    if reply.checkpoint_id is None or reply.checkpoint_at is None:
        return ack
    return Checkpoint(
        **msgspec.structs.asdict(ack),
        id=reply.checkpoint_id,
        at=Position.parse(reply.checkpoint_at),
        incarnation=reply.incarnation or "",
    )


def result_of(pending: Pending, kind: type[ReplyT]) -> tuple[ReplyT, bytes]:
    """Return the reply to a finished request, which has to be of this kind, and its block.

    Raises:
        StenoError: the request ended with this error.
        Incompatible: the reply is of another kind.
    """
    if pending.error is not None:
        raise pending.error
    if not isinstance(pending.reply, kind):
        raise Incompatible(
            f"the daemon answered with {type(pending.reply).__name__}, not {kind.__name__}: restart"
            " it, so that both are of one version"
        )
    return pending.reply, pending.block


def not_contained(command: Mutation, ack: replies.Ack) -> OutcomeUnknown:
    """The error of an acknowledged change whose event did not reach the mirror in time."""
    return OutcomeUnknown(
        f"it was acknowledged as {ack.durability} up to {ack.head}, but has not come back: it may"
        f" have been withdrawn; repeat it with the key {command.key}",
        session=command.session,
        key=command.key,
    )


def made_unfollowed(error: StenoError, session: str, key: str | None) -> StenoError:
    """The error of a call that made a session and could not follow it.

    Args:
        error: why the session is not followed.
        session: the id of the new session.
        key: the idempotency key of the call.
    """
    return OutcomeUnknown(
        f"the session was made, and cannot be followed now ({error.message}): repeat it with the"
        f" key {key}, or open the session with follow=False",
        session=session,
        head=error.head,
        code=error.code,
        key=key,
    )


_SUFFIX_CHARS = len("-undo-") + 8


def fork_command(
    session: str,
    by: str,
    new_session: str,
    at: PositionLike | None,
    checkpoint: CheckpointLike | None,
    turn: int | None,
    title: str | None,
    key: str | None,
) -> Fork:
    """Make the command that forks a session at one instant.

    Raises:
        BadRequest: more than one instant is given, `at` is no position, or `checkpoint` is none.
    """
    if at == "now":
        at = None
    if sum(given is not None for given in (at, checkpoint, turn)) > 1:
        raise BadRequest(
            "a fork is at one instant: give at, checkpoint or turn, or none of them for now",
            session=session,
        )
    return Fork(
        session=session,
        new_session=new_session,
        key=given_key(key),
        at=None if at is None else position_text(at),
        turn=turn,
        title=title,
        by=by,
        **({} if checkpoint is None else target_of(checkpoint).fields()),
    )


def undo_command(
    session: str, by: str, turns: int, new_session: str | None, title: str | None, key: str | None
) -> Fork:
    """Make the command that forks a session before its last turns.

    Raises:
        BadRequest: there is nothing to undo.
    """
    if given_number(turns, "turns") < 1:
        raise BadRequest(
            f"{turns} turns cannot be undone: give 1 for the last turn, 2 for the last two",
            session=session,
        )
    key = given_key(key)
    name = undo_name(session, key) if new_session is None else new_session
    return Fork(session=session, new_session=name, key=key, undo=turns, title=title, by=by)


def undo_name(session: str, key: str) -> str:
    """Return the default session id of an undo; a repeat with the same key gets the same id.

    >>> undo_name("team/planner", "k1")
    'team/planner-undo-72b8f9d8'
    """
    folder, slash, name = session.rpartition("/")
    longest = min(
        limits.SESSION_SEGMENT_CHARS_MAX,
        limits.SESSION_ID_CHARS_MAX - len(folder) - len(slash),
    )
    return f"{folder}{slash}{name[: longest - _SUFFIX_CHARS]}-undo-{crc32(key.encode()):08x}"


def describe_command(
    session: str,
    title: str | None,
    labels: Sequence[str] | None,
    archived: bool | None,
    *,
    replace_damaged: bool,
) -> Describe:
    """Make the command that sets title, labels and archived mark of a session.

    Raises:
        BadRequest: there is nothing to set, or the labels are no list.
    """
    if title is None and labels is None and archived is None and not replace_damaged:
        raise BadRequest("give a title, labels or archived: there is nothing to set")
    return Describe(
        session=session,
        title=title,
        labels=None if labels is None else given_labels(labels),
        archived=archived,
        replace_damaged=replace_damaged,
    )
