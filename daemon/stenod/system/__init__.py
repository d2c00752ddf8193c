"""The system calls of the daemon that differ between Linux and macOS: one module each."""

import sys

if sys.platform == "linux":
    from stenod.system._linux import (
        FOLDER_FLAGS,
        HANDLES,
        NO_LINK,
        WRONG_KIND,
        boot_id,
        copy_file_range,
        fdatasync,
        filters_uid,
        fsync,
        own_user,
        raise_handle_limit,
        relay_socket,
        resident_bytes,
    )
else:
    # `check_system` refuses other systems, with a reason that an import error would hide.
    from stenod.system._darwin import (
        FOLDER_FLAGS,
        HANDLES,
        NO_LINK,
        WRONG_KIND,
        boot_id,
        copy_file_range,
        fdatasync,
        filters_uid,
        fsync,
        own_user,
        raise_handle_limit,
        relay_socket,
        resident_bytes,
    )

__all__ = [
    "FOLDER_FLAGS",
    "HANDLES",
    "NO_LINK",
    "WRONG_KIND",
    "boot_id",
    "copy_file_range",
    "fdatasync",
    "filters_uid",
    "fsync",
    "own_user",
    "raise_handle_limit",
    "relay_socket",
    "resident_bytes",
]
