"""Sessions that are copied aside and taken into a root by its daemon.

A session is copied to a folder aside in the tree of the root and synced; the daemon, the only
writer of sessions, moves it to its place by one rename. Appends would give checkpoints new ids,
lose damaged lines, and could stop in the middle. A session of kimi-cli or steno that exists is
compared: if it begins as the source does, it was imported before. A transcript of another agent
that exists is followed up to its end.

    sessions/.imports/<key>/            locked by this process; the key of the daemon's command
    sessions/.imports/<key>/session/    the copy, which the daemon locks as it moves it
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import BinaryIO, Protocol

from steno import BlockingClient
from steno.local import make_private, sync_file, sync_folder
from steno.parts import new_key
from steno_follow.following import AnotherCopy, Followed, Follower
from steno_follow.foreign_sources import ForeignSource, LineLength, unknown_context, whole_lines
from steno_follow.known_files import KnownFiles, id_of_copy
from steno_follow.masking import mask_files
from steno_follow.session_folders import ImportSource
from steno_protocol import limits, paths
from steno_protocol.commands import TakeIn
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Exists,
    OutcomeUnknown,
    StenoError,
    TooLarge,
)
from steno_protocol.replies import SessionStat
from steno_redact.records import is_same_line, masked_bytes
from steno_redact.redactor import Redactor

Source = ImportSource | ForeignSource


class Shown(Protocol):
    """Where the progress of a copy is shown."""

    def add(self, more: int, text: str = "") -> None:
        """Add bytes that were copied."""


class NotCopied(StenoError):
    """A session could not be copied; nothing of it is in the root."""


class Unanswered(StenoError):
    """The daemon did not say whether it took a session in; it is there whole or not at all."""


def work_bytes(source: Source) -> int:
    try:
        return source.work_bytes()
    except (OSError, TooLarge):
        # The copy reports it.
        return 0


@contextmanager
def folder_aside(tree: Path) -> Generator[Path]:
    """The folder of unfinished copies; removes those of an import that was killed.

    It is in the tree, so that a rename stays in its file system.

    Raises:
        Busy: another import is running.
    """
    aside = tree / paths.IMPORTS
    make_private(aside)
    handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another import into {tree} is running: wait until it is done") from None
        _empty(aside)
        try:
            yield aside
        finally:
            _empty(aside)
    finally:
        os.close(handle)


def _empty(aside: Path) -> None:
    for path in aside.iterdir():
        _discard(path)


@contextmanager
def nest_in(aside: Path) -> Generator[Path]:
    """A new folder named by a key, locked so that the daemon does not remove it."""
    while True:
        nest = aside / new_key()
        nest.mkdir(mode=0o700)
        # A daemon that starts may have removed it before it was locked.
        with suppress(FileNotFoundError), _locked(nest) as is_locked:
            if is_locked and nest.exists():
                try:
                    yield nest
                finally:
                    _discard(nest)
                return


def _discard(nest: Path) -> None:
    """Remove a folder with an unfinished copy, unless the daemon moves the copy to its place now.

    It removes the rest itself, at the next start and daily.
    """
    with suppress(FileNotFoundError):
        copy = nest / paths.PREPARED
        if not copy.is_dir():
            shutil.rmtree(nest)
            return
        with _locked(copy) as is_locked:
            if is_locked:
                shutil.rmtree(nest)


@contextmanager
def _locked(folder: Path) -> Generator[bool]:
    """Lock a folder until the block ends; False if another process has it locked."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


class Importer:
    """Brings sessions and transcripts into one root.

    Args:
        client: of the daemon of the root, on this machine.
        tree: the folder of its sessions.
        known: the files that are sessions there.
        redactor_for: what masks a session as it is written, by its id.
    """

    def __init__(
        self,
        client: BlockingClient,
        tree: Path,
        known: KnownFiles,
        redactor_for: Callable[[str], Redactor | None],
    ) -> None:
        self._client = client
        self._tree = tree
        self._known = known
        self._redactor_for = redactor_for

    def bring(
        self, source: Source, aside: Path, progress: Shown, *, is_named: bool
    ) -> tuple[Source, Followed | None]:
        """Import one session.

        Args:
            source: the session or transcript.
            aside: the folder of unfinished copies.
            progress: where the bytes are shown.
            is_named: the user gave its id, or a prefix of it.

        Returns:
            The source with the id that the session has, and what was there; None if it is new.

        Raises:
            NotCopied: a file cannot be read or written.
            StenoError: the daemon refused it.
        """
        try:
            if is_named or not isinstance(source, ForeignSource):
                return source, self._import(source, aside, progress)
            source = replace(source, session=self._known.session_of(source))
            try:
                return source, self._import(source, aside, progress)
            except AnotherCopy:
                source = replace(source, session=id_of_copy(source))
                return source, self._import(source, aside, progress)
        except OSError as error:
            raise NotCopied(
                f"{error.filename or source.folder} cannot be copied ({error.strerror or error}):"
                " nothing of the session was kept; remove the cause and import it again",
                session=source.session,
            ) from error

    def _import(self, source: Source, aside: Path, progress: Shown) -> Followed | None:
        redactor = self._redactor_for(source.session)
        if _is_there(source, self._tree, redactor):
            if isinstance(source, ForeignSource):
                return Follower(self._client, source, redactor).look()
            return Followed(source.session)
        take_in(self._client, source, aside, redactor, progress)
        if isinstance(source, ForeignSource):
            self._known.add(source.session, str(source.file), source.identity())
        return None


def take_in(
    client: BlockingClient,
    source: Source,
    aside: Path,
    redactor: Redactor | None,
    progress: Shown | None = None,
) -> None:
    """Make a session of a source that is none yet.

    Raises:
        Busy: the source was rewritten meanwhile.
        OSError: a file cannot be read or written.
        StenoError: the daemon refused it.
    """
    with nest_in(aside) as nest:
        _prepare(source, nest / paths.PREPARED, progress or Unshown(), redactor)
        _take_in(client, source, nest.name)


class Unshown:
    """Shows no progress."""

    def add(self, more: int, text: str = "") -> None:
        """Show nothing."""


def _is_there(source: Source, tree: Path, redactor: Redactor | None) -> bool:
    """Whether a session was imported before, now durable.

    Raises:
        BadRequest: its context is that of another program.
        Exists: another session has the id.
    """
    if isinstance(source, ImportSource):
        unknown = unknown_context(source.tree, source.context)
        if unknown is not None:
            raise BadRequest(f"{unknown.path} is not imported: {unknown.why}")
    _, segments = paths.split_session(source.session)
    target = tree.joinpath(*segments)
    if not target.exists():
        return False
    if isinstance(source, ForeignSource):
        # The daemon syncs what it reads, and the names above with the first append.
        return True
    _check_same(source, target, redactor)
    # The daemon that took it in may have died before the names on its path were synced.
    for folder in target.parents:
        sync_folder(folder)
        if folder == tree.parent:
            break
    return True


def _prepare(source: Source, copy: Path, progress: Shown, redactor: Redactor | None) -> None:
    """Copy one session to a new folder, masked and synced.

    Raises:
        Busy: it was rewritten while it was copied.
        OSError: it could not be copied.
    """
    copy.mkdir(mode=0o700)
    before = source.shape()
    _copy(source, copy, progress, redactor)
    if source.shape() != before:
        raise Busy(
            f"{source.folder} was rewritten while it was copied: import it again while the"
            " program that owns it is idle",
            session=source.session,
        )
    if redactor is not None:
        mask_files(redactor, copy)


def _take_in(client: BlockingClient, source: Source, key: str) -> None:
    """Let the daemon move the prepared folder of a key to its place.

    Raises:
        Exists: another session has the id now.
        Unanswered: it may be in its place.
        StenoError: the daemon refused it.
    """
    try:
        client.request(TakeIn(session=source.session, key=key), SessionStat)
    except OutcomeUnknown as error:
        raise Unanswered(
            f"{source.session} is in the root as a whole, or not at all ({error.message}): import"
            f" {source.origin} again",
            session=source.session,
        ) from error


def _check_same(source: ImportSource, target: Path, redactor: Redactor | None) -> None:
    """Return if the existing session begins as the source does.

    Raises:
        Exists: it does not.
    """
    contexts = [
        path
        for path in sorted(target.glob("context*.jsonl"))
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
    with source.tree.open(source.context) as wanted, path.open("rb") as file:
        lines = whole_lines(wanted, source.origin, [])
        first = next(lines, None)
        if first is None:
            return path.stat().st_size == 0
        return all(is_same_line(redactor, file.readline(), line) for line in chain([first], lines))


def _copy(source: Source, folder: Path, progress: Shown, redactor: Redactor | None) -> None:
    if isinstance(source, ForeignSource):
        _convert(source, folder, progress, redactor)
        return
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
        with source.tree.open(inside) as old, _new(target) as new:
            while block := old.read(limits.COPY_BYTES):
                if line is not None:
                    line.feed(block)
                new.write(block)
                progress.add(len(block), source.session)
            new.flush()
            sync_file(new.fileno())
            stat = os.fstat(old.fileno())
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in folders:
        sync_folder(each)


def _has_lines(below: PurePath) -> bool:
    return len(below.parts) == 1 and below.suffix == ".jsonl"


def _convert(
    source: ForeignSource, folder: Path, progress: Shown, redactor: Redactor | None
) -> None:
    mask = None if redactor is None else partial(masked_bytes, redactor)
    source.write(folder, lambda more: progress.add(more, source.session), mask)
    sync_folder(folder)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
