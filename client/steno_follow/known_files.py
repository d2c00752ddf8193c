"""The files of other programs whose sessions are in a root, and the session of each file."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from steno.local import expanded, open_stored
from steno.values import decode_object
from steno_agents.following import Digest
from steno_follow.foreign_source import ForeignSource
from steno_follow.naming import family_of
from steno_follow.source_notes import SOURCE, SourceNote, without_stamp
from steno_follow.source_tree import is_gone
from steno_protocol import limits, paths
from steno_protocol.limits import MIB

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
    """The files by path and by what they are, read from the notes in a root when one is asked for.

    Args:
        tree: the folder of the sessions.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._by_path: dict[str, Known] | None = None
        # By what renamed files have in common.
        self._families: dict[str, list[Known]] = {}

    def all(self) -> list[Known]:
        """Return what is known."""
        return list(self._read().values())

    def at(self, path: str) -> Known | None:
        """Return the session of a path; None if it has none."""
        return self._read().get(path)

    def session_of(self, source: ForeignSource) -> str:
        """Return the id of the session of a file, which may be new.

        A file that was moved keeps its session: the one whose file is not where it was. So does one
        that was renamed, if it begins with all that the session has.

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
        family = self._families.get(family_of(source.identity), [])
        gone = [each for each in family if is_gone(each.note.path)]
        moved = (each for each in gone if each.note.identity == source.identity)
        renamed = (each for each in gone if _begins_with(source, each))
        found = next(chain(moved, renamed), None)
        return source.session if found is None else found.session

    def learn(self, session: str, path: str) -> None:
        """Read the note of a session that now has the file at a path, if that is not known."""
        if self._by_path is not None and path not in self._by_path:
            _, segments = paths.split_session(session)
            known = _known_at(session, self._tree.joinpath(*segments))
            if known is not None:
                self._put(known)

    def _read(self) -> dict[str, Known]:
        if self._by_path is None:
            self._by_path = {}
            for known in _known_in(self._tree, ()):
                self._put(known)
        return self._by_path

    def _put(self, known: Known) -> None:
        assert self._by_path is not None
        family = self._families.setdefault(family_of(known.note.identity), [])
        for before in [each for each in family if each.session == known.session]:
            family.remove(before)
            self._by_path.pop(before.note.path, None)
        family.append(known)
        self._by_path[known.note.path] = known


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
        known = _known_at("/".join(segments), folder)
        if known is not None:
            yield known
    for name, is_folder in found:
        if is_folder and not name.startswith(".") and len(segments) < limits.SESSION_TREE_DEPTH_MAX:
            yield from _known_in(folder / name, (*segments, name))


def _known_at(session: str, folder: Path) -> Known | None:
    record = decode_object(last_line(folder / paths.stream_file(SOURCE))) or {}
    note = SourceNote.of(without_stamp(record))
    return None if note is None else Known(session, note, folder)


def _begins_with(source: ForeignSource, known: Known) -> bool:
    """Whether a file begins with all that a session has of another one."""
    latest = _known_at(known.session, known.folder)
    if latest is None or source.format.has_states:
        return False
    digest, end = Digest(), latest.note.offset
    with source.seekable() as file:
        while digest.offset < end and (data := file.read(min(MIB, end - digest.offset))):
            digest.feed(data)
    found = digest.cursor(latest.note.generation)
    return 0 < end == found.offset and found.digest == latest.note.digest


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
