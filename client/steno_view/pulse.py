"""The daemon's state and the list of sessions, asked for once for all pages."""

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from steno import Client
from steno_protocol.errors import StenoError
from steno_protocol.replies import ClientEntry, ClientsReport, SessionEntry
from steno_view.limits import (
    ANSWER_AGE_S_MAX,
    ANSWER_RESTS_MAX,
    LIST_AGE_S,
    PULSE_S,
    PULSE_TIMEOUT_S,
)

T = TypeVar("T")


class Shared(Generic[T]):
    """An answer of the daemon that serves every page until it is too old.

    One that takes long to make serves longer, so that a root with thousands of sessions does not
    keep the daemon busy with lists.

    Args:
        ask: asks the daemon.
        age_s: the age up to which one answer is good enough.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], age_s: float) -> None:
        self._ask = ask
        self._age_s = age_s
        self._lock = anyio.Lock()
        self._answer: tuple[T] | None = None
        self._until = float("-inf")

    async def get(self) -> T:
        """The answer; pages that ask at the same time wait for one request.

        Raises:
            StenoError: the daemon does not answer.
        """
        async with self._lock:
            if self._answer is None or time.monotonic() > self._until:
                begun = time.monotonic()
                self._answer = (await self._ask(),)
                ended = time.monotonic()
                rest_s = min(ANSWER_RESTS_MAX * (ended - begun), ANSWER_AGE_S_MAX)
                self._until = ended + max(self._age_s, rest_s)
            return self._answer[0]


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
    _sessions: Shared[list[SessionEntry]] = field(init=False)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._sessions = Shared(self.client.sessions, LIST_AGE_S)

    @property
    def change(self) -> anyio.Event:
        """The event of the next time that the daemon goes away or comes back."""
        return self._changed

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
        return await self._sessions.get()

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
