"""Sessions that lie in a folder outside, and what of them is to be taken in."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from steno.cli.exits import WrongUsage
from steno.values import decode_line
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position

_LEFT_OUT: Final = (".mark", ".new")
"""Ends of names: what a daemon notes of the very file that it has, and what was never finished."""

_START: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A session outside.

    Attributes:
        session: the id that it is to get.
        folder: where it lies.
        lone: its context, when that is a file by itself, as the first versions of kimi-cli had it;
            the folder holds what else there is of it, and need not be there.
    """

    session: str
    folder: Path
    lone: Path | None = None

    @property
    def context(self) -> Path:
        """Its context file."""
        return self.folder / paths.CONTEXT if self.lone is None else self.lone

    def files(self) -> Iterator[tuple[Path, Path]]:
        """Each of its files and folders, and the path that it has in the session's folder.

        A folder comes before the files in it, and is left out if it is a session itself. What is
        neither a file nor a folder, a symbolic link for one, is left out.
        """
        if self.lone is not None:
            yield self.lone, Path(paths.CONTEXT)
            if self.folder.is_symlink() or not self.folder.is_dir():
                return
        yield from _files_below(self.folder, Path())

    def shape(self) -> frozenset[tuple[str, int]]:
        """What is another when its contexts were rewritten; lines that were added do not count."""
        folder = self.context.parent
        return frozenset(
            (name, (folder / name).stat().st_ino)
            for name in os.listdir(folder)  # noqa: PTH208  # names are enough
            if name == self.context.name or paths.generation_of(name) is not None
        )


def find(folder: Path, given: str | None) -> tuple[list[ImportSource], list[Path]]:
    """The sessions in a folder, a session before those below it, and what can have no id.

    Args:
        folder: a session folder, a tree, or the file of a session in kimi-cli's old format.
        given: the id of the one session, or what the ids of a tree begin with.

    Raises:
        NotFound: there is none.
        WrongUsage: what is given can begin no id of this root.
    """
    lone = _lone(folder)
    if lone is not None:
        session = lone.session if given is None else given
        _check(session)
        return [replace(lone, session=session)], []
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder: name a session's folder, or a tree of them")
    tree = folder.resolve()
    if _has_context(tree):
        start = tree.name if given is None else given
    else:
        start = (given or "").rstrip("/")
        # The folder of kimi-cli itself was meant: its sessions lie one below.
        tree = tree / paths.SESSIONS if (tree / paths.SESSIONS).is_dir() else tree
    if start or given is not None:
        _check(start)
    found: list[ImportSource] = []
    nameless: list[Path] = []
    for foundling in sorted(_walk(tree, start), key=lambda each: each.session.split("/")):
        if _has_id(foundling):
            found.append(foundling)
        else:
            nameless.append(foundling.context)
    if not found:
        raise NotFound(f"no session lies in {folder}: one has a file {paths.CONTEXT}")
    return found, nameless


def damaged_lines(path: Path) -> int:
    """How many lines of a file are neither blank nor a JSON object."""
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
    """Whether a folder is a session: its context is a file, and no link to one."""
    context = folder / paths.CONTEXT
    return context.is_file() and not context.is_symlink()


def _lone(path: Path) -> ImportSource | None:
    """The session that a file is by itself; None where kimi-cli would not move it to a folder."""
    name = paths.flat_session_of(path.name)
    folder = path.with_suffix("")
    if name is None or path.is_symlink() or not path.is_file() or _has_context(folder):
        return None
    return ImportSource(name, folder, lone=path)


def _files_below(folder: Path, inside: Path) -> Iterator[tuple[Path, Path]]:
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  # names are enough
        path = folder / name
        if path.is_symlink() or (not inside.parts and name.endswith(_LEFT_OUT)):
            continue
        if path.is_file():
            yield path, inside / name
        elif path.is_dir() and not _has_context(path):
            yield path, inside / name
            yield from _files_below(path, inside / name)


def _check(start: str) -> None:
    mount, segments = paths.split_session(start)
    if paths.UPLOADS in segments:
        raise WrongUsage(
            f"no new session can have {paths.UPLOADS!r} in its id, the name of a folder of files"
            " that a session may hold: import it under another id"
        )
    if mount is not None:
        raise WrongUsage(
            f"{start} lies in a mount, which belongs to another program: copy the folder there"
            " yourself, or import it under an id without a mount"
        )


def _has_id(foundling: ImportSource) -> bool:
    try:
        paths.split_session(foundling.session)
    except BadRequest:
        return False
    return True
