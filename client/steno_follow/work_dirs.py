"""The work directories of imported sessions, stored for `steno sessions`.

    sessions/kimi/kimi.json           the work directories of the sessions below it
    sessions/kimi/<hash>/<uuid>/      an imported session

The path, the machine and the last session of each work directory with an imported session come
from the `kimi.json` of kimi-cli; its other entries are not copied.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from steno.local import read_regular, sync_folder
from steno_follow.aside import new_file
from steno_follow.session_folders import ImportSource
from steno_protocol import paths
from steno_protocol.work_dirs import (
    KIMI_FILE,
    WorkDir,
    decode_work_dirs,
    encode_work_dirs,
    merged_work_dirs,
)

_FOLDERS_ABOVE_MAX: Final = 3
"""From a session's folder to that of kimi-cli: work directory, `sessions`, `~/.kimi`."""


def note_work_dirs(source: Path, imported: Iterable[ImportSource], tree: Path, aside: Path) -> None:
    """Note the work directories of imported sessions; durable on return.

    Args:
        source: the folder of the import.
        imported: the sessions that were imported.
        tree: the root's tree of sessions.
        aside: a folder of the same file system for unfinished files.

    Raises:
        OSError: a file cannot be written; the sessions stay imported.
    """
    known = _read_above(source)
    noted: dict[Path, dict[str, WorkDir]] = {}
    for source_session in imported if known else ():
        _, segments = paths.split_session(source_session.session)
        for depth, segment in enumerate(segments[:-1]):
            if segment in known:
                noted.setdefault(tree.joinpath(*segments[:depth]), {})[segment] = known[segment]
    for folder, work_dirs in noted.items():
        _note(folder / KIMI_FILE, work_dirs, aside)


def _read_above(source: Path) -> dict[str, WorkDir]:
    """The content of the nearest `kimi.json` in a folder or above it."""
    resolved = source.resolve()
    for folder in (resolved, *resolved.parents[:_FOLDERS_ABOVE_MAX]):
        try:
            return decode_work_dirs(read_regular(folder / KIMI_FILE))
        except OSError:
            continue
    return {}


def _note(path: Path, work_dirs: dict[str, WorkDir], aside: Path) -> None:
    try:
        old = decode_work_dirs(read_regular(path))
    except FileNotFoundError:
        old = {}
    merged = merged_work_dirs(old, work_dirs)
    if merged == old:
        return
    unfinished = aside / KIMI_FILE
    with new_file(unfinished) as file:
        file.write(encode_work_dirs(merged.values()))
    unfinished.replace(path)
    sync_folder(path.parent)
