"""The files of sessions on this machine, read beside the daemon that owns them, and their sizes."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from steno import BlockingClient, local
from steno_cli.connection import local_root
from steno_protocol import paths


def sessions_folder(client: BlockingClient) -> Path | None:
    """The folder of a daemon's sessions; None if it is elsewhere, or perhaps not up to date."""
    root = local_root(client)
    # In a cluster a file may be older than what another host has.
    is_all = root is not None and not client.cluster().cluster
    return root / paths.SESSIONS if root is not None and is_all else None


class SessionFiles:
    """The files of a root's sessions, if what they have is all that there is.

    Nothing may be shown of what a file has beyond what the daemon serves: its last bytes may be on
    no disk yet.
    """

    def __init__(self, client: BlockingClient) -> None:
        self._folder = sessions_folder(client)

    def open_context(self, session: str) -> BinaryIO | None:
        """Open the context of a session; None if it is elsewhere.

        Raises:
            OSError: it cannot be read.
        """
        mount, names = paths.split_session(session)
        if self._folder is None or mount is not None:
            return None
        return local.open_regular(self._folder.joinpath(*names, paths.CONTEXT))


def size_of(path: Path) -> int:
    """The bytes of a regular file; 0 for anything else, and for what cannot be looked at."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def size_below(folder: Path) -> int:
    """The bytes of all regular files in a folder and below; symbolic links are not followed."""
    return sum(size_of(Path(place, name)) for place, _, names in os.walk(folder) for name in names)
