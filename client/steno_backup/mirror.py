"""The copy of a root: what grew is copied, session by session."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from steno.local import make_private, open_private, own_private, read_private, replace, sync_folder
from steno.parts import new_key
from steno_backup.ends import settled
from steno_backup.files import (
    Part,
    is_same,
    open_expanded,
    open_part,
    place,
    regular,
    remove,
    rename,
    twin,
)
from steno_backup.limits import FOLDER_DEPTH_MAX, SNAPSHOT_TRIES_MAX, TRASH_KEPT_S
from steno_backup.snapshot import Snapshot, State, past_generations, present_generation, taken
from steno_protocol import paths
from steno_protocol.errors import BadRequest, Exists, Held, NotFound, StenoError

MARKER: Final = "backup.json"
"""The file that shows that a folder is a copy, and of which root."""

_ASIDE: Final = ".backup"
"""The folder of what is being written; its contents are removed at the next start."""

_KEYS: Final = "keys"

_PRICES: Final = "prices.toml"
"""What models cost, for `steno usage`; people edit it."""

_Asks = Callable[[str], State]


class _Marker(msgspec.Struct):
    of: str


class Report(msgspec.Struct):
    """The result of one round.

    Attributes:
        sessions: the sessions in the copy.
        copied: those of them that had changed.
        bytes: the bytes that were copied from the root.
        to_trash: sessions that are gone from the root, and lie in the trash of the copy now.
        problems: what was left at its older state, each with the reason.
    """

    sessions: int = 0
    copied: int = 0
    bytes: int = 0
    to_trash: list[str] = []
    problems: list[str] = []


class Mirror:
    """The copy of one root in a folder, which `opened_mirror` opens.

    Args:
        root: the root.
        folder: the folder of the copy.
        ask: asks the daemon for the state of a session.
    """

    def __init__(self, root: Path, folder: Path, ask: _Asks) -> None:
        self._root = root
        self._folder = folder
        self._ask = ask
        self._aside = folder / _ASIDE / "file"
        self._report = Report()

    def update(self) -> Report:
        """Copy what changed since the last round.

        Raises:
            OSError: the copy cannot be written; it has older or newer contents.
        """
        self._report = Report()
        self._clear_aside()
        source, copy = self._root / paths.SESSIONS, self._folder / paths.SESSIONS
        make_private(copy)
        self._copy_configuration()
        for folder in _trash(source):
            self._copy_tree(folder, copy / paths.TRASH / folder.name, asks=False)
        self._copy_tree(source, copy, asks=True)
        self._bury_missing(source, copy)
        self._expire(source, copy)
        return self._report

    def _clear_aside(self) -> None:
        shutil.rmtree(self._folder / _ASIDE, ignore_errors=True)
        make_private(self._folder / _ASIDE)

    def _copy_configuration(self) -> None:
        for name in (paths.CONFIG, _PRICES):
            self._copy_plain(self._root / name, self._folder / name)
        keys = self._root / _KEYS
        if keys.is_dir() and not keys.is_symlink():
            make_private(self._folder / _KEYS)
            for path in sorted(keys.iterdir()):
                self._copy_plain(path, self._folder / _KEYS / path.name)

    def _copy_plain(self, path: Path, copy: Path) -> None:
        """Copy a file that is replaced as a whole; a compressed one to a plain name is expanded."""
        found = regular(path)
        if found is None and paths.generation_of(path.name) is not None:
            # It was compressed meanwhile.
            path = path.with_name(paths.compressed_file(path.name))
            found = regular(path)
        if found is None or is_same(found, copy):
            return
        is_expanded = paths.is_compressed(path.name) and not paths.is_compressed(copy.name)
        try:
            part = open_expanded(path) if is_expanded else open_part(path)
        except FileNotFoundError:
            return
        try:
            self._place(part, copy)
        finally:
            os.close(part.handle)

    def _place(self, part: Part, copy: Path) -> None:
        self._report.bytes += place(part, copy, self._aside)

    def _copy_tree(self, source: Path, copy: Path, *, asks: bool) -> None:
        for folder in _folders(source):
            where = folder.relative_to(source)
            target = copy / where
            try:
                self._copy_folder(folder, target, str(where), asks=asks)
            except (NotFound, FileNotFoundError):
                # It was deleted or renamed meanwhile: the next round sees it.
                continue
            except StenoError as error:
                self._report.problems.append(f"{where}: {error.message}")

    def _copy_folder(self, folder: Path, copy: Path, session: str, *, asks: bool) -> None:
        names = [path for path in sorted(folder.iterdir()) if regular(path)]
        is_session = any(path.name == paths.CONTEXT for path in names)
        self._report.sessions += asks and is_session
        self._report.copied += asks and is_session and not _is_current(names, copy)
        for _ in range(SNAPSHOT_TRIES_MAX):
            self._copy_files(names, folder, copy, session, asks=asks)
            copied = _streams_in(copy) & {path.name for path in names}
            if not is_session or _streams_in(folder) <= copied:
                return
            # A stream was compressed, expanded or begun meanwhile.
            names = [path for path in sorted(folder.iterdir()) if regular(path)]

    def _copy_files(
        self, names: list[Path], folder: Path, copy: Path, session: str, *, asks: bool
    ) -> None:
        is_session = any(path.name == paths.CONTEXT for path in names)
        if is_session:
            if not _is_current(names, copy):
                ask = (lambda: self._ask(session)) if asks else None
                with taken(folder, session, ask) as snapshot:
                    self._copy_session(snapshot, copy, session)
        elif any(paths.generation_of(path.name) is not None for path in names):
            self._report.problems.append(f"{session}: it has past generations and no context.jsonl")
            return
        if not names:
            return
        make_private(copy)
        for path in names:
            if not _is_own(path.name) and not _is_void(path):
                self._copy_plain(path, copy / path.name)
        if is_session or folder.name == paths.QUARANTINE:
            # One that changed its form meanwhile keeps that of the copy until the next try.
            _remove_gone({path.name for path in names} | _streams_in(folder), copy)

    def _copy_session(self, snapshot: Snapshot, copy: Path, session: str) -> None:
        if (copy / paths.CONTEXT).exists() and _is_other(snapshot, copy):
            self._bury(copy, session)
        if copy.exists():
            self._advance(snapshot, copy)
            return
        fresh = self._folder / _ASIDE / "session"
        shutil.rmtree(fresh, ignore_errors=True)
        make_private(fresh)
        self._advance(snapshot, fresh)
        make_private(copy.parent)
        rename(fresh, copy)

    def _advance(self, snapshot: Snapshot, copy: Path) -> None:
        """Bring a session forward through the states that the daemon's rewrites lead through.

        1. Past generations that the copy lacks, before its own one.
        2. For each later generation: the rest of the present one, the line of the rewrite in the
           timeline, the second name of the file, and the next generation in its place.
        3. The rest of the present generation, what follows it, and the rest of the timeline.
        """
        begun = (copy / paths.CONTEXT).exists()
        have = present_generation(copy) if begun else 0
        if not begun:
            have = min([snapshot.generation, *(number - 1 for number in snapshot.past)])
        for number, path in sorted(snapshot.past.items()):
            if number <= have:
                self._copy_plain(path, copy / path.name)
            elif number == have + 1 and _is_readable(path):
                self._rewrite(snapshot, copy, number)
                if paths.is_compressed(path.name):
                    self._copy_plain(path, copy / path.name)
                have = number
            else:
                # Generations in between were collected, or this one is copied as it is, because it
                # is damaged or nothing expands it: the number comes from this file's name.
                self._copy_plain(path, copy / path.name)
                have = number
        self._place(snapshot.context, copy / paths.CONTEXT)
        for name, part in snapshot.grown.items():
            self._place(part, copy / name)
        if snapshot.timeline_part is not None:
            self._place(snapshot.timeline_part, copy / paths.TIMELINE)

    def _rewrite(self, snapshot: Snapshot, copy: Path, number: int) -> None:
        name = paths.generation_file(number)
        if regular(copy / name) is None:
            self._copy_plain(snapshot.past[number], copy / paths.CONTEXT)
            intent = snapshot.timeline.intents.get(number)
            lines = snapshot.timeline_part
            written = regular(copy / paths.TIMELINE)
            if lines and intent and (written is None or written.st_size < intent):
                self._place(lines._replace(size=intent), copy / paths.TIMELINE)
            twin(copy / paths.CONTEXT, copy / name, self._aside)
        following = snapshot.past.get(number + 1)
        if following is None:
            self._place(snapshot.context, copy / paths.CONTEXT)
        elif _is_readable(following):
            self._copy_plain(following, copy / paths.CONTEXT)

    def _bury_missing(self, source: Path, copy: Path) -> None:
        for folder in list(_folders(copy)):
            where = folder.relative_to(copy)
            is_gone = regular(source / where / paths.CONTEXT) is None
            if regular(folder / paths.CONTEXT) and is_gone and not _has_past(source / where):
                self._bury(folder, str(where))

    def _bury(self, folder: Path, session: str) -> None:
        """Move a session of the copy to the trash of the copy, unless that has it already."""
        flat = session.replace("/", "~")
        trash = self._folder / paths.SESSIONS / paths.TRASH
        make_private(trash)
        if not any(_session_of(path) == flat for path in _trash(self._root / paths.SESSIONS)):
            fresh = self._folder / _ASIDE / "deleted"
            shutil.rmtree(fresh, ignore_errors=True)
            make_private(fresh)
            for path in sorted(folder.iterdir()):
                if regular(path):
                    twin(path, fresh / path.name, self._aside)
            rename(fresh, trash / f"{int(time.time())}.{new_key()}.{flat}")
        self._report.to_trash.append(session)
        files = [path for path in folder.iterdir() if regular(path)]
        remove(sorted(files, key=_last_removed))
        sync_folder(folder)
        with suppress(OSError):
            folder.rmdir()

    def _expire(self, source: Path, copy: Path) -> None:
        """Remove from the trash of the copy what is gone from the root's and has expired."""
        kept = {path.name for path in _trash(source)}
        for path in _trash(copy):
            begin = path.name.partition(".")[0]
            is_old = begin.isdigit() and int(begin) + TRASH_KEPT_S < time.time()
            if path.name not in kept and is_old:
                gone = self._folder / _ASIDE / path.name
                rename(path, gone)
                shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def opened_mirror(root: Path, folder: Path, ask: _Asks) -> Generator[Mirror]:
    """Hold the copy of a root; no daemon serves it meanwhile.

    Raises:
        BadRequest: the folder and the root are one in the other, or it is the copy of another root.
        Exists: the folder has contents that are no copy.
        Held: a daemon serves the copy, or another backup runs.
        Unauthorized: another user could replace what is in the folder.
        OSError: it cannot be made.
    """
    folder = folder.resolve()
    if folder.is_relative_to(root) or root.is_relative_to(folder):
        raise BadRequest(
            f"{folder} and the root {root} lie one in the other: name a folder beside it, best on"
            " another disk"
        )
    own_private(folder)
    _check_marker(root, folder)
    handle = open_private(folder / paths.LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(
                f"the copy {folder} is in use by a daemon or by another `steno backup`: stop it,"
                " or name another folder"
            ) from None
        yield Mirror(root, folder, ask)
    finally:
        os.close(handle)


def _check_marker(root: Path, folder: Path) -> None:
    try:
        marker = msgspec.json.decode(read_private(folder / MARKER), type=_Marker)
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise Exists(
                f"{folder} has contents that `steno backup` did not write: name an empty folder or"
                " a new one"
            ) from None
        replace(folder / MARKER, msgspec.json.encode(_Marker(str(root))).decode())
        return
    if marker.of != str(root):
        raise BadRequest(f"{folder} is the copy of {marker.of}, not of {root}: name another folder")


def _folders(source: Path, depth: int = 0) -> Iterator[Path]:
    """Yield all folders below one, without links and hidden ones."""
    if depth >= FOLDER_DEPTH_MAX or not source.is_dir():
        return
    if depth == 0 and regular(source / paths.CONTEXT):
        yield source
    with os.scandir(source) as entries:
        found = sorted(
            each.name
            for each in entries
            if each.is_dir(follow_symlinks=False) and not each.name.startswith(".")
        )
    for name in found:
        yield source / name
        yield from _folders(source / name, depth + 1)


def _trash(sessions: Path) -> list[Path]:
    trash = sessions / paths.TRASH
    if not trash.is_dir() or trash.is_symlink():
        return []
    return sorted(path for path in trash.iterdir() if path.is_dir() and not path.is_symlink())


def _session_of(trashed: Path) -> str:
    return trashed.name.split(".", 2)[-1]


def _is_own(name: str) -> bool:
    """Whether a file is copied with its session, or is never copied."""
    return (
        name in {paths.CONTEXT, paths.WIRE, paths.TIMELINE}
        or paths.generation_of(name) is not None
        or paths.stream_of(name) is not None
        or name.endswith((".mark", ".new"))
        or name.startswith(".")
    )


def _streams_in(folder: Path) -> set[str]:
    """Return the files of streams in a folder, which may be missing, each in the form it has."""
    names = (path.name for path in (folder.iterdir() if folder.is_dir() else ()) if regular(path))
    return {name for name in names if paths.stored_stream_of(name) is not None}


def _is_readable(path: Path) -> bool:
    """Whether a past generation is plain, or can be expanded."""
    if not paths.is_compressed(path.name):
        return True
    try:
        os.close(open_expanded(path).handle)
    except (BadRequest, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        return False
    return True


def _is_void(path: Path) -> bool:
    """Whether a file is a deleted stream that still has its own name, too."""
    deleted = paths.deleted_stream_of(path.name)
    if deleted is None:
        return False
    stream = regular(path.with_name(paths.stream_file(deleted.stream)))
    found = regular(path)
    return stream is not None and found is not None and stream.st_ino == found.st_ino


def _is_current(names: list[Path], copy: Path) -> bool:
    return all(
        is_same(found, copy / path.name)
        for path in names
        if _is_own(path.name) and not path.name.endswith((".mark", ".new"))
        and (found := regular(path)) is not None
    )  # fmt: skip


def _is_other(snapshot: Snapshot, copy: Path) -> bool:
    """Whether the copy has another session of the same id, or a later state."""
    have = present_generation(copy)
    lines = regular(copy / paths.TIMELINE)
    old = settled((copy / paths.TIMELINE).read_bytes(), have).incarnation if lines else ""
    new = snapshot.timeline.incarnation
    return have > snapshot.generation or bool(old and new and old != new)


def _remove_gone(names: set[str], copy: Path) -> None:
    """Remove generations, streams and quarantined files that the root no longer has."""
    gone = [
        path
        for path in sorted(copy.iterdir())
        if path.name not in names and regular(path)
        and (
            paths.generation_of(path.name) is not None
            or paths.is_stream_file(path.name)
            or copy.name == paths.QUARANTINE
        )
    ]  # fmt: skip
    remove(gone)


def _has_past(folder: Path) -> bool:
    return folder.is_dir() and bool(past_generations(folder))


def _last_removed(path: Path) -> tuple[int, int]:
    """Order the files of a session so that what is left is a session until the last one goes."""
    if path.name == paths.CONTEXT:
        return (2, 0)
    number = paths.generation_of(path.name)
    return (0, 0) if number is None else (1, number)
