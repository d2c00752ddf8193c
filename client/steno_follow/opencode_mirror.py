"""The sessions of opencode's database that changed, as files of a folder that a watch follows.

A look compares the size and the time of the database and its log, and reads it only if they have
changed. It then writes each session anew whose time rose, as `opencode_database` says; a follower
adds what is new to the session's stream. The last line of that stream has the time of the last
state that steno has, so a watch that begins reads no session that is complete.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno.local import expanded, open_stored
from steno.values import decode_object
from steno_agents.opencode import Opencode
from steno_follow.known_files import Known, last_line
from steno_protocol import paths
from steno_protocol._json import whole_number
from steno_protocol.errors import StenoError

_SUFFIX: Final = ".jsonl"


class DatabaseMirror:
    """The sessions of one database.

    Args:
        database: its path; it may come later.
        folder: an empty folder, which becomes the mirror.

    Attributes:
        database: its path.
        folder: the mirror.
        left_out: the reason why the last look could not read it; None if it did.
        gone: the names of the sessions that were deleted; the caller takes them out.
    """

    def __init__(self, database: Path, folder: Path) -> None:
        self.database: Path = database
        self.folder: Path = folder
        self.left_out: str | None = None
        self.gone: list[str] = []
        self._shape: tuple[int, ...] = ()
        # The time of the state that was written, by the place of the session in the folder.
        self._updated: dict[str, int] = {}

    def learn(self, known: Iterable[Known]) -> None:
        """Learn which sessions steno has, and in which state."""
        for each in known:
            path = Path(each.note.path)
            if path.is_relative_to(self.database) and not each.note.is_gone:
                place = str(path.relative_to(self.database))
                self._updated[place] = _state_in(each.folder / paths.stream_file(Opencode.stream))

    def look(self) -> None:
        """Write the sessions that changed, and note those that are gone."""
        shape = tuple(_shape_of(self.database))
        if not shape or shape == self._shape:
            return
        # Imported here: nobody else needs SQLite.
        from steno_follow.opencode_database import write_changed  # noqa: PLC0415

        try:
            there = write_changed(self.database, self.folder, self._updated)
        except StenoError as error:
            self.left_out = error.message
            return
        except OSError as error:
            self.left_out = f"it cannot be read: {error.strerror or error}"
            return
        self.left_out, self._shape = None, shape
        for place in self._updated.keys() - there.keys():
            self.gone.append(str(self.database / place))
            (self.folder / f"{place}{_SUFFIX}").unlink(missing_ok=True)
        self._updated = there


def _shape_of(database: Path) -> Iterator[int]:
    """What changes with each change of the database; nothing if it is not there."""
    for path in (database, database.with_name(f"{database.name}-wal")):
        with suppress(OSError):
            found = path.stat()
            yield from (found.st_ino, found.st_size, found.st_mtime_ns)


def _state_in(stream: Path) -> int:
    """The time of the last state that a stream has: in its last line, or in its first one."""
    with suppress(OSError):
        with expanded(*open_stored(stream)) as file:
            lines = (last_line(stream), file.readline())
        times = (whole_number((decode_object(line) or {}).get("updated")) for line in lines)
        return next((each for each in times if each), 0)
    return 0
