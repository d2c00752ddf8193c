"""The exit of an idle daemon after a configured time.

A client that connects at that moment is served by the next daemon. The socket is closed before the
root's lock is released, so `hello` is answered or the connection is closed; a command is refused
with `shutting_down`. In each case the client starts the next daemon, which waits for the lock, and
repeats its request.
"""

from collections.abc import Callable

import anyio

from steno_protocol import limits
from stenod.writer.services import Services


class IdleExit:
    """Measures how long a daemon has been unused.

    Args:
        services: clock and settings.
        is_used: whether a client is connected, a command waits, or bytes are not synced.
        visits: returns a number that rises with each connection, so that a short one counts, too.
    """

    def __init__(
        self, services: Services, is_used: Callable[[], bool], visits: Callable[[], int]
    ) -> None:
        self._services = services
        self._is_used = is_used
        self._visits = visits

    async def wait(self) -> None:
        """Return once the daemon was unused for the configured time."""
        # The client that started the daemon is about to connect.
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
        """Return a quarter of the configured time, the largest delay of the exit."""
        wanted_s = self._idle_exit_s / 4 or limits.HOUSEKEEPING_S
        return min(max(wanted_s, limits.IDLE_CHECK_S), limits.HOUSEKEEPING_S)
