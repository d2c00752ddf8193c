"""The indexes in which programs keep the names of their sessions, and what changes in them.

Codex appends a line to `session_index.jsonl` when a thread gets a name; the file of the thread need
not change.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePath
from typing import Final

from steno_agents.detection import FORMATS
from steno_agents.json_lines import lenient_object
from steno_agents.transcript import Index
from steno_follow.limits import INDEX_BYTES_MAX
from steno_follow.source_tree import SourceTree
from steno_protocol.errors import StenoError

_ABOVE_MAX: Final = 5
"""From a rollout's folder to that of Codex: day, month, year, `sessions`, `~/.codex`."""


def indexes_above(folder: Path, index: Index) -> Iterator[Path]:
    """Return where the index of the sessions in a folder may be, the nearest place first."""
    return (each / index.file for each in (folder, *folder.parents[:_ABOVE_MAX]))


def names_in(path: Path, index: Index) -> dict[str, str]:
    """Return the names by session, the last one of each.

    Raises:
        OSError: the file cannot be read.
        StenoError: it is no regular file.
    """
    with closing(SourceTree(path.parent)) as folder, folder.open(PurePath(path.name)) as file:
        lines = file.read(INDEX_BYTES_MAX).splitlines()
    entries = [lenient_object(line) or {} for line in lines]
    return {
        session: name
        for each in entries
        if isinstance(session := each.get(index.session), str)
        and isinstance(name := each.get(index.title), str)
    }


class IndexWatch:
    """Looks at indexes again and again."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, str]] = {}
        self._shapes: dict[Path, tuple[int, int, int]] = {}

    def changed(self, folders: Iterable[Path]) -> dict[str, str]:
        """Return the names that are new since the last look, by the identities of the files."""
        found: dict[str, str] = {}
        for folder in folders:
            for kind in FORMATS:
                if kind.index is not None:
                    for path in indexes_above(folder, kind.index):
                        new = self._changed_in(path, kind.index)
                        found.update({f"{kind.stream}/{each}": new[each] for each in new})
        return found

    def _changed_in(self, path: Path, index: Index) -> dict[str, str]:
        # A file that is absent, or cannot be read, gives no name.
        with suppress(OSError, StenoError):
            stat = os.lstat(path)
            shape = stat.st_ino, stat.st_size, stat.st_mtime_ns
            if self._shapes.get(path) != shape:
                before, self._names[path] = self._names.get(path, {}), names_in(path, index)
                self._shapes[path] = shape
                return dict(self._names[path].items() - before.items())
        return {}
