"""The sessions in a folder outside the root, and their files to import."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from steno.cli.exits import WrongUsage
from steno.cli.sizes import size_of
from steno.values import decode_line
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position

_SKIPPED_SUFFIXES: Final = (".mark", ".new")
"""The suffixes of files that belong to one copy of a session, or are unfinished."""

_START: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A session outside the root.

    Attributes:
        session: its id in the root.
        folder: its folder.
        lone: its context if that is a file outside the folder, the old format of kimi-cli; the
            folder has the other files, and may be missing.
    """

    session: str
    folder: Path
    lone: Path | None = None

    @property
    def context(self) -> Path:
        """The context file."""
        return self.folder / paths.CONTEXT if self.lone is None else self.lone

    @property
    def origin(self) -> Path:
        """The folder to name in messages."""
        return self.context.parent

    def files(self) -> Iterator[tuple[Path, Path]]:
        """Each file and folder, and its path in the session's folder.

        A folder comes before its files, and is skipped if it is a session itself. Symbolic links
        and other things that are neither file nor folder are skipped.
        """
        if self.lone is not None:
            yield self.lone, Path(paths.CONTEXT)
            if self.folder.is_symlink() or not self.folder.is_dir():
                return
        yield from _files_below(self.folder, Path())

    def work_bytes(self) -> int:
        """The bytes that a copy reads."""
        return sum(size_of(file) for file, _ in self.files())

    def shape(self) -> frozenset[tuple[str, int]]:
        """A value that changes with each rewrite of the contexts, and not with an append."""
        folder = self.context.parent
        return frozenset(
            (name, (folder / name).stat().st_ino)
            for name in os.listdir(folder)  # noqa: PTH208  # names are enough
            if name == self.context.name or paths.generation_of(name) is not None
        )


def find(folder: Path, given: str | None) -> tuple[list[ImportSource], list[Path]]:
    """The sessions in a folder, parents first, and the contexts whose path is no session id.

    Args:
        folder: a session folder, a tree, or the file of a session in kimi-cli's old format.
        given: the id of the one session, or the prefix of the ids of a tree.

    Raises:
        NotFound: the folder has no session.
        WrongUsage: the id or prefix is not possible in this root.
    """
    lone = _lone(folder)
    if lone is not None:
        session = lone.session if given is None else given
        check_session_id(session)
        return [replace(lone, session=session)], []
    if not folder.is_dir():
        raise _no_source(folder)
    tree = folder.resolve()
    if _has_context(tree):
        start = tree.name if given is None else given
    else:
        start = (given or "").rstrip("/")
        # The folder of kimi-cli itself: its sessions are one level below.
        tree = tree / paths.SESSIONS if (tree / paths.SESSIONS).is_dir() else tree
    if start or given is not None:
        check_session_id(start)
    found: list[ImportSource] = []
    nameless: list[Path] = []
    for source in sorted(_walk(tree, start), key=lambda each: each.session.split("/")):
        if _has_id(source):
            found.append(source)
        else:
            nameless.append(source.context)
    if not found:
        raise NotFound(f"{folder} has no session: a session has a file {paths.CONTEXT}")
    return found, nameless


def _no_source(path: Path) -> NotFound:
    """The error for a path that is neither a folder nor the file of a session."""
    if not path.exists():
        return NotFound(f"{path} does not exist: name a session folder, or a tree of them")
    if paths.flat_session_of(path.name) is not None and _has_context(path.with_suffix("")):
        return NotFound(
            f"kimi-cli has moved the session of {path} into a folder: import {path.with_suffix('')}"
        )
    return NotFound(
        f"{path} is one file, and such a file must be <uuid>.jsonl in kimi-cli's old format, or a"
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
    folder: Path, address: str, depth: int = 0, *, in_session: bool = False
) -> Iterator[ImportSource]:
    names = sorted(os.listdir(folder))  # noqa: PTH208  # names are enough
    if _has_context(folder):
        in_session = True
        yield ImportSource(address, folder)
    for name in names:
        path = folder / name
        below = f"{address}/{name}" if address else name
        if path.is_symlink() or name.startswith("."):
            continue
        if path.is_dir() and depth < limits.SESSION_TREE_DEPTH_MAX:
            yield from _walk(path, below, depth + 1, in_session=in_session)
        elif not in_session and (lone := _lone(path)) is not None:
            yield replace(lone, session=below.removesuffix(".jsonl"))


def _has_context(folder: Path) -> bool:
    """Whether a folder is a session: its context is a file and no link."""
    context = folder / paths.CONTEXT
    return context.is_file() and not context.is_symlink()


def _lone(path: Path) -> ImportSource | None:
    """The session in kimi-cli's old format at a path; None if kimi-cli would not convert it."""
    name = paths.flat_session_of(path.name)
    folder = path.with_suffix("")
    if name is None or path.is_symlink() or not path.is_file() or _has_context(folder):
        return None
    return ImportSource(name, folder, lone=path)


def _files_below(folder: Path, inside: Path) -> Iterator[tuple[Path, Path]]:
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  # names are enough
        path = folder / name
        if path.is_symlink() or (not inside.parts and name.endswith(_SKIPPED_SUFFIXES)):
            continue
        if path.is_file():
            yield path, inside / name
        elif path.is_dir() and not _has_context(path):
            yield path, inside / name
            yield from _files_below(path, inside / name)


def check_session_id(start: str) -> None:
    """Refuse an id, or the prefix of ids, that no new session of this root can have.

    Raises:
        BadRequest, WrongUsage: the id is not possible.
    """
    mount, segments = paths.split_session(start)
    if paths.UPLOADS in segments:
        raise WrongUsage(
            f"no new session can have {paths.UPLOADS!r} in its id, the name of a folder in a"
            " session: import it under another id"
        )
    if mount is not None:
        raise WrongUsage(
            f"{start} is in a mount, which belongs to another program: copy the folder there"
            " yourself, or import it under an id without a mount"
        )


def _has_id(source: ImportSource) -> bool:
    try:
        paths.split_session(source.session)
    except BadRequest:
        return False
    return True
