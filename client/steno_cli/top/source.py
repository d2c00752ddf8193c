"""The reports of a daemon, and the titles of its sessions."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import anyio

from steno import Client
from steno_cli.command_limits import TOP_ANSWER_S, TOP_TITLE_S
from steno_cli.top.activity import Report
from steno_protocol.commands import Stats
from steno_protocol.errors import (
    BadRequest,
    Busy,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    Unreachable,
)
from steno_protocol.replies import StatsReport


class Source:
    """Asks one daemon for its reports; starts none.

    Attributes:
        titles: the known titles of sessions.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.titles: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    @property
    def daemon(self) -> str:
        """The line that names the daemon."""
        welcome = self._client.welcome
        assert welcome is not None
        return f"{welcome.version}, pid {welcome.pid}, root {welcome.root}"

    async def report(self) -> Report | None:
        """Ask for a report; None if the daemon is away or does not answer in time.

        Raises:
            StenoError: the daemon refuses; asking again does not help.
        """
        with anyio.move_on_after(TOP_ANSWER_S):
            try:
                stats, _ = await self._client.request(Stats(sessions=True), StatsReport)
                clients = await self._client.clients()
            except (Unreachable, OutcomeUnknown, ShuttingDown, Busy):
                return None
            except BadRequest as error:
                raise BadRequest(
                    "the daemon is older than this command and does not report its sessions"
                    f" ({error.message}): `steno restart`"
                ) from None
            welcome = self._client.welcome
            assert welcome is not None
            return Report((welcome.pid, welcome.started_at), stats, clients)
        return None

    async def learn_titles(self, sessions: Iterable[str]) -> Mapping[str, str]:
        """Return the titles of sessions; those that are new or old are asked for."""
        now = time.monotonic()
        old = [
            each for each in sessions
            if now - self._asked_at.get(each, float("-inf")) > TOP_TITLE_S
        ]  # fmt: skip
        with anyio.move_on_after(TOP_ANSWER_S), suppress(StenoError):
            for session in old:
                self.titles[session] = (await self._client.stat(session)).title
                self._asked_at[session] = now
        return self.titles

    def forget_closed(self, report: Report) -> None:
        """Forget the titles of sessions that are no longer open."""
        is_open = {each.session for each in report.stats.sessions}
        for session in self.titles.keys() - is_open:
            del self.titles[session]
            self._asked_at.pop(session, None)
