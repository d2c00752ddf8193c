"""What every verb of an async session stands on: its link, its mirror, and how it changes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from steno._mirror import Mirror
from steno._verbs import Durability, MutationT, Place, mutation, not_contained
from steno._view import SessionView
from steno.values import Ack, ack_of
from steno_protocol import replies

if TYPE_CHECKING:
    from steno._link import Link


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
            self._link.unfollow(self._mirror.follower)
            self._mirror = None
        await anyio.lowlevel.checkpoint()

    def __del__(self) -> None:
        if self._mirror is not None:
            self._link.abandon(self._mirror.follower)

    async def _change(
        self,
        kind: type[MutationT],
        key: str | None,
        expect: Place | None,
        durability: Durability,
        *,
        records: Sequence[bytes] = (),
        **fields: Any,
    ) -> Ack:
        command = mutation(kind, self.id, self._link.name, key, expect, durability, **fields)
        self._is_changed = True
        reply, _ = await self._link.request(command, replies.Ack, records)
        ack = ack_of(reply, command.key)
        if self._mirror is not None and not self._mirror.has_reached(ack.head):
            await self._contain(ack)
        return ack

    async def _contain(self, ack: Ack) -> None:
        with anyio.move_on_after(self._link.timeout):
            await self._link.reach(self._followed(), ack.head, urgent=True)
            return
        raise not_contained(self.id, ack)
