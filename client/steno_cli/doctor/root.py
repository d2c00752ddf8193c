"""The doctor's checks of a root: versions, permissions, configuration, keys, space and syncs."""

import os
import stat
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from steno.local import check_folder, fdatasync, read_secret
from steno_cli.command_limits import DISK_ALMOST_FULL_BYTES, DOCTOR_SYNCS_MAX
from steno_cli.configuration import read_file
from steno_cli.doctor import Finding, ok, problem, steno, warning
from steno_present.wording import count, size
from steno_protocol import __version__, credentials, limits, paths
from steno_protocol.errors import BadRequest, StenoError, Unauthorized
from steno_protocol.private_files import kind_of
from steno_protocol.settings import Settings

_PARTS: Final = {
    paths.LOCK: "regular file",
    paths.START_LOCK: "regular file",
    paths.LOG: "regular file",
    paths.PORT: "regular file",
    paths.SESSIONS: "folder",
    credentials.KEYS_FOLDER: "folder",
}
"""The parts of a root and their types."""


def check_versions(_: Namespace, __: Path) -> Iterator[Finding]:
    """The versions of this command and its packages."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyzmq", "msgspec", "anyio"))
    yield ok(f"steno {__version__}, python {sys.version.split()[0]}, {packages}")


def check_root(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the root is a private, writable folder, and its parts have the right types."""
    try:
        found = root.stat()
    except FileNotFoundError:
        yield _missing(root)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield problem(f"{root} is no folder", "move it away, or choose another --root")
        return
    yield from _misplaced(root)
    if found.st_uid != os.getuid():
        owners = f"{root} belongs to uid {found.st_uid}, and you are uid {os.getuid()}"
        change = f"chown -R {os.getuid()} {quote(str(root))}"
        yield problem(owners, f"run steno as its owner, or run `{change}`")
    elif os.statvfs(root).f_flag & os.ST_RDONLY:
        yield _read_only(root)
    elif not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        yield problem(f"{root} cannot be written", f"`chmod u+rwx {quote(str(root))}`")
    else:
        yield _mode(root, stat.S_IMODE(found.st_mode))


def _missing(root: Path) -> Finding:
    above = nearest_folder(root)
    if os.statvfs(above).f_flag & os.ST_RDONLY:
        return _read_only(above)
    if not os.access(above, os.W_OK | os.X_OK):
        text = f"{root} does not exist, and you cannot create anything in {above}"
        return problem(text, "create the root, or choose another --root")
    return ok(f"{root} does not exist yet: the first daemon creates it")


def _read_only(folder: Path) -> Finding:
    remedy = "mount it for writing (the kernel's log has the reason)"
    return problem(f"the file system of {folder} is read-only", remedy)


def _mode(root: Path, mode: int) -> Finding:
    try:
        check_folder(root)
    except Unauthorized as error:
        return problem(
            f"{error.message}; until then no daemon starts", f"`chmod 700 {quote(str(root))}`"
        )
    if mode & 0o077:
        text = f"{root} has mode {mode:o}: other users can read it"
        return warning(text, f"`chmod 700 {quote(str(root))}`")
    return ok(f"{root}, mode {mode:o}")


def _misplaced(root: Path) -> Iterator[Finding]:
    for name, kind in _PARTS.items():
        path = root / name
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            # A daemon opens its lock without following links.
            if stat.S_ISLNK(mode) and name != paths.LOCK:
                with suppress(OSError):
                    mode = path.stat().st_mode
            if not (stat.S_ISDIR(mode) if kind == "folder" else stat.S_ISREG(mode)):
                text = f"{path} is {kind_of(mode)}, and has to be a {kind}"
                yield problem(text, "move it away: the next daemon creates another")


def check_config(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether `config.toml` is valid and its mounts exist."""
    path = root / paths.CONFIG
    try:
        settings = read_file(root, dict(os.environ))
    except BadRequest as error:
        yield problem(error.message, "correct it: a daemon does not start with it")
        return
    if path.is_symlink() and not path.exists():
        text = f"{path} is a symbolic link to nothing, so that all defaults are in force"
        yield warning(text, "create its target, or remove the link")
        return
    for name, folder in settings.folders.items():
        if not os.path.isdir(folder):  # noqa: PTH112  # a Path raises without permission
            text = f"the mount {name!r} is {folder}, which is no folder"
            yield warning(text, f"create it, or remove the mount from {path}")
    yield ok(f"{path} is valid" if path.exists() else "no config.toml: all defaults")


def check_keys(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether the key files are valid and readable only by their owner."""
    folder = root / credentials.KEYS_FOLDER
    own, clients = folder / credentials.SERVER_FILE, folder / credentials.CLIENTS_FILE
    address = settings_of(root).text("network.listen")
    if address or os.path.lexists(own):
        try:
            credentials.decode_pair(read_secret(str(own)), str(own))
        except StenoError as error:
            needed = f"; a daemon that listens at {address} does not start without it"
            new_key = steno(root, "keys", "new", "NAME")
            remedy = f"correct it, or move it away and let `{new_key}` create one"
            yield problem(error.message + (needed if address else ""), remedy)
    if not os.path.lexists(clients):
        yield ok("no client of another machine is admitted")
        return
    try:
        admitted = credentials.decode_clients(read_secret(str(clients)), str(clients))
    except StenoError as error:
        text = f"{error.message}; until then no client of another machine is admitted"
        yield problem(
            text, f"correct it: `{steno(root, 'keys', 'list')}` reads it as the daemon does"
        )
    else:
        yield ok(f"{count(len(admitted), 'client')} of other machines admitted")


def check_disk(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether there is free space, for the root and for each mount on another file system."""
    settings = settings_of(root)
    places = {"": nearest_folder(root)} | {
        f"the mount {name}: ": Path(folder)
        for name, folder in settings.folders.items()
        if os.path.isdir(folder)  # noqa: PTH112  # a Path raises without permission
    }
    checked: set[int] = set()
    for prefix, place in places.items():
        device = os.stat(place).st_dev  # noqa: PTH116
        if device not in checked:
            checked.add(device)
            yield _free_space(root, prefix, place, settings.count("disk.free_bytes"))


def _free_space(root: Path, prefix: str, place: Path, floor: int) -> Finding:
    found = os.statvfs(place)
    if not found.f_blocks:
        return ok(f"{prefix}the file system does not report its free space")
    free = found.f_bavail * found.f_frsize
    text = f"{prefix}{size(free)} free of {size(found.f_blocks * found.f_frsize)}"
    remedy = f"free some space: `{steno(root, 'gc', '--dry-run')}` shows what steno can remove"
    if free < floor:
        return problem(f"{text}, less than the floor of {size(floor)}: appends are refused", remedy)
    if not free:
        return problem(f"{text}: appends fail", remedy)
    if found.f_files and found.f_favail == 0:
        return problem(f"no file can be created: {text}, and no inode (see `df -i`)", remedy)
    return warning(text, remedy) if free < DISK_ALMOST_FULL_BYTES else ok(text)


def check_sync(_: Namespace, root: Path) -> Iterator[Finding]:
    """The time of a sync, for which each acknowledged append waits."""
    if not root.is_dir():
        return
    with _folder_to_try(root) as folder, Path(folder, "sync").open("xb", buffering=0) as file:
        took_s = median(_time_sync(file.fileno()) for _ in range(DOCTOR_SYNCS_MAX))
    text = f"append and fdatasync take {1000 * took_s:.2f} ms"
    if took_s > limits.SLOW_SYNC_S:
        remedy = "see what else writes to this disk, or choose a root on another one with --root"
        yield warning(text, remedy)
    else:
        yield ok(text)


def _time_sync(handle: int) -> float:
    started = time.perf_counter()
    os.write(handle, b"x" * 512)
    fdatasync(handle)
    return time.perf_counter() - started


def check_links(_: Namespace, root: Path) -> Iterator[Finding]:
    """Whether files can have two names, as past generations need; no finding if they can."""
    if not root.is_dir():
        return
    with _folder_to_try(root) as folder:
        path = Path(folder, "file")
        path.touch()
        try:
            os.link(path, f"{folder}/link")
        except OSError as error:
            yield problem(
                f"files cannot have two names here ({error.strerror}): rewrites, such as a revert,"
                " a clear or a compaction, are refused",
                "choose a root on a file system with hard links (exFAT and FAT have none)",
            )


def _folder_to_try(root: Path) -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix=".doctor-", dir=root, ignore_cleanup_errors=True)


def settings_of(root: Path) -> Settings:
    """The settings of a root; the defaults if they are not valid, which has a check of its own."""
    try:
        return read_file(root, dict(os.environ))
    except BadRequest:
        return Settings()


def nearest_folder(path: Path) -> Path:
    """The path, or the nearest existing folder above it."""
    return next(place for place in (path, *path.parents) if place.exists())
