"""The request with which a daemon joins streams that it does not know."""

import os
from contextlib import suppress
from pathlib import Path

from steno_protocol import paths


def write_request(root: Path, word: str) -> None:
    """Leave a request for the daemon that starts next on a root.

    Args:
        root: the root.
        word: `create` or `again`.
    """
    path = root / paths.CLUSTER_REQUEST
    with suppress(FileNotFoundError):
        path.unlink()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(word)
