"""Every bound of the command line alone: its unit in the name, its reason beside it.

What a client says to a daemon is bounded by `steno_protocol.limits`.
"""

from typing import Final

from steno_protocol.limits import MIB

CHECK_HANDLES_MAX: Final = 16
"""Files that are open at a time while a folder is checked, which may have any number of them."""

VERIFY_TIMEOUT_S: Final = 3600.0
"""How long the command line waits for a session to be looked through, about 100 MiB a second."""

REPAIR_BACKUPS_MAX: Final = 16
"""Originals that repairs of one file leave beside it: more mean that something damages it again."""

DEMO_TIMEOUT_S: Final = 60.0
"""`steno demo` gives up after this long; it takes about 5 s on two cores."""

REPLAY_PAUSE_S_MAX: Final = 10.0
"""`steno replay` waits no longer between two events: no viewer sleeps as long as the session."""

LOG_POLL_S: Final = 0.2
"""How often `steno logs -f` looks for new lines; a person does not notice it."""

WATCHDOG_S: Final = 30.0
"""systemd kills a daemon after this long without a turn of its event loop; a slow disk never stops
the loop."""

DOCTOR_SYNCS_MAX: Final = 8
"""Syncs by which `steno doctor` times a disk: the middle of so many is not moved by one hiccup."""

DISK_ALMOST_FULL_BYTES: Final = 1024 * MIB
"""With less room than this `steno doctor` warns: a busy day of agents writes as much."""
