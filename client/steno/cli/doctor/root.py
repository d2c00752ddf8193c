"""The doctor's look at a root: versions, permissions, configuration, room, cost of a sync."""

import os
import stat
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Final

from steno.cli.command_limits import DISK_ALMOST_FULL_BYTES, DOCTOR_SYNCS_MAX
from steno.cli.configuration import read_file
from steno.cli.doctor.findings import Finding, ok, problem, warning
from steno.cli.render.wording import size
from steno_protocol import __version__, credentials, limits, paths
from steno_protocol.errors import BadRequest
from steno_protocol.file_types import kind_of

_OTHERS: Final = 0o077

_PARTS: Final = (
    (paths.LOCK, stat.S_ISREG, "regular file"),
    (paths.START_LOCK, stat.S_ISREG, "regular file"),
    (paths.LOG, stat.S_ISREG, "regular file"),
    (paths.SESSIONS, stat.S_ISDIR, "folder"),
    (credentials.KEYS_FOLDER, stat.S_ISDIR, "folder"),
)
"""The parts of a root: their names, and what each has to be."""

_PACKAGES: Final = ("pyzmq", "msgspec", "anyio")


def examine_versions(_: Namespace, __: Path) -> Iterator[Finding]:
    """Which versions this command runs on."""
    text = [f"steno {__version__}", f"python {sys.version.split()[0]}"]
    missing: list[str] = []
    for package in _PACKAGES:
        try:
            text.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        yield problem(
            "versions",
            f"{', '.join(missing)} cannot be found",
            f"pip install {' '.join(missing)}, or install stenod again",
        )
    yield ok("versions", ", ".join(text))


def examine_root(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the root is a folder that belongs to us alone, and its parts are what they are."""
    try:
        found = root.stat()
    except FileNotFoundError:
        yield _missing(root)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield problem("root", f"{root} is no folder", "move it away, or choose another --root")
        return
    yield from _misplaced(root)
    if found.st_uid != os.getuid():
        yield problem(
            "root",
            f"{root} belongs to uid {found.st_uid}, and you are uid {os.getuid()}",
            f"run steno as its owner, or `chown -R {os.getuid()} {root}`",
        )
    elif os.statvfs(root).f_flag & os.ST_RDONLY:
        yield _read_only(root)
    elif not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        yield problem("root", f"{root} cannot be written", f"chmod u+rwx {root}")
    elif found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        yield warning(
            "root", f"{root} has mode {mode:o}: others may look into it", f"chmod 700 {root}"
        )
    else:
        yield ok("root", f"{root}, mode {stat.S_IMODE(found.st_mode):o}")


def _missing(root: Path) -> Finding:
    """What is to be said of a root that is not there: whether it can be made."""
    above = _existing(root)
    if os.statvfs(above).f_flag & os.ST_RDONLY:
        return _read_only(above)
    if not os.access(above, os.W_OK | os.X_OK):
        text = f"{root} is not there, and in {above} you can make nothing"
        return problem("root", text, "make the root, or choose another --root")
    return ok("root", f"{root} is not there yet: the first daemon makes it")


def _read_only(folder: Path) -> Finding:
    text = f"the file system of {folder} is read-only"
    return problem("root", text, "mount it for writing (the kernel's log says why it is not)")


def _misplaced(root: Path) -> Iterator[Finding]:
    """What lies in the place of a file or a folder of the root, and is none."""
    for name, is_right, wanted in _PARTS:
        path = root / name
        mode = _mode(path, follow=name != paths.LOCK)
        if mode is not None and not is_right(mode):
            nothing = " to nothing" if stat.S_ISLNK(mode) and not path.exists() else ""
            yield problem(
                "root",
                f"{path} is {kind_of(mode)}{nothing}, and has to be a {wanted}",
                "move it away: the next daemon makes another where it needs one",
            )


def _mode(path: Path, *, follow: bool) -> int | None:
    """What lies at a path, behind a link if it leads anywhere; None if nothing does."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        with suppress(OSError):
            return path.stat().st_mode if follow else mode
        return mode
    return None


def examine_config(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether `config.toml` is valid and its mounts are there."""
    path = root / paths.CONFIG
    try:
        settings = read_file(root, dict(os.environ))
    except BadRequest as error:
        remedy = "correct it: a daemon that starts refuses it"
        yield problem("config", error.message, remedy)
        return
    if path.is_symlink() and not path.exists():
        text = f"{path} is a symbolic link to nothing, so that all defaults are in force"
        yield warning("config", text, "put a file where it leads, or remove it")
        return
    for name, place in settings.folders.items():
        if not os.path.isdir(place):  # noqa: PTH112  # a Path raises where it may not look
            yield warning(
                "config",
                f"the mount {name!r} is {place}, which is no folder",
                f"make it, or take the mount out of {path}",
            )
    yield ok("config", f"{path} is valid" if path.exists() else "no config.toml: all defaults")


def examine_disk(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether there is room."""
    found = os.statvfs(_existing(root))
    if not found.f_blocks:
        yield ok("disk", "its file system does not report its free space")
        return
    free = found.f_bavail * found.f_frsize
    try:
        floor = read_file(root, dict(os.environ)).count("disk.free_bytes")
    except BadRequest:
        floor = limits.FREE_BYTES
    text = f"{size(free)} free of {size(found.f_blocks * found.f_frsize)}"
    remedy = "make room: `steno gc --dry-run` says what steno could give up"
    if free < floor:
        floor_text = f"{text}, less than the floor of {size(floor)}: appends are refused"
        yield problem("disk", floor_text, remedy)
    elif found.f_files and found.f_favail == 0:
        yield problem("disk", f"no file can be made: {text}, and no inode (see `df -i`)", remedy)
    elif free < DISK_ALMOST_FULL_BYTES:
        yield warning("disk", text, remedy)
    else:
        yield ok("disk", text)


def examine_sync(_: Namespace, root: Path) -> Iterator[Finding]:
    """What a sync costs on this disk: each acknowledged append waits for one."""
    if not root.is_dir():
        return
    took_s = median(_time_syncs(root))
    text = f"append and fdatasync take {1000 * took_s:.2f} ms"
    if took_s > limits.SLOW_SYNC_S:
        remedy = "see what else writes to this disk, or put the root on another one with --root"
        yield warning("sync", text, remedy)
    else:
        yield ok("sync", text)


def examine_links(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether a file can have two names, as what a rewrite leaves behind; nothing when it can."""
    if not root.is_dir():
        return
    path, second = (root / f".doctor-{os.getpid()}{end}" for end in ("", ".link"))
    path.touch(0o600)
    try:
        os.link(path, second)
    except OSError as error:
        yield problem(
            "links",
            f"files cannot have two names here ({error.strerror}): what rewrites a session is"
            " refused, as a revert, a clear or a compaction",
            "put the root on a file system with hard links with --root (exFAT and FAT have none)",
        )
    finally:
        for each in (path, second):
            with suppress(OSError):
                each.unlink()


def _time_syncs(root: Path) -> list[float]:
    path = root / f".doctor-{os.getpid()}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    took_s: list[float] = []
    try:
        for _ in range(DOCTOR_SYNCS_MAX):
            started = time.perf_counter()
            os.write(handle, b"x" * 512)
            os.fdatasync(handle)
            took_s.append(time.perf_counter() - started)
    finally:
        os.close(handle)
        with suppress(OSError):
            path.unlink()
    return took_s


def _existing(path: Path) -> Path:
    """The path, or the first folder above it that is there."""
    return next(place for place in (path, *path.parents) if place.exists())
