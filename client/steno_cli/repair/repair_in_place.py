"""The repair of one file in place, with the original kept beside it.

    notes.jsonl                   the repaired file
    notes.jsonl.before-repair-1   the original

1. The folder is locked, so that no daemon opens the session meanwhile. 2. The new file is written
under another name and synced. 3. The original gets its second name, and the folder is synced.
4. The new file is renamed to the name of the original, and the folder is synced. After a crash at
any step the name refers to the whole original or to the whole repaired file.
"""

import errno
import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from steno.local import sync_file
from steno_cli.command_limits import REPAIR_BACKUPS_MAX
from steno_cli.repair.transcripts import LocalFolder
from steno_protocol import limits
from steno_protocol.damage import Edit, kept_pieces
from steno_protocol.errors import (
    Busy,
    Conflict,
    Held,
    OutcomeUnknown,
    StorageFailed,
    TooLarge,
    Unauthorized,
)

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Original(NamedTuple):
    """The properties of a file that change when another program writes it."""

    inode: int
    size: int
    modified_ns: int


def original_of(folder: LocalFolder, name: str) -> Original:
    """The present properties of a file, from its open handle."""
    found = os.fstat(folder.open(name))
    return Original(found.st_ino, found.st_size, found.st_mtime_ns)


def lock(folder: LocalFolder, path: Path) -> None:
    """Lock a folder against daemons for as long as it is open here.

    Raises:
        Held: a daemon has the session open.
    """
    try:
        fcntl.flock(folder.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Held(
            f"{_holder(folder)} has the session in {path} open: repair it through its daemon with"
            " `steno repair SESSION`, or stop the daemon with `steno stop` first"
        ) from None


def check_at_rest(original: Original, path: Path) -> None:
    """Refuse a file that another program may be writing.

    Raises:
        Busy: it was changed a moment ago.
    """
    age_s = time.time() - original.modified_ns / 1e9
    if abs(age_s) < limits.FOREIGN_SETTLE_S:
        raise Busy(
            f"{path} was changed {abs(age_s):.1f} s ago: a program seems to write it; end the"
            " program, or try again in a moment"
        )


def replace_file(folder: LocalFolder, path: Path, original: Original, edits: Sequence[Edit]) -> str:
    """Replace a damaged file by a repaired one; returns the new name of the original.

    Raises:
        Conflict: the file was changed since, and nothing happened; or a program wrote to the
            original until the end, and the message names the place of its bytes.
        Unauthorized: it belongs to another user; nothing happened.
        StorageFailed: the disk failed; the file is unchanged.
        OutcomeUnknown: the file is repaired, but the last sync failed.
    """
    name, fresh = path.name, f"{path.name}.repair-new"
    found = os.fstat(folder.open(name))
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        raise Unauthorized(f"{path} belongs to user {found.st_uid}: repair it as that user")
    try:
        _write(folder, fresh, name, original.size, edits)
        kept = _keep(folder, path, original)
        sync_file(folder.handle)
        if _named(folder, name) != original:
            _remove(folder, fresh)
            raise Conflict(
                f"{path} changed during the repair: stop the program that writes it first"
            )
        os.rename(fresh, name, src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
    except OSError as error:
        with suppress(OSError):
            _remove(folder, fresh)
        raise StorageFailed(
            f"{path} could not be repaired and is unchanged: {error.strerror or error}"
        ) from None
    try:
        sync_file(folder.handle)
        now = _named(folder, kept)
    except OSError as error:
        raise OutcomeUnknown(
            f"{path} is repaired, but a power cut may bring the original back"
            f" ({error.strerror or error}): check the disk, then repair it again"
        ) from None
    if now is not None and now.size > original.size:
        raise Conflict(
            f"{path} is repaired, but a program wrote {now.size - original.size} bytes to it"
            f" meanwhile: they are in {kept} from byte {original.size} on"
        )
    return kept


def _write(folder: LocalFolder, fresh: str, name: str, size: int, edits: Sequence[Edit]) -> None:
    """Write the repaired file under another name, durably, with the original's mode and owner."""
    _remove(folder, fresh)
    found = os.fstat(folder.open(name))
    handle = os.open(fresh, _NEW, 0o600, dir_fd=folder.handle)
    try:
        with suppress(PermissionError):
            os.fchown(handle, found.st_uid, found.st_gid)
        os.fchmod(handle, found.st_mode & 0o777)
        with os.fdopen(handle, "wb", limits.MIB, closefd=False) as file:
            for piece in kept_pieces(edits, size):
                if isinstance(piece, bytes):
                    file.write(piece)
                    continue
                offset = piece.start
                while offset < piece.end:
                    data = folder.read(name, min(limits.BLOCK_BYTES, piece.end - offset), offset)
                    if not data:
                        raise OSError(errno.EIO, "the file became shorter while it was read")
                    offset += file.write(data)
        sync_file(handle)
    finally:
        os.close(handle)


def _keep(folder: LocalFolder, path: Path, original: Original) -> str:
    """Give the original the first free name for originals."""
    for number in range(1, REPAIR_BACKUPS_MAX + 1):
        kept = f"{path.name}.before-repair-{number}"
        there = _named(folder, kept)
        if there is not None and there.inode == original.inode:
            # An interrupted repair gave it the name.
            return kept
        if there is None:
            os.link(
                path.name, kept,
                src_dir_fd=folder.handle, dst_dir_fd=folder.handle, follow_symlinks=False,
            )  # fmt: skip
            return kept
    raise TooLarge(
        f"{REPAIR_BACKUPS_MAX} repairs of {path} left their originals beside it: check"
        f" them and remove those that are not needed ({path.name}.before-repair-*)"
    )


def _named(folder: LocalFolder, name: str) -> Original | None:
    try:
        found = os.stat(name, dir_fd=folder.handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Original(found.st_ino, found.st_size, found.st_mtime_ns)


def _remove(folder: LocalFolder, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder.handle)


def _holder(folder: LocalFolder) -> str:
    """The process that holds the lock of the folder, if the kernel reports it."""
    inode = f":{os.fstat(folder.handle).st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "FLOCK" in words and words[5].endswith(inode):
                return f"process {words[4]}"
    return "another process"
