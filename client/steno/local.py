"""A root on this machine without its daemon: its lock, its private files, a daemon's start.

For programs that look after a root, as the command `steno` does. Whoever reads and writes sessions
needs none of it. Each name is imported when it is first used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from steno._lazy import imported_on_use

if TYPE_CHECKING:
    from steno._connect.connection import Futile, new_key_pair
    from steno._connect.expanding import expanded, open_stored
    from steno._connect.folders import make_private, own_private, sync_file, sync_folder
    from steno._connect.forbidden import check_allowed
    from steno._connect.key_files import locked, read_secret, replace
    from steno._connect.lock_holder import (
        holder_of,
        is_free,
        is_starting,
        note_of,
        process_of,
        silence_of,
    )
    from steno._connect.reader import Reader, running_reader, start_reader, why_read_only
    from steno._connect.safe_open import NotRegular, open_regular, read_regular
    from steno._connect.target import make_target, start_command
    from steno._connect.write_masks import write_masks
    from steno_system import fdatasync, rename_exclusively
    from steno_system.private_files import check_folder, open_private, read_private

__all__ = [
    "Futile", "NotRegular", "Reader", "check_allowed", "check_folder", "expanded", "fdatasync",
    "holder_of", "is_free", "is_starting", "locked", "make_private", "make_target", "new_key_pair",
    "note_of", "open_private", "open_regular", "open_stored", "own_private", "process_of",
    "read_private", "read_regular", "read_secret", "rename_exclusively", "replace",
    "running_reader", "silence_of", "start_command", "start_reader", "sync_file", "sync_folder",
    "why_read_only", "write_masks",
]  # fmt: skip

_HOMES: Final = {
    "steno._connect.connection": "Futile new_key_pair",
    "steno._connect.expanding": "expanded open_stored",
    "steno._connect.folders": "make_private own_private sync_file sync_folder",
    "steno._connect.forbidden": "check_allowed",
    "steno._connect.key_files": "locked read_secret replace",
    "steno._connect.lock_holder": "holder_of is_free is_starting note_of process_of silence_of",
    "steno._connect.reader": "Reader running_reader start_reader why_read_only",
    "steno._connect.safe_open": "NotRegular open_regular read_regular",
    "steno._connect.target": "make_target start_command",
    "steno._connect.write_masks": "write_masks",
    "steno_system": "fdatasync rename_exclusively",
    "steno_system.private_files": "check_folder open_private read_private",
}

__getattr__: Callable[[str], Any] = imported_on_use(globals(), _HOMES)
