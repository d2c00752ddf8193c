"""The files of other programs whose sessions are in a root, and the session of each file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from steno.local import expanded, open_stored
from steno.values import decode_object
from steno_follow.foreign_source import ForeignSource
from steno_follow.source_notes import SOURCE, SourceNote, without_stamp
from steno_protocol import limits, paths

_LAST_BYTES: Final = 16 * 1024
"""Bytes at the end of a stream that have its last note."""


class Known(NamedTuple):
    """A file that became a session.

    Attributes:
        session: the id of the session.
        note: the last note about the file.
        folder: the folder of the session.
    """

    session: str
    note: SourceNote
    folder: Path


class KnownFiles:
    """The files by path and by identity, read from the notes in a root when one is asked for.

    Args:
        tree: the folder of the sessions.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._by_path: dict[str, Known] | None = None
        self._by_identity: dict[str, list[Known]] = {}

    def all(self) -> list[Known]:
        """Return what is known."""
        return list(self._read().values())

    def at(self, path: str) -> Known | None:
        """Return the session of a path; None if it has none."""
        return self._read().get(path)

    def session_of(self, source: ForeignSource) -> str:
        """Return the id of the session of a file, which may be new.

        A file that was moved keeps its session: the one whose file is not where it was.

        Raises:
            OSError: the file cannot be read.
        """
        file = str(source.file)
        known = self._read().get(file)
        if known is not None:
            return known.session
        _, segments = paths.split_session(source.session)
        if self._tree.joinpath(*segments).exists():
            return source.session
        same = self._by_identity.get(source.identity, []) if self._by_identity else []
        gone = [each for each in same if not os.path.lexists(each.note.path)]
        return gone[0].session if gone else source.session

    def add(self, session: str, path: str, identity: str) -> None:
        """Note a session that was just taken in."""
        if self._by_path is not None:
            _, segments = paths.split_session(session)
            note = SourceNote(path=path, identity=identity)
            self._put(Known(session, note, self._tree.joinpath(*segments)))

    def _read(self) -> dict[str, Known]:
        if self._by_path is None:
            self._by_path = {}
            for known in _known_in(self._tree, ()):
                self._put(known)
        return self._by_path

    def _put(self, known: Known) -> None:
        assert self._by_path is not None
        self._by_path[known.note.path] = known
        self._by_identity.setdefault(known.note.identity, []).append(known)


def _known_in(folder: Path, segments: tuple[str, ...]) -> Iterator[Known]:
    try:
        with os.scandir(folder) as entries:
            found = [
                (paths.plain_file(each.name), each.is_dir(follow_symlinks=False))
                for each in entries
            ]
    except OSError:
        # A session may be moved or deleted meanwhile.
        return
    if (paths.stream_file(SOURCE), False) in found:
        record = decode_object(last_line(folder / paths.stream_file(SOURCE))) or {}
        note = SourceNote.of(without_stamp(record))
        if note is not None:
            yield Known("/".join(segments), note, folder)
    for name, is_folder in found:
        if is_folder and not name.startswith(".") and len(segments) < limits.SESSION_TREE_DEPTH_MAX:
            yield from _known_in(folder / name, (*segments, name))


def last_line(path: Path) -> bytes:
    """Return the last line of a file, as far as it is among the last bytes.

    Raises:
        BadRequest: it is compressed, and nothing that is installed can expand it.
    """
    try:
        with expanded(*open_stored(path)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read(_LAST_BYTES).splitlines(keepends=True)
    except OSError:
        return b""
    return lines[-1] if lines else b""
