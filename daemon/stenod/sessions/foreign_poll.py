"""Polls of followed sessions for changes by other programs.

A command takes in by itself what came before it. A follower sends none, so the files are
looked at for them: every few seconds in a mount, where other programs live, else with the rest of
the housekeeping. No timer runs here while no session of a mount is followed.
"""

from collections.abc import Sequence
from contextlib import suppress

import anyio

from steno_protocol import limits, paths
from steno_protocol.errors import StenoError
from stenod.runtime.executor import Spawn
from stenod.sessions.registry import Registry
from stenod.sessions.session import Session


class Watch:
    """Looks at the files of followed sessions now and then.

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
        # By its id: a look at all that are open, for each follower, would cost those without mounts
        # as much as the rest of a subscription.
        mount, _ = paths.split_session(session)
        if mount is not None and not self._is_at_mounts:
            self._is_at_mounts = True
            self._spawn(self._watch_mounts)

    async def look(self) -> None:
        """Look at all that is followed, once."""
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
        # A mount that hangs, hangs one look and one thread with it, not another one each time.
        if self._is_looking:
            return
        self._is_looking = True
        try:
            # A failed poll is repeated the next time, and a command reports the error.
            with suppress(StenoError, OSError):
                places = [(session, session.place) for session in sessions]
                await self._registry.close_moved(places)
            for session in sessions:
                await session.look()
        finally:
            self._is_looking = False
