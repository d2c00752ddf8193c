"""The session folders of kimi-cli and steno outside the root, and their files to import."""

import os
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from steno.local import expanded, sync_folder
from steno.values import decode_line
from steno_follow.aside import new_file
from steno_follow.lines import LineLength, whole_lines
from steno_follow.source_tree import SourceTree
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Exists, NotFound
from steno_protocol.positions import Position
from steno_redact.records import is_same_line
from steno_redact.redactor import Redactor

_SKIPPED_SUFFIXES: Final = (".mark", ".new")
"""The suffixes of files that belong to one copy of a session, or are unfinished."""

_START: Final = Position(0, 0)


class ImpossibleId(BadRequest):
    """No import can give a session this id."""


class SourceFile(NamedTuple):
    """A file or folder of a session.

    Attributes:
        inside: its place in the folder of the import.
        target: its path in the session's folder.
        is_folder: it is a folder.
    """

    inside: PurePath
    target: PurePath
    is_folder: bool


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A session outside the root.

    Attributes:
        session: its id in the root.
        tree: the folder of the import.
        inside: the place of the session's folder in it.
        lone: its context if that is a file outside the folder, the old format of kimi-cli; the
            folder has the other files, and may be missing.
    """

    session: str
    tree: SourceTree
    inside: PurePath
    lone: PurePath | None = None

    @property
    def context(self) -> PurePath:
        """The place of the context file."""
        return self.inside / paths.CONTEXT if self.lone is None else self.lone

    @property
    def folder(self) -> Path:
        """The path of the session's folder."""
        return self.tree.path(self.inside)

    @property
    def origin(self) -> Path:
        """The folder to name in messages."""
        return self.tree.path(self.context.parent)

    def files(self) -> Iterator[SourceFile]:
        """Each file and folder of the session.

        A folder comes before its files, and is skipped if it is a session itself. Symbolic links
        and other things that are neither file nor folder are skipped.

        Raises:
            OSError: a folder cannot be read.
        """
        if self.lone is not None:
            yield SourceFile(self.lone, PurePath(paths.CONTEXT), is_folder=False)
            if not self.tree.has_folder(self.inside):
                return
        yield from self._below(self.inside, PurePath())

    def _below(self, folder: PurePath, target: PurePath) -> Iterator[SourceFile]:
        self.tree.check_depth(folder)
        for name, is_folder in self.tree.entries(folder):
            if not target.parts and name.endswith(_SKIPPED_SUFFIXES):
                continue
            inside = folder / name
            plain = paths.plain_file(name) if not target.parts else name
            if plain != name and self.tree.has_file(folder / plain):
                # It was being compressed.
                continue
            if not is_folder:
                yield SourceFile(inside, target / plain, is_folder=False)
            elif not self.tree.has_file(inside / paths.CONTEXT):
                yield SourceFile(inside, target / name, is_folder=True)
                yield from self._below(inside, target / name)

    def work_bytes(self) -> int:
        """The bytes that a copy reads.

        Raises:
            OSError: a folder cannot be read.
        """
        return sum(self.tree.size(each.inside) for each in self.files())

    def shape(self) -> frozenset[tuple[str, int]]:
        """A value that changes with each rewrite of the contexts, and not with an append."""
        folder = self.context.parent
        return frozenset(
            (name, self.tree.stat(folder / name).st_ino)
            for name, _ in self.tree.entries(folder)
            if name == self.context.name or paths.generation_of(name) is not None
        )


def find_sessions(
    tree: SourceTree, given: str | None, contexts: Collection[PurePath]
) -> tuple[list[ImportSource], list[Path]]:
    """Find the sessions in a folder, parents first, and the contexts whose path is no session id.

    Args:
        tree: a session folder, a tree, or the file of a session.
        given: the id of the one session, or the prefix of the ids of a tree.
        contexts: the files whose lines are messages; other files are no session in the old format.

    Raises:
        NotFound: the folder has no session.
        ImpossibleId: the id or prefix is not possible in this root.
    """
    if tree.only is not None:
        inside = PurePath(tree.only)
        lone = _lone(tree, inside, contexts)
        is_flat = paths.flat_session_of(inside.name) is not None
        if lone is None and not is_flat and inside in contexts:
            # An export of steno, which takes nothing of a folder beside it along.
            lone = ImportSource(inside.stem, tree, inside, lone=inside)
        if lone is None:
            raise _no_source(tree)
        session = _own_id(lone) if given is None else given
        check_session_id(session)
        return [replace(lone, session=session)], []
    start, inside = (given or "").rstrip("/"), PurePath()
    if tree.has_file(inside / paths.CONTEXT):
        start = tree.top.name if given is None else given
    elif tree.has_folder(PurePath(paths.SESSIONS)):
        # The folder of kimi-cli itself: its sessions are one level below.
        inside = PurePath(paths.SESSIONS)
    if start or given is not None:
        check_session_id(start)
    found: list[ImportSource] = []
    nameless: list[Path] = []
    walk = _walk(tree, inside, start, contexts)
    for source in sorted(walk, key=lambda each: each.session.split("/")):
        if _has_id(source):
            found.append(source)
        else:
            nameless.append(tree.path(source.context))
    if not (found or nameless):
        raise NotFound(f"{tree.given} has no session: a session has a file {paths.CONTEXT}")
    return found, nameless


def _no_source(tree: SourceTree) -> NotFound:
    """The error for a file that is no session."""
    inside, path = PurePath(tree.only or ""), tree.given
    folder = inside.with_suffix("")
    if paths.flat_session_of(inside.name) is not None and tree.has_file(folder / paths.CONTEXT):
        return NotFound(
            f"kimi-cli has moved the session of {path} into a folder: import {path.with_suffix('')}"
        )
    return NotFound(
        f"{path} is one file, and such a file must be an export as JSON Lines, or a"
        f" transcript of another agent: `steno append ID < {shlex.quote(str(path))}` appends its"
        " records"
    )


def damaged_lines(path: Path) -> int:
    """The number of lines that are neither blank nor a JSON object."""
    try:
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip() and decode_line(_START, line) is None)
    except FileNotFoundError:
        return 0


def _walk(
    tree: SourceTree,
    folder: PurePath,
    address: str,
    contexts: Collection[PurePath],
    *,
    in_session: bool = False,
) -> Iterator[ImportSource]:
    try:
        entries = tree.entries(folder)
    except OSError:
        # The search for transcripts reports it.
        return
    if any(name == paths.CONTEXT and not is_folder for name, is_folder in entries):
        in_session = True
        yield ImportSource(address, tree, folder)
    for name, is_folder in entries:
        inside = folder / name
        below = f"{address}/{name}" if address else name
        if name.startswith("."):
            continue
        if is_folder and len(inside.parts) <= limits.SESSION_TREE_DEPTH_MAX:
            yield from _walk(tree, inside, below, contexts, in_session=in_session)
        elif not (is_folder or in_session) and (lone := _lone(tree, inside, contexts)) is not None:
            yield replace(lone, session=below.removesuffix(".jsonl"))


def _lone(
    tree: SourceTree, inside: PurePath, contexts: Collection[PurePath]
) -> ImportSource | None:
    """The session in kimi-cli's old format at a place; None if kimi-cli would not convert it."""
    name = paths.flat_session_of(inside.name)
    folder = inside.with_suffix("")
    if name is None or inside not in contexts or tree.has_file(folder / paths.CONTEXT):
        return None
    return ImportSource(name, tree, folder, lone=inside)


def check_session_id(start: str) -> None:
    """Refuse an id, or the prefix of ids, that no new session of this root can have.

    Raises:
        BadRequest, ImpossibleId: the id is not possible.
    """
    mount, segments = paths.split_session(start)
    if paths.UPLOADS in segments:
        raise ImpossibleId(
            f"no new session can have {paths.UPLOADS!r} in its id, the name of a folder in a"
            " session: import it under another id"
        )
    if mount is not None:
        raise ImpossibleId(
            f"{start} is in a mount, which belongs to another program: copy the folder there"
            " yourself, or import it under an id without a mount"
        )


def _own_id(lone: ImportSource) -> str:
    """The id that the name of a file gives."""
    if not _has_id(lone):
        file = lone.tree.path(lone.context)
        raise ImpossibleId(
            f"{file.name!r} is no name of a session: name one, as in `steno import"
            f" {shlex.quote(str(file))} demo`"
        )
    return lone.session


def _has_id(source: ImportSource) -> bool:
    try:
        paths.split_session(source.session)
    except BadRequest:
        return False
    return True


def copy_session(source: ImportSource, folder: Path, show: Callable[[int], None]) -> None:
    """Copy the files of a session to an empty folder, durably.

    Raises:
        TooLarge: a line is longer than a daemon keeps in memory.
        OSError: a file cannot be read or written.
    """
    folders = {folder}
    for inside, below, is_folder in source.files():
        target = folder / below
        if is_folder:
            # A folder comes before its files.
            target.mkdir(mode=0o700)
            folders.add(target)
            continue
        # A daemon reads the lines of these files, and keeps one at a time in memory.
        line = LineLength(source.tree.path(inside)) if _has_lines(below) else None
        stat = source.tree.stat(inside)
        # The copy is plain, so that its secrets can be masked; one deeper is no generation.
        name = inside.name if len(below.parts) == 1 else ""
        with expanded(source.tree.open(inside), name) as old, new_file(target) as new:
            while block := old.read(limits.COPY_BYTES):
                if line is not None:
                    line.feed(block)
                new.write(block)
                show(len(block))
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in folders:
        sync_folder(each)


def _has_lines(below: PurePath) -> bool:
    return len(below.parts) == 1 and below.suffix == ".jsonl"


def check_same(source: ImportSource, target: Path, redactor: Redactor | None) -> None:
    """Return if the existing session begins as the source does.

    Raises:
        Exists: it does not.
    """
    contexts = [
        path
        for path in sorted(target.glob("context*.jsonl*"))
        if path.name == paths.CONTEXT or paths.generation_of(path.name) is not None
    ]
    if not any(_begins_with(path, source, redactor) for path in contexts):
        raise Exists(
            f"another session is at {target}, or this one was continued since its import:"
            " import it under another id",
            session=source.session,
        )


def _begins_with(path: Path, source: ImportSource, redactor: Redactor | None) -> bool:
    """Whether a file begins with the whole lines of a context; an empty one only if both are.

    Opening for writing truncates a partial line.
    """
    with (
        source.tree.open(source.context) as wanted,
        expanded(path.open("rb"), path.name) as file,
    ):
        lines = whole_lines(wanted, source.origin)
        first = next(lines, None)
        if first is None:
            return path.stat().st_size == 0
        return all(is_same_line(redactor, file.readline(), line) for line in chain([first], lines))
