"""Bounds of the conformance suite, each with its reason."""

from typing import Final

REPLY_S_MAX: Final = 30.0
"""A store that lets a caller wait longer for one answer hangs; SQLite's own patience is 5 s."""

STOP_S_MAX: Final = 10.0
"""A killed process is gone at once; this only bounds a wait for the kernel."""

ATTACH_S_MAX: Final = 10.0
"""strace attaches within milliseconds; a forbidden one ends at once."""

WRITERS_MAX: Final = 4
"""Enough to lose updates on any machine, few enough for two cores."""

APPENDS_MAX: Final = 50
"""Appends of one writer and round: with a sync of 1 ms each they take a fraction of a second."""

KILLED_APPENDS_MAX: Final = 30
"""Appends that a writer is given before its kill, which comes within the first half of them."""

KILL_CALLS_MAX: Final = 6
"""Calls of one append at which it is killed in a round, chosen at random if there are more."""

TORN_APPENDS_MAX: Final = 10
"""Appends before a tear; the cut is anywhere behind the first of them."""

IDS_MAX: Final = 8
"""Ids that one message names; the number is given in full."""

KILL_DELAY_MS_MAX: Final = 4
"""A kill comes at most this long after an ack: about the length of one large append."""

SMALL_BYTES_MAX: Final = 600
"""The size of a usual message of an agent."""

LARGE_BYTES: Final = 200_000
"""The result of a tool: it does not fit into the buffer of a file object or a page."""

BATCH_ENTRIES_MAX: Final = 20
"""Entries of one batch: several pages of a file together."""

DISK_ROOM_BYTES: Final = 64 * 1024
"""What is left of the full disk: some appends fit, and one is cut in its middle."""

DISK_ENTRY_BYTES: Final = 3_000
"""Appends to the full disk; no multiple of a page, so that one of them is cut."""

DISK_APPENDS_MAX: Final = 200
"""They need ten times the room that is left."""

GARBAGE_BYTES_MAX: Final = 300
"""Unsynced bytes behind the last entry, as a crash leaves them."""
