"""Private folders, made and synced to the disk."""

import os
import shlex
import stat
from pathlib import Path

import steno_system as system
from steno_protocol.errors import Unauthorized
from steno_system import private_files


def make_private(folder: Path) -> None:
    """Make a private folder and its missing parents, durable on return."""
    private_files.make_private(folder, sync_folder)


def own_private(folder: Path) -> None:
    """Make a private folder, or refuse one that another user owns or may replace.

    Nothing is made in the folder of another user either: what the superuser makes there, its owner
    could not open.

    Raises:
        Unauthorized: another user could put files there.
        OSError: it cannot be made.
    """
    above = (folder, *folder.absolute().parents)
    _refuse_foreign(next(each for each in above if each.is_dir()))
    make_private(folder)
    _refuse_foreign(folder)
    for each in (folder, *folder.absolute().parents):
        mode = each.stat().st_mode
        # In a sticky folder such as /tmp, nobody can rename what belongs to this user.
        if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX and each != folder):
            raise Unauthorized(
                f"every user may write to {each} and replace the files in it: check them, then run"
                f" `chmod o-w {shlex.quote(str(each))}`"
            )


def _refuse_foreign(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid not in {system.own_user(), 0}:
        raise Unauthorized(
            f"{folder} belongs to user {found.st_uid}, who could replace the files in it: move it"
            " away, or name another place"
        )


def sync_folder(folder: Path) -> None:
    """Sync a folder: new, moved and removed names in it are then on the disk."""
    handle = os.open(folder, system.FOLDER_FLAGS)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def sync_file(handle: int) -> None:
    """Make a file, or the names in a folder, durable: the one sync of the client."""
    system.fsync(handle)
