"""The end of an idle daemon, after a configured time.

A client that connects at that very moment is not lost. The socket is closed before the lock of the
root is given up, so a greeting is answered or meets a closed connection, and is never left in
silence; what is asked meanwhile is refused with `shutting_down`. In each case a client starts the
next daemon and asks again, and that one waits for the lock.
"""

from collections.abc import Callable

import anyio

from steno_protocol import limits
from stenod.writer.services import Services


class Idleness:
    """Watches how long a daemon has been of no use.

    Args:
        workshop: clock and settings.
        is_used: whether a client is connected or a command is queued.
        visits: a number that rises with each connection, so that none between two looks is missed.
    """

    def __init__(
        self, services: Services, is_used: Callable[[], bool], visits: Callable[[], int]
    ) -> None:
        self._services = services
        self._is_used = is_used
        self._visits = visits

    async def wait(self) -> None:
        """Return once the daemon was unused for the configured time."""
        # Its starter is about to connect, and must find it.
        unused_since, seen = self._services.monotonic() + limits.PROBE_TIMEOUT_S, self._visits()
        while True:
            await anyio.sleep(self._pause_s())
            now = self._services.monotonic()
            if self._is_used() or self._visits() != seen or not self._idle_exit_s:
                unused_since, seen = now, self._visits()
            elif now - unused_since >= self._idle_exit_s:
                return

    @property
    def _idle_exit_s(self) -> float:
        return self._services.settings().number("life.idle_exit_s")

    def _pause_s(self) -> float:
        """A quarter of the time, so that the end is at most so much late."""
        wanted_s = self._idle_exit_s / 4 or limits.HOUSEKEEPING_S
        return min(max(wanted_s, limits.IDLE_LOOK_S), limits.HOUSEKEEPING_S)
