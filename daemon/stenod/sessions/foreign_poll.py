"""Polls of followed sessions for changes by other programs.

A command detects earlier changes by itself. A follower sends no commands, so its files are polled:
every few seconds in a mount, where other programs write, and otherwise with the housekeeping. No
timer runs while no session of a mount is followed.
"""

from collections.abc import Sequence
from contextlib import suppress

import anyio

from steno_protocol import limits, paths
from steno_protocol.errors import StenoError
from stenod.runtime.executor import Spawn
from stenod.sessions.registry import Registry
from stenod.sessions.session import Session


class ForeignPoll:
    """Polls the files of followed sessions.

    Args:
        registry: the open sessions.
        spawn: starts the task that polls mounts, while a session there is followed.
    """

    def __init__(self, registry: Registry, spawn: Spawn) -> None:
        self._registry = registry
        self._spawn = spawn
        self._is_at_mounts = False
        self._is_looking = False

    def begin(self, session: str) -> None:
        """Start to poll if the followed session is in a mount."""
        # By the session's id, since checking all open sessions for each follower would cost as much
        # as the rest of a subscription.
        mount, _ = paths.split_session(session)
        if mount is not None and not self._is_at_mounts:
            self._is_at_mounts = True
            self._spawn(self._watch_mounts)

    async def look(self) -> None:
        """Poll all followed sessions once."""
        await self._look_at(self._registry.followed)

    async def _watch_mounts(self) -> None:
        try:
            while self._in_mounts():
                await anyio.sleep(limits.FOREIGN_POLL_S)
                await self._look_at(self._in_mounts())
        finally:
            self._is_at_mounts = False

    def _in_mounts(self) -> list[Session]:
        return [session for session in self._registry.followed if session.place.shared]

    async def _look_at(self, sessions: Sequence[Session]) -> None:
        # A hanging mount blocks one poll and its thread, not one more at each interval.
        if self._is_looking:
            return
        self._is_looking = True
        try:
            # A failed poll is repeated the next time, and a command reports the error.
            with suppress(StenoError, OSError):
                places = [(session, session.place) for session in sessions]
                await self._registry.close_moved(places)
            for session in sessions:
                await session.poll_foreign_changes()
        finally:
            self._is_looking = False
