"""What every verb of a blocking session stands on; see `LinkedSession`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steno._mirror import Mirror
from steno._verbs import Durability, MutationT, Place, mutation, not_contained
from steno._view import SessionView
from steno.values import Ack, ack_of
from steno_protocol import replies

if TYPE_CHECKING:
    from steno._blocking_link import BlockingLink


class BlockingLinkedSession(SessionView):
    """A session that is reached through a blocking link, followed or not."""

    def __init__(
        self, link: "BlockingLink", session: str, stat: replies.SessionStat | None
    ) -> None:
        super().__init__(session, stat)
        self._link = link

    def load(self) -> None:
        """Begin to follow the session, and return once its backlog is in the mirror."""
        if self._mirror is not None:
            return
        mirror = Mirror(self.id)
        self._link.follow(mirror.follower)
        try:
            self._link.wait_until(lambda: mirror.has_reached(None))
        except BaseException:
            self._link.unfollow(mirror.follower)
            raise
        self._mirror = mirror

    def close(self) -> None:
        """Stop following the session; what was written is safe without it."""
        if self._mirror is not None:
            self._link.unfollow(self._mirror.follower)
            self._mirror = None

    def __del__(self) -> None:
        if self._mirror is not None:
            self._link.abandon(self._mirror.follower)

    def _change(
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
        reply, _ = self._link.request(command, replies.Ack, records)
        ack = ack_of(reply, command.key)
        if self._mirror is not None:
            self._contain(self._mirror, ack)
        return ack

    def _contain(self, mirror: Mirror, ack: Ack) -> None:
        mirror.follower.waiters += 1
        try:
            if not self._link.wait_until(lambda: mirror.has_reached(ack.head), self._link.timeout):
                raise not_contained(self.id, ack)
        finally:
            mirror.follower.waiters -= 1
