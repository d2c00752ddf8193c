"""What every verb of an async session stands on: its link, its mirror, and how it changes."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from steno._sansio.mirror import Mirror
from steno._sansio.request_builders import (
    Durability,
    MutationT,
    PositionLike,
    mutation,
    not_contained,
)
from steno._sansio.view import SessionView
from steno.values import Ack, ack_of
from steno_protocol import replies
from steno_protocol.errors import StenoError

if TYPE_CHECKING:
    from steno._async.link import Link


class LinkedSession(SessionView):
    """A session that is reached through a link, followed or not."""

    def __init__(self, link: "Link", session: str, stat: replies.SessionStat | None) -> None:
        super().__init__(session, stat)
        self._link = link

    async def load(self) -> None:
        """Begin to follow the session, and return once its backlog is in the mirror."""
        if self._mirror is not None:
            return
        mirror = Mirror(self.id)
        self._link.follow(mirror.follower)
        try:
            await self._link.reach(mirror, None, urgent=False)
        except BaseException:
            self._link.unfollow(mirror.follower)
            raise
        self._mirror = mirror

    async def close(self) -> None:
        """Stop following the session; what was written is safe without it."""
        if self._mirror is not None:
            mirror, self._mirror = self._mirror, None
            self._link.unfollow(mirror.follower)
            mirror.tell_watchers()
        await anyio.lowlevel.checkpoint()

    def _refuse_when_ended(self) -> None:
        """Refuse a change once the history has ended, before anything is sent.

        The session was deleted, and what is there now under its name, if anything, is another one.
        """
        if self._mirror is not None:
            self._link.check_open()
            self._mirror.check()

    def __del__(self) -> None:
        if self._mirror is not None:
            self._link.abandon(self._mirror.follower)

    async def _change(
        self,
        kind: type[MutationT],
        key: str | None,
        expect: PositionLike | None,
        durability: Durability,
        *,
        records: Sequence[bytes] = (),
        **fields: Any,
    ) -> Ack:
        mirror = self._mirror
        self._refuse_when_ended()
        command = mutation(kind, self.id, self._link.name, key, expect, durability, **fields)
        self._is_changed = True
        reply, _ = await self._link.request(command, replies.Ack, records)
        ack = ack_of(reply, command.key)
        if mirror is not None and not mirror.contains(ack.head):
            await self._contain(mirror, ack)
        return ack

    async def _contain(self, mirror: Mirror, ack: Ack) -> None:
        with anyio.move_on_after(self._link.timeout):
            # It is applied whatever becomes of the mirror; a reader of the history gets the error.
            with contextlib.suppress(StenoError):
                await self._link.reach(mirror, ack.head, urgent=True)
            return
        raise not_contained(self.id, ack)
