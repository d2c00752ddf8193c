"""The doctor's quick look at every session: owner, last line, and what recovery left behind.

A look at the end of each file, not a check of it: that is `steno verify`.
"""

import json
import os
import stat
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from steno._connect.safe_open import open_regular
from steno.cli.configuration import read_file
from steno.cli.doctor.findings import Finding, ok, problem, warning
from steno.cli.render.wording import count
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest
from steno_protocol.file_types import kind_of

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
"""What is a file where a session has it, besides its generations."""

_NOT_WALKED: Final = (paths.QUARANTINE, paths.CONTEXT)
"""What lies in a session's folder and holds none, if it is a folder."""


class _Look(NamedTuple):
    """What was found at one place.

    Attributes:
        is_session: a session lies there; else it is something that no session can lie in.
    """

    is_session: bool
    found: list[Finding]


def examine_sessions(_: Namespace, root: Path) -> Iterator[Finding]:
    """The findings about the sessions of the root and its mounts."""
    looked, troubled = 0, 0
    for prefix, tree in _trees(root):
        for is_session, found in _looks(prefix, tree):
            looked += is_session
            troubled += bool(found)
            if troubled <= limits.FINDINGS_TOLD_MAX:
                yield from found
            if looked >= limits.LIST_SESSIONS_MAX:
                yield ok("sessions", f"the first {looked} were looked at")
                return
    if not troubled:
        yield ok("sessions", f"{count(looked, 'session')}, nothing to report")


def _trees(root: Path) -> Iterator[tuple[str, Path]]:
    yield "", root / paths.SESSIONS
    with suppress(BadRequest):
        for name, folder in read_file(root, dict(os.environ)).folders.items():
            yield f"{name}:", Path(folder)


def _looks(prefix: str, tree: Path) -> Iterator[_Look]:
    """The sessions of a tree, and what is in the way of any; hidden folders are none of ours."""
    unread: list[OSError] = []
    sessions: set[Path] = set()
    for place, folders, files in os.walk(tree, onerror=unread.append):
        there = {*folders, *files}
        folders[:] = sorted(name for name in folders if _is_walked(name))
        folder = Path(place)
        if _is_session(there):
            session = prefix + folder.relative_to(tree).as_posix()
            yield _Look(True, _examined(session, folder, there))
            sessions.add(folder)
        elif not prefix and sessions.isdisjoint(folder.parents):
            # Other files in a session or a mount belong to other programs.
            yield from (_Look(False, [each]) for each in _in_the_way(folder, there))
    for error in unread:
        # Gone meanwhile, or reported with the root and the configuration.
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            yield _Look(False, [_unreadable(error.filename or str(tree), error)])


def _is_walked(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_WALKED


def _is_session(there: set[str]) -> bool:
    return paths.CONTEXT in there or any(paths.generation_of(name) for name in there)


def _unreadable(path: str, error: OSError) -> Finding:
    text = f"{path} cannot be read: {error.strerror}"
    return warning("sessions", text, f"chmod -R u+rwX {path}")


def _in_the_way(folder: Path, there: set[str]) -> Iterator[Finding]:
    """What is neither folder nor file where sessions lie."""
    for name in sorted(there):
        mode = None if name.startswith(".") else _mode(folder / name)
        if mode is not None and not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            yield warning(
                "sessions",
                f"{folder / name} is {kind_of(mode)}: no session can lie there",
                "move it away, or put the folder itself in its place",
            )


def _examined(session: str, folder: Path, there: set[str]) -> list[Finding]:
    """The findings about one session; an unreadable session does not end the check of the
    others."""
    found = list(_misplaced(session, folder, there))
    if paths.CONTEXT not in there and _is_settled(session, folder):
        found.append(_without_context(session, folder, there))
    with suppress(FileNotFoundError):  # moved or removed meanwhile
        try:
            found.extend(_examine(session, folder))
        except PermissionError as error:
            text = f"{session}: {error.filename or folder} cannot be read: {error.strerror}"
            found.append(warning("sessions", text, f"chmod -R u+rwX {folder}"))
    return found


def _misplaced(session: str, folder: Path, there: set[str]) -> Iterator[Finding]:
    """What lies in the place of a file of the session, or of its quarantine, and is none."""
    for name in sorted(there):
        mode = _mode(folder / name) if _is_own(name) else None
        if mode is None:
            continue
        is_folder = name == paths.QUARANTINE
        if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
            wanted = "folder" if is_folder else "regular file of its own"
            yield problem(
                "sessions",
                f"{session}: {folder / name} is {kind_of(mode)}, and has to be a {wanted}",
                "move it away, and put back what it stands for, if anything",
            )


def _is_own(name: str) -> bool:
    return name in _FILES or name == paths.QUARANTINE or paths.generation_of(name) is not None


def _mode(path: Path) -> int | None:
    with suppress(OSError):
        return path.lstat().st_mode
    return None


def _is_settled(session: str, folder: Path) -> bool:
    """Whether the files of a folder are at rest; in a mount other programs move them."""
    with suppress(OSError):
        age_s = time.time() - folder.stat().st_mtime
        return ":" not in session or abs(age_s) > limits.FOREIGN_SETTLE_S
    return False


def _without_context(session: str, folder: Path, there: set[str]) -> Finding:
    numbers = (number for number in map(paths.generation_of, there) if number is not None)
    newest = folder / paths.generation_file(max(numbers))
    return problem(
        "sessions",
        f"{session}: it has older generations and no {paths.CONTEXT}",
        f"to go on from the newest: mv {newest} {folder / paths.CONTEXT}",
    )


def _examine(session: str, folder: Path) -> Iterator[Finding]:
    context = folder / paths.CONTEXT
    found = context.lstat()
    if found.st_uid != os.getuid():
        yield warning(
            "sessions",
            f"{session}: its files belong to uid {found.st_uid}, so no daemon of yours opens it",
            f"chown -R {os.getuid()} {folder}",
        )
        # What of it may be read is for its owner to look at.
        return
    is_file = stat.S_ISREG(found.st_mode)
    # A clock that was set back makes a file of the future; it has stood still, too.
    settled = abs(time.time() - found.st_mtime) > limits.FOREIGN_SETTLE_S
    if is_file and settled and (trouble := _trouble_at_end(context)):
        yield warning(
            "sessions",
            f"{session}: {trouble}",
            f"the next append moves it to quarantine; `steno verify {session}` gives details",
        )
    with suppress(OSError):
        kept = len(list((folder / paths.QUARANTINE).iterdir()))
        if kept:
            yield warning(
                "sessions",
                f"{session}: {count(kept, 'damage')} in quarantine",
                f"look at {folder / paths.QUARANTINE}, and remove what you do not need",
            )


def _trouble_at_end(path: Path) -> str:
    """What is wrong with the last line of a file, empty when nothing is."""
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
        # A line longer than the bytes read: only reading all of it would show whether it is whole.
        return ""
    if b"\0" in line:
        return "its last line holds NUL bytes, as after a power cut"
    try:
        json.loads(line or b"{}")
    except (ValueError, RecursionError):
        return "its last line is no JSON"
    return ""
