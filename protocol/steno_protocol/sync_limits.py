"""The bounds of commits on their way to the disk, as `limits` has all others."""

from typing import Final

from steno_protocol.limits import MIB

INLINE_SYNC_S: Final = 0.001
"""A faster commit runs on the event loop, whose others wait so long; a thread hop costs 0.1 ms."""

COMMIT_THREADS_MAX: Final = 8
"""Commits of different sessions at a time: with 8 a file system makes eleven times as many durable
as one after the other, and with 16 hardly more."""

SYNCS_REMEMBERED_MAX: Final = 7
"""Commits whose quicker quarter tells how fast a disk is, whatever hiccups are among them."""

WHOLE_SYNC_FILES_MIN: Final = 3
"""Files that are synced by one call for their file system; two take as long by themselves."""

UNWRITTEN_BYTES_MAX: Final = 4 * MIB
"""Bytes that the programs of the machine have written and its disks have not: with more, sessions
are synced file by file, and do not wait for others. So many take 2 to 40 ms, and only once."""

WHOLE_SYNC_S_MAX: Final = 0.004
"""A sync of a file system that took longer waited for others; for 16 sessions it is 0.5 ms."""

WHOLE_SYNC_PAUSE_S: Final = 1.0
"""So long nobody tries one again: who writes without a pause delays a group a second."""
