"""A failed write behind written, unsynced lines."""

import errno

import pytest

from steno_protocol import paths
from support.lines import stamped
from support.simulated_disk import SimulatedDisk
from support.stored_session import StoredSession

FOLDER = "/disk/demo"
EARLIER, LATER = (b"".join(stamped(key, ["x"])) for key in ("a", "b"))


@pytest.mark.parametrize("is_edited", [False, True])
def test_earlier_lines_are_kept_only_if_they_are_unchanged(*, is_edited: bool) -> None:
    disk = SimulatedDisk()
    disk.foreign.make_folder(FOLDER)
    disk.sync_all()
    log = StoredSession(disk, FOLDER).open().log
    log.append(EARLIER)
    disk.fail_next("write", errno.ENOSPC, name=paths.CONTEXT)
    with pytest.raises(OSError, match="No space"):
        log.append(LATER)
    if is_edited:
        disk.foreign.overwrite(f"{FOLDER}/{paths.CONTEXT}", 0, b"x" * len(EARLIER))

    assert log.sync_earlier_appends() is not is_edited
    assert log.synced == (0 if is_edited else len(EARLIER))
