"""Checkpoints as callers name them: an id, an acknowledged checkpoint, or its handle as text.

3@0:2@8f2c51d0a7b3e946        checkpoint 3, created at 0:2 of this incarnation
3                             checkpoint 3, whatever line has this id
"""

import re
from typing import Any, Final

import msgspec

from steno._sansio.argument_checks import briefly
from steno.values import Ack, Checkpoint
from steno_protocol.errors import BadRequest, Incompatible
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
