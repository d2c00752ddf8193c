"""Metadata of a session for people: title, labels and archive, in `state.json`.

    {"version":1,"custom_title":"a title","archived":true,"archived_at":1764000000.5,
     "labels":["review"],"forked_from":"team/planner-1"}

The names are kimi-cli's where it has them. Other fields belong to other programs, and are kept byte
for byte. Everything here blocks.
"""

import errno
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from steno_protocol import limits, paths
from steno_protocol._json import is_array, is_object
from steno_protocol.commands import Describe, List
from steno_protocol.errors import Corrupt, ErrorCode, OutcomeUnknown
from stenod.store.disk import Disk
from stenod.store.handles import write_new
from stenod.store.names import read_file, remove

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Description(msgspec.Struct, frozen=True):
    """The fields of a `state.json` that steno uses."""

    title: str = ""
    labels: tuple[str, ...] = ()
    archived: bool = False
    forked_from: str | None = None

    def fits(self, command: List) -> bool:
        """Whether the session matches the filters of a `list`."""
        if command.archived != "all" and self.archived != (command.archived == "only"):
            return False
        has_title = command.title.casefold() in self.title.casefold()
        return has_title and set(command.labels) <= set(self.labels)


NOTHING: Final = Description()


def read(disk: Disk, folder: int) -> Description:
    """Read a session's metadata; a damaged file counts as empty."""
    try:
        state = _decode(read_file(disk, folder, paths.STATE, limits.STATE_BYTES_MAX))
    except (OSError, *_UNREADABLE):
        return NOTHING
    return _description(state) if is_object(state) else NOTHING


def change(disk: Disk, folder: int, command: Describe, path: str, now: float) -> None:
    """Set the fields of a command atomically; durable on return.

    Raises:
        Corrupt: the file is damaged, and the command does not replace it; nothing was changed.
        OutcomeUnknown: the disk failed during the change.
        OSError: the disk failed; nothing was changed.
    """
    # A file that is too large reads as damaged.
    data = read_file(disk, folder, paths.STATE, limits.STATE_BYTES_MAX)
    is_archived = False
    try:
        state: dict[str, Any] = dict(_decode_parts(data)) if data else {"version": 1}
        is_archived = "archived" in state and _decode(state["archived"]) is True
    except _UNREADABLE as error:
        if not command.replace_damaged:
            raise Corrupt(
                f"{path}/{paths.STATE} is damaged ({error}), and nothing was changed: `steno"
                f" repair {command.session} --apply` (from Python: describe(replace_damaged=True))"
                " moves it aside; then describe the session again",
                session=command.session,
            ) from None
        _keep_damaged(disk, folder)
        state = {"version": 1}
    else:
        if data and (command.title, command.labels, command.archived) == (None, None, None):
            return
    changed = {**state, **_changes(command, is_archived=is_archived, now=now)}
    # A missing field has kimi-cli's default.
    _write(disk, folder, {name: value for name, value in changed.items() if value is not None})
    try:
        disk.rename(folder, paths.STATE_NEW, paths.STATE)
        disk.fsync(folder)
    except OSError as error:
        raise OutcomeUnknown(
            f"the description may be changed, and the disk failed to sync it ({error}): describe"
            " the session again",
            session=command.session,
            code=ErrorCode.STORAGE_FAILED,
        ) from None


def save(disk: Disk, folder: int, state: Mapping[str, Any]) -> None:
    """Give a new session its `state.json`; durable once the folder is synced."""
    _write(disk, folder, state)
    disk.rename(folder, paths.STATE_NEW, paths.STATE)


def _keep_damaged(disk: Disk, folder: int) -> None:
    """Give a damaged file a second name, synced before a new file replaces the first.

    A second name takes no room and copies nothing, however large the file is.
    """
    damaged = disk.stat_name(folder, paths.STATE)
    for number in range(1, limits.DAMAGED_STATES_MAX + 1):
        kept = paths.damaged_state_file(number)
        there = disk.stat_name(folder, kept)
        if there is None:
            disk.link(folder, paths.STATE, kept)
        elif damaged is None or there.inode != damaged.inode:
            continue
        # Even if the name exists: an interrupted repair may not have synced it.
        disk.fsync(folder)
        return
    raise OSError(
        errno.EEXIST,
        f"{limits.DAMAGED_STATES_MAX} damaged copies are kept already: remove those that are not"
        " needed",
        paths.damaged_state_file(1),
    )


def _write(disk: Disk, folder: int, state: Mapping[str, Any]) -> None:
    """Write a session's next `state.json` beside the present one, and sync it."""
    remove(disk, folder, paths.STATE_NEW)
    write_new(disk, folder, paths.STATE_NEW, _encode(state) + b"\n")


def _changes(command: Describe, *, is_archived: bool, now: float) -> dict[str, Any]:
    """Return the fields that a command changes; None removes a field."""
    changes: dict[str, Any] = {}
    if command.title is not None:
        # `title_generated` keeps kimi-cli from generating a title.
        changes["custom_title"] = command.title or None
        changes["title_generated"] = True if command.title else None
    if command.labels is not None:
        changes["labels"] = tuple(dict.fromkeys(command.labels)) or None
    if command.archived is not None and command.archived != is_archived:
        changes["archived"] = command.archived
        changes["archived_at"] = now if command.archived else None
        # kimi-cli must not archive a session again that the user has unarchived.
        changes["auto_archive_exempt"] = not command.archived
    return changes


def _description(state: dict[str, Any]) -> Description:
    title, labels = state.get("custom_title"), state.get("labels")
    forked_from = state.get("forked_from")
    return Description(
        title=title if isinstance(title, str) else "",
        labels=tuple(each for each in labels if isinstance(each, str)) if is_array(labels) else (),
        archived=state.get("archived") is True,
        forked_from=forked_from if isinstance(forked_from, str) else None,
    )
