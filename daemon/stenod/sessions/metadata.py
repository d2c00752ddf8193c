"""What people know a session by: title, labels and archive, kept in its `state.json`.

    {"version":1,"custom_title":"a title","archived":true,"archived_at":1764000000.5,
     "labels":["review"],"forked_from":"team/planner-1"}

The names are kimi-cli's where it has them; what else is in the file is kept byte for byte, since
it is other programs' too. Everything here blocks.
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
from stenod.store.handles import write_all
from stenod.store.names import remove

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Description(msgspec.Struct, frozen=True):
    """What a `state.json` says that steno knows of."""

    title: str = ""
    labels: tuple[str, ...] = ()
    archived: bool = False
    forked_from: str | None = None

    def fits(self, command: List) -> bool:
        """Whether a list that asks so shows the session."""
        if command.archived != "all" and self.archived != (command.archived == "only"):
            return False
        has_title = command.title.casefold() in self.title.casefold()
        return has_title and set(command.labels) <= set(self.labels)


NOTHING: Final = Description()


def read(disk: Disk, folder: int) -> Description:
    """What is known of a session; a damaged file says nothing."""
    try:
        state = _decode(_content(disk, folder))
    except (OSError, *_UNREADABLE):
        return NOTHING
    return _description(state) if is_object(state) else NOTHING


def change(disk: Disk, folder: int, command: Describe, path: str, now: float) -> None:
    """Set what a command names; durable on return, and in one instant.

    Raises:
        Corrupt: the file is damaged, and the command does not replace it; nothing was changed.
        OutcomeUnknown: the disk failed when it was changed.
        OSError: the disk failed; nothing was changed.
    """
    data = _content(disk, folder)
    is_archived = False
    try:
        state: dict[str, Any] = dict(_decode_parts(data)) if data else {"version": 1}
        is_archived = "archived" in state and _decode(state["archived"]) is True
    except _UNREADABLE as error:
        if not command.replace_damaged:
            raise Corrupt(
                f"{path}/{paths.STATE} is damaged ({error}), and nothing was changed: `steno"
                f" repair {command.session} --apply` (from Python: describe(replace_damaged=True))"
                " keeps it beside a new one; then describe the session again",
                session=command.session,
            ) from None
        _keep_damaged(disk, folder)
        state = {"version": 1}
    else:
        if data and not _names_something(command):
            return
    changed = {**state, **_changes(command, is_archived=is_archived, now=now)}
    # What kimi-cli takes for its default need not be there.
    _write(disk, folder, {name: value for name, value in changed.items() if value is not None})
    try:
        disk.rename(folder, paths.STATE_NEW, paths.STATE)
        disk.fsync(folder)
    except OSError as error:
        raise OutcomeUnknown(
            f"the description may be changed, and the disk refused to keep it ({error}): describe"
            " the session again",
            session=command.session,
            code=ErrorCode.STORAGE_FAILED,
        ) from None


def save(disk: Disk, folder: int, state: Mapping[str, Any]) -> None:
    """Give a new session its `state.json`; durable once the folder is synced."""
    _write(disk, folder, state)
    disk.rename(folder, paths.STATE_NEW, paths.STATE)


def _names_something(command: Describe) -> bool:
    return (command.title, command.labels, command.archived) != (None, None, None)


def _keep_damaged(disk: Disk, folder: int) -> None:
    """Give a damaged file a second name, on the disk before its first one gets a new file.

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
        # Also where it has the name already: a repair that died may not have synced it.
        disk.fsync(folder)
        return
    raise OSError(
        errno.EEXIST,
        f"{limits.DAMAGED_STATES_MAX} damaged ones were kept before: remove those that nobody"
        " needs",
        paths.damaged_state_file(1),
    )


def _write(disk: Disk, folder: int, state: Mapping[str, Any]) -> None:
    """Write a session's next `state.json` beside the one that is there, synced."""
    remove(disk, folder, paths.STATE_NEW)
    handle = disk.open_new(folder, paths.STATE_NEW)
    try:
        write_all(disk, handle, _encode(state) + b"\n")
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _content(disk: Disk, folder: int) -> bytes:
    """The file's bytes, none if there is none; one that is too large is read as damaged."""
    try:
        handle = disk.open_read(folder, paths.STATE)
    except FileNotFoundError:
        return b""
    try:
        return disk.read(handle, limits.STATE_BYTES_MAX, 0)
    finally:
        disk.close(handle)


def _changes(command: Describe, *, is_archived: bool, now: float) -> dict[str, Any]:
    """The keys that a command changes; None is for one that goes away."""
    changes: dict[str, Any] = {}
    if command.title is not None:
        # The other flag keeps kimi-cli from making a title of its own.
        changes["custom_title"] = command.title or None
        changes["title_generated"] = True if command.title else None
    if command.labels is not None:
        changes["labels"] = tuple(dict.fromkeys(command.labels)) or None
    if command.archived is not None and command.archived != is_archived:
        changes["archived"] = command.archived
        changes["archived_at"] = now if command.archived else None
        # A user who unarchives a session does not want kimi-cli to archive it again.
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
