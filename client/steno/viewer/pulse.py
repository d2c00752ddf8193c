"""The daemon's state and the list of sessions, asked for once for all pages."""

import os
import time
from dataclasses import dataclass, field

import anyio

from steno._async.client import Client
from steno.viewer.limits import LIST_AGE_S, PULSE_S, PULSE_TIMEOUT_S
from steno_protocol.errors import StenoError
from steno_protocol.replies import ClientEntry, ClientsReport, SessionEntry


@dataclass(slots=True)
class Pulse:
    """What the daemon answered last.

    Attributes:
        client: the client of the daemon.
        is_away: the daemon did not answer.
        clients: its clients, as of the last answer.
    """

    client: Client
    is_away: bool = False
    clients: list[ClientEntry] = field(default_factory=list[ClientEntry])
    _sessions: list[SessionEntry] = field(default_factory=list[SessionEntry])
    _listed_at: float = float("-inf")
    _listing: anyio.Lock = field(default_factory=anyio.Lock)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def changed(self) -> None:
        """Wait until the daemon goes away or comes back."""
        await self._changed.wait()

    async def beat(self) -> None:
        """Ask the daemon for its clients again and again; cancelled by the caller."""
        while True:
            await self._ask()
            await anyio.sleep(PULSE_S)

    async def sessions(self) -> list[SessionEntry]:
        """The list of the sessions, not older than `LIST_AGE_S`.

        Raises:
            StenoError: the daemon does not list them.
        """
        async with self._listing:
            if time.monotonic() - self._listed_at > LIST_AGE_S:
                self._sessions = await self.client.sessions()
                self._listed_at = time.monotonic()
            return self._sessions

    def followed(self) -> set[str]:
        """The sessions that another client follows."""
        return {
            session
            for each in self.clients
            if each.pid != os.getpid()
            for session in each.subscriptions
        }

    async def _ask(self) -> None:
        report: ClientsReport | None = None
        with anyio.move_on_after(PULSE_TIMEOUT_S):
            try:
                report = await self.client.clients()
            except StenoError:
                # The page shows that it is away; why is in the daemon's log.
                report = None
        self.clients = [] if report is None else report.clients
        if self.is_away != (report is None):
            self.is_away = report is None
            changed, self._changed = self._changed, anyio.Event()
            changed.set()
