"""The doctor's quick look at every session: owner, last line, and what recovery left behind.

A look at the end of each file, not a check of it: that is `steno verify`.
"""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from steno.cli.configuration import read_file
from steno.cli.findings import Finding, ok, warning
from steno.cli.wording import count
from steno_protocol import limits, places
from steno_protocol.errors import BadRequest


def examine_sessions(_: Namespace, root: Path) -> Iterator[Finding]:
    """The sessions of the root and its mounts; one finding for each that has something to tell."""
    looked, troubled = 0, 0
    for prefix, tree in _trees(root):
        for folder in _folders(tree):
            looked += 1
            found = _examined(prefix + folder.relative_to(tree).as_posix(), folder)
            troubled += bool(found)
            if troubled <= limits.FINDINGS_TOLD_MAX:
                yield from found
            if looked >= limits.LIST_SESSIONS_MAX:
                yield ok("sessions", f"the first {looked} were looked at")
                return
    if not troubled:
        yield ok("sessions", f"{count(looked, 'session')}, nothing to tell")


def _trees(root: Path) -> Iterator[tuple[str, Path]]:
    yield "", root / places.SESSIONS
    with suppress(BadRequest):
        for name, folder in read_file(root, dict(os.environ)).folders.items():
            yield f"{name}:", Path(folder)


def _folders(tree: Path) -> Iterator[Path]:
    """Folders with a context, and what lies below them; hidden ones are none of ours."""
    for place, names, files in os.walk(tree):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if places.CONTEXT in files:
            yield Path(place)


def _examined(session: str, folder: Path) -> list[Finding]:
    """What a session has to tell; that it cannot be looked at ends no look at the others."""
    found: list[Finding] = []
    with suppress(FileNotFoundError):  # moved or removed meanwhile
        try:
            found.extend(_examine(session, folder))
        except PermissionError as error:
            told = f"{session}: {error.filename or folder} cannot be read: {error.strerror}"
            found.append(warning("sessions", told, f"chmod -R u+rwX {folder}"))
    return found


def _examine(session: str, folder: Path) -> Iterator[Finding]:
    context = folder / places.CONTEXT
    found = context.stat()
    if found.st_uid != os.getuid():
        yield warning(
            "sessions",
            f"{session}: its files belong to uid {found.st_uid}, so no daemon of yours opens it",
            f"chown -R {os.getuid()} {folder}",
        )
        # What of it may be read is for its owner to look at.
        return
    settled = time.time() - found.st_mtime > limits.FOREIGN_SETTLE_S
    if settled and (trouble := _trouble_at_end(context)):
        yield warning(
            "sessions",
            f"{session}: {trouble}",
            f"the next append moves it to quarantine; `steno verify {session}` tells more",
        )
    with suppress(OSError):
        kept = len(list((folder / places.QUARANTINE).iterdir()))
        if kept:
            yield warning(
                "sessions",
                f"{session}: {count(kept, 'damage')} in quarantine",
                f"look at {folder / places.QUARANTINE}, and remove what you do not need",
            )


def _trouble_at_end(path: Path) -> str:
    """What is wrong with the last line of a file, empty when nothing is."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limits.FINGERPRINT_BYTES))
        tail = file.read()
    if not tail:
        return ""
    if not tail.endswith(b"\n"):
        return "its last line is not finished"
    *before, line = tail[:-1].rsplit(b"\n", 1)
    if not before and size > len(tail):
        # A line longer than what was read: whether it is whole, only reading it would tell.
        return ""
    if b"\0" in line:
        return "its last line holds NUL bytes, as after a power cut"
    try:
        json.loads(line or b"{}")
    except (ValueError, RecursionError):
        return "its last line is no JSON"
    return ""
