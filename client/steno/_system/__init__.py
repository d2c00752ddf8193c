"""The system calls of the client that differ between Linux and macOS: one module each."""

import sys

if sys.platform == "linux":
    from steno._system._linux import (
        WRONG_KIND,
        anonymous_file,
        boot_id,
        fdatasync,
        fsync,
        lacks_handles,
        listener_of,
        process_of,
        rename_exclusively,
        spare_handle,
        try_turn,
        wakeup_handles,
    )
else:
    # `check_system` refuses other systems, with a reason that an import error would hide.
    from steno._system._darwin import (
        WRONG_KIND,
        anonymous_file,
        boot_id,
        fdatasync,
        fsync,
        lacks_handles,
        listener_of,
        process_of,
        rename_exclusively,
        spare_handle,
        try_turn,
        wakeup_handles,
    )

__all__ = [
    "WRONG_KIND",
    "anonymous_file",
    "boot_id",
    "fdatasync",
    "fsync",
    "lacks_handles",
    "listener_of",
    "process_of",
    "rename_exclusively",
    "spare_handle",
    "try_turn",
    "wakeup_handles",
]
