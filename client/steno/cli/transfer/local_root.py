"""The root of a daemon, where it lies on this machine."""

from pathlib import Path

from steno._connect.safe_open import read_regular
from steno._sync.client import BlockingClient
from steno_protocol import paths


def local_root(client: BlockingClient) -> Path | None:
    """The root of the daemon, or None when the daemon runs on another machine.

    A path alone proves nothing: both machines may have it. The lock file names the daemon's
    process, and the daemon names it, too.
    """
    root = Path(client.welcome.root)
    try:
        note = paths.decode_lock_note(read_regular(root / paths.LOCK))
    except OSError:
        return None
    return root if note is not None and note.pid == client.welcome.pid else None
