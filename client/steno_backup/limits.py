"""Limits of the copy of a root."""

from typing import Final

TAIL_BYTES: Final = 65_536
"""Bytes before the end of a copied file that are compared before the file is continued."""

CHUNK_BYTES: Final = 1 << 20
"""Bytes that are copied at a time, so that a file of any size needs little memory."""

SNAPSHOT_TRIES_MAX: Final = 8
"""Attempts to read a session that is rewritten meanwhile; each takes milliseconds."""

FOLDER_DEPTH_MAX: Final = 64
"""Nested folders that are followed; a session id of 200 characters has fewer segments."""

TRASH_KEPT_S: Final = 30 * 86_400
"""Seconds for which the copy keeps a deleted session, as a root does by default."""

FOLLOW_S_MIN: Final = 1.0
"""Seconds between two rounds of `--follow`: each lists all folders."""
