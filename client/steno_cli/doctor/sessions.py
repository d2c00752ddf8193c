"""The doctor's check of the sessions: file types, owners, last lines and quarantines.

It reads the end of each file only; `steno verify` checks whole files.
"""

import errno
import json
import os
import stat
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import join, quote
from typing import Final

from steno.local import open_regular
from steno_cli.doctor import Finding, ok, problem, steno, warning
from steno_cli.doctor.root import settings_of
from steno_present.wording import count
from steno_protocol import limits, paths
from steno_protocol.private_files import kind_of

_FILES: Final = frozenset(
    {
        paths.CONTEXT,
        paths.WIRE,
        paths.TIMELINE,
        paths.STATE,
        paths.recovery_point_file(paths.CONTEXT),
        paths.recovery_point_file(paths.WIRE),
    }
)
"""The files of a session besides its past generations."""

_READ_WHOLE: Final = frozenset({paths.WIRE, paths.TIMELINE, paths.STATE})
"""Files whose end is not read here, so that no failed read reports them."""

_NO_SESSIONS: Final = (paths.QUARANTINE, paths.CONTEXT)
"""Folders in a session that contain no session."""


def check_sessions(_: Namespace, root: Path) -> Iterator[Finding]:
    """The findings about the sessions of the root and its mounts."""
    trees = {"": str(root / paths.SESSIONS)}
    trees |= {f"{name}:": folder for name, folder in settings_of(root).folders.items()}
    checked, troubled = 0, 0
    for prefix, tree in trees.items():
        for is_session, findings in _checked(root, prefix, Path(tree)):
            checked += is_session
            troubled += bool(findings)
            if troubled <= limits.FINDINGS_LISTED_MAX:
                yield from findings
            if checked >= limits.LIST_SESSIONS_MAX:
                yield ok(f"only the first {checked} were checked")
                return
    if not troubled:
        yield ok(f"{count(checked, 'session')}, nothing to report")


def _checked(root: Path, prefix: str, tree: Path) -> Iterator[tuple[bool, list[Finding]]]:
    """The findings folder by folder, with whether it is a session; hidden folders are skipped."""
    errors: list[OSError] = []
    sessions: set[Path] = set()
    for place, folders, files in os.walk(tree, onerror=errors.append):
        names = {*folders, *files}
        folders[:] = sorted(
            name for name in folders if name[:1] != "." and name not in _NO_SESSIONS
        )
        folder = Path(place)
        if paths.CONTEXT in names or any(map(paths.generation_of, names)):
            session = prefix + folder.relative_to(tree).as_posix()
            yield True, list(_check_session(root, session, folder, names))
            sessions.add(folder)
        elif not prefix and sessions.isdisjoint(folder.parents):
            # Other files in a session or a mount belong to other programs.
            yield from ((False, [each]) for each in _obstacles(folder, names))
    for error in errors:
        # Removed meanwhile, or reported with the root and the configuration.
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            path = error.filename or str(tree)
            yield False, [_unreadable(path, path, error)]


def _obstacles(folder: Path, names: set[str]) -> Iterator[Finding]:
    """The names that are neither folder nor file where sessions are expected."""
    for name in sorted(names):
        mode = None if name.startswith(".") else _mode(folder / name)
        if mode is not None and not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            text = f"{folder / name} is {kind_of(mode)}: it cannot contain a session"
            yield warning(text, "move it away, or replace it by the folder itself")


def _check_session(root: Path, session: str, folder: Path, names: set[str]) -> Iterator[Finding]:
    yield from _check_files(session, folder, names)
    if paths.CONTEXT not in names and _is_settled(session, folder):
        generations = (number for number in map(paths.generation_of, names) if number is not None)
        newest = folder / paths.generation_file(max(generations))
        text = f"{session}: it has older generations and no {paths.CONTEXT}"
        move = join(["mv", str(newest), str(folder / paths.CONTEXT)])
        remedy = f"to continue from the newest: `{move}`"
        yield problem(text, remedy)
    with suppress(FileNotFoundError):  # moved or removed meanwhile
        try:
            yield from _check_context(root, session, folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            path = error.filename or folder
            yield _unreadable(f"{session}: {path}", str(folder), error)


def _unreadable(text: str, path: str, error: OSError) -> Finding:
    remedy = f"`chmod -R u+rwX {quote(path)}`"
    if not isinstance(error, PermissionError):
        remedy = "the kernel's log has the reason; restore it from a backup"
    return problem(f"{text} cannot be read: {error.strerror}", remedy)


def _check_files(session: str, folder: Path, names: set[str]) -> Iterator[Finding]:
    """The session's files and its quarantine: another type, or closed to their owner."""
    for name in sorted(names):
        is_quarantine = name == paths.QUARANTINE
        is_own = name in _FILES or paths.is_stream_file(name)
        if not is_quarantine and not is_own and paths.generation_of(name) is None:
            continue
        path, mode = folder / name, _mode(folder / name)
        if mode is None:
            continue
        if not (stat.S_ISDIR(mode) if is_quarantine else stat.S_ISREG(mode)):
            kind = "folder" if is_quarantine else "regular file of its own"
            text = f"{session}: {path} is {kind_of(mode)}, and has to be a {kind}"
            yield problem(text, "move it away, and put a copy of its target there")
        elif name in _READ_WHOLE and not os.access(path, os.R_OK | os.W_OK):
            denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            yield _unreadable(f"{session}: {path}", str(path), denied)


def _mode(path: Path) -> int | None:
    with suppress(OSError):
        return path.lstat().st_mode
    return None


def _is_settled(session: str, folder: Path) -> bool:
    """Whether the files of a folder are at rest; in a mount, other programs move them."""
    with suppress(OSError):
        age_s = time.time() - folder.stat().st_mtime
        return ":" not in session or abs(age_s) > limits.FOREIGN_SETTLE_S
    return False


def _check_context(root: Path, session: str, folder: Path) -> Iterator[Finding]:
    context = folder / paths.CONTEXT
    found = context.lstat()
    if found.st_uid != os.getuid():
        text = f"{session}: its files belong to uid {found.st_uid}, so that your daemon cannot"
        yield problem(f"{text} open it", f"`chown -R {os.getuid()} {quote(str(folder))}`")
        return
    # abs: a clock that was set back leaves a time in the future.
    is_settled = abs(time.time() - found.st_mtime) > limits.FOREIGN_SETTLE_S
    if stat.S_ISREG(found.st_mode) and is_settled and (trouble := _trouble_at_end(context)):
        verify = steno(root, "verify", session)
        remedy = f"the next append moves it to quarantine; `{verify}` gives details"
        yield warning(f"{session}: {trouble}", remedy)
    quarantine = folder / paths.QUARANTINE
    with suppress(OSError):
        if kept := len(list(quarantine.iterdir())):
            text = f"{session}: {count(kept, 'damaged part')} in quarantine"
            yield warning(text, f"check {quarantine}, and remove what you do not need")


def _trouble_at_end(path: Path) -> str:
    """The damage of the last line of a file, empty if there is none."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limits.FINGERPRINT_BYTES))
        tail = file.read()
    if not tail:
        return ""
    if not tail.endswith(b"\n"):
        return "its last line is not finished"
    *before, line = tail[:-1].rsplit(b"\n", 1)
    if not before and size > len(tail):
        # The line is longer than the tail: only reading all of it would show its state.
        return ""
    if b"\0" in line:
        return "its last line has NUL bytes, as after a power cut"
    try:
        json.loads(line or b"{}")
    except (ValueError, RecursionError):
        return "its last line is no JSON"
    return ""
