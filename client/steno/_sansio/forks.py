"""Commands for forks, renames, descriptions and deletions."""

from collections.abc import Sequence
from pathlib import PurePath
from zlib import crc32

from steno._sansio.argument_checks import given_labels, given_number
from steno._sansio.checkpoints import CheckpointLike, target_of
from steno._sansio.requests import PositionLike, new_key, position_text
from steno_protocol import limits
from steno_protocol.commands import Delete, Describe, Fork, Rename, Undelete
from steno_protocol.errors import BadRequest
from steno_protocol.paths import check_key

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
        key=_key(key),
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
    key = _key(key)
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


def delete_command(session: str, by: str, key: str | None) -> Delete:
    """Make the command that moves a session to the trash."""
    return Delete(session=session, key=_key(key), by=by)


def rename_command(session: str, by: str, new_session: str, key: str | None) -> Rename:
    """Make the command that gives a session another id."""
    return Rename(session=session, new_session=new_session, key=_key(key), by=by)


def undelete_command(session: str, trash: str | None, key: str | None) -> Undelete:
    """Make the command that restores a session from the trash; a path counts by its last part."""
    name = None if trash is None else PurePath(trash).name
    return Undelete(session=session, trash=name, key=_key(key))


def _key(key: str | None) -> str:
    return new_key() if key is None else check_key(key)
