"""The files of sessions on this machine, read beside the daemon that owns them."""

from pathlib import Path
from typing import BinaryIO

from steno import BlockingClient, local
from steno_cli.connection import local_root
from steno_protocol import paths


class SessionFiles:
    """The files of a root's sessions, if what they have is all that there is.

    Nothing may be shown of what a file has beyond what the daemon serves: its last bytes may be on
    no disk yet.

    Args:
        client: a client of the daemon.
    """

    def __init__(self, client: BlockingClient) -> None:
        root = local_root(client)
        # In a cluster a file may be older than what another host has.
        is_all = root is not None and not client.cluster().cluster
        self._folder: Path | None = root / paths.SESSIONS if root is not None and is_all else None

    def open_context(self, session: str) -> BinaryIO | None:
        """Open the context of a session; None if it is elsewhere.

        Raises:
            OSError: it cannot be read.
        """
        mount, names = paths.split_session(session)
        if self._folder is None or mount is not None:
            return None
        return local.open_regular(self._folder.joinpath(*names, paths.CONTEXT))
