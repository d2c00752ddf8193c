"""The doctor's check of other roots: daemons of another version, and what demos left."""

import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from shlex import quote

from steno.local import is_free, note_of, process_of
from steno_cli.command_limits import DEMO_PREFIX, FORGOTTEN_LISTED_MAX, FORGOTTEN_S, TRIAL_PREFIX
from steno_cli.doctor import Finding, steno, warning
from steno_protocol import __version__, paths
from steno_protocol.paths import LockNote


def check_leftovers(_: Namespace, root: Path) -> Iterator[Finding]:
    """The daemons of other versions on other roots of this user, and the roots of old demos."""
    for other, note in _daemons().items():
        if other != root and note.version != __version__:
            text = f"stenod {note.version}, pid {note.pid}, runs on {other}"
            remedy = f"`{steno(other, 'restart')}`, or `{steno(other, 'stop')}`"
            yield warning(f"{text}; this command is {__version__}", remedy)
    for folder in _forgotten()[:FORGOTTEN_LISTED_MAX]:
        text = f"{folder} was left behind by a demo"
        yield warning(text, f"`rm -r {quote(str(folder))}` removes it")


def _daemons() -> dict[Path, LockNote]:
    """The notes of this user's daemons by their roots."""
    found: dict[Path, LockNote] = {}
    processes: list[Path] = []
    # macOS has none, and shows no files of other processes.
    with suppress(FileNotFoundError):
        processes.extend(Path("/proc").iterdir())
    for process in processes:
        # A process may end at any time, and that of another user shows nothing.
        with suppress(OSError):
            if process.name.isdecimal() and process.stat().st_uid == os.getuid():
                found |= {
                    root: note
                    for root in _roots_of(process)
                    if (note := note_of(root)) is not None
                    and process_of(root, note) == int(process.name)
                }
    return found


def _roots_of(process: Path) -> list[Path]:
    """The folders that may be the root of a process, if it is a daemon."""
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if not any(Path(word).name == "stenod" for word in words):
        return []
    # A daemon in the background works in its root; one in the foreground was given it.
    folder = Path(os.readlink(process / "cwd"))  # noqa: PTH115  # as the kernel spells it
    pairs = pairwise(words)
    given = [value for word, value in pairs if word == "--root"]
    given += [word.removeprefix("--root=") for word in words if word.startswith("--root=")]
    return [folder, *(folder / each for each in given)]


def _forgotten() -> list[Path]:
    """The old folders of demos and trials in which no daemon runs."""
    place, found = Path(tempfile.gettempdir()), list[Path]()
    for prefix in (DEMO_PREFIX, TRIAL_PREFIX):
        for folder in sorted(place.glob(f"{prefix}*")):
            with suppress(OSError):
                info = folder.lstat()
                is_old = time.time() - info.st_mtime > FORGOTTEN_S
                locks = (folder, *(each.parent for each in folder.glob(f"*/{paths.LOCK}")))
                if info.st_uid == os.getuid() and is_old and all(map(is_free, locks)):
                    found.append(folder)
    return found
