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

from steno.cli.configuration import read_file
from steno.cli.findings import Finding, ok, problem, warning
from steno.cli.wording import size
from steno_protocol import __version__, limits, places
from steno_protocol.errors import BadRequest

_OTHERS: Final = 0o077
_PACKAGES: Final = ("pyzmq", "msgspec", "anyio")


def examine_versions(_: Namespace, __: Path) -> Iterator[Finding]:
    """Which versions this command runs on."""
    told = [f"steno {__version__}", f"python {sys.version.split()[0]}"]
    missing: list[str] = []
    for package in _PACKAGES:
        try:
            told.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        yield problem(
            "versions",
            f"{', '.join(missing)} cannot be found",
            f"pip install {' '.join(missing)}, or install stenod again",
        )
    yield ok("versions", ", ".join(told))


def examine_root(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the root is a folder that belongs to us alone."""
    try:
        found = root.stat()
    except FileNotFoundError:
        yield ok("root", f"{root} is not there yet: the first daemon makes it")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield problem("root", f"{root} is no folder", "move it away, or choose another --root")
        return
    if found.st_uid != os.getuid():
        yield problem(
            "root",
            f"{root} belongs to uid {found.st_uid}, and you are uid {os.getuid()}",
            f"run steno as its owner, or `chown -R {os.getuid()} {root}`",
        )
    elif not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        yield problem("root", f"{root} cannot be written", f"chmod u+rwx {root}")
    elif found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        yield warning(
            "root", f"{root} has mode {mode:o}: others may look into it", f"chmod 700 {root}"
        )
    else:
        yield ok("root", f"{root}, mode {stat.S_IMODE(found.st_mode):o}")


def examine_config(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether `config.toml` is valid and its mounts are there."""
    path = root / places.CONFIG
    try:
        settings = read_file(root, dict(os.environ))
    except BadRequest as error:
        remedy = "correct it: a daemon that starts refuses it"
        yield problem("config", error.message, remedy)
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
    free = found.f_bavail * found.f_frsize
    try:
        floor = read_file(root, dict(os.environ)).count("disk.free_bytes")
    except BadRequest:
        floor = limits.FREE_BYTES
    told = f"{size(free)} free of {size(found.f_blocks * found.f_frsize)}"
    remedy = "make room: `steno gc --dry-run` says what steno could give up"
    if free < floor:
        floor_told = f"{told}, less than the floor of {size(floor)}: appends are refused"
        yield problem("disk", floor_told, remedy)
    elif free < limits.DISK_ALMOST_FULL_BYTES:
        yield warning("disk", told, remedy)
    elif found.f_files and found.f_favail == 0:
        yield problem("disk", "no file can be made: the disk has no inodes left", remedy)
    else:
        yield ok("disk", told)


def examine_sync(_: Namespace, root: Path) -> Iterator[Finding]:
    """What a sync costs on this disk: each acknowledged append waits for one."""
    if not root.is_dir():
        return
    took_s = median(_time_syncs(root))
    told = f"append and fdatasync take {1000 * took_s:.2f} ms"
    if took_s > limits.SLOW_SYNC_S:
        remedy = "see what else writes to this disk, or put the root on another one with --root"
        yield warning("sync", told, remedy)
    else:
        yield ok("sync", told)


def _time_syncs(root: Path) -> list[float]:
    path = root / f".doctor-{os.getpid()}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    took_s: list[float] = []
    try:
        for _ in range(limits.DOCTOR_SYNCS_MAX):
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
