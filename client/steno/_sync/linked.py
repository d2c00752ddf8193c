"""What every verb of a blocking session stands on; see `LinkedSession`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
    from steno._sync.link import BlockingLink


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
            self._link.wait_until(mirror.arrival(None))
            self._mirror = mirror
        except BaseException:
            self._mirror = None
            self._link.unfollow(mirror.follower)
            raise

    def close(self) -> None:
        """Stop following the session; what was written is safe without it."""
        if self._mirror is not None:
            mirror, self._mirror = self._mirror, None
            self._link.unfollow(mirror.follower)

    @property
    def _history_check(self) -> Callable[[], None] | None:
        """What has to pass before a change is sent.

        A history that has ended refuses it: the session was deleted, and what is there now under
        its name, if anything, is another one.
        """
        return None if self._mirror is None else self._mirror.check

    def __del__(self) -> None:
        if self._mirror is not None:
            self._link.abandon(self._mirror.follower)

    def _change(
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
        command = mutation(kind, self.id, self._link.name, key, expect, durability, **fields)
        self._is_changed = True
        reply, _ = self._link.request(
            command,
            replies.Ack,
            records,
            check=self._history_check,
            is_event_due=None if mirror is None else mirror.lacks,
        )
        ack = ack_of(reply, command.key)
        if mirror is not None and not mirror.contains(ack.head):
            self._contain(mirror, ack)
        return ack

    def _contain(self, mirror: Mirror, ack: Ack) -> None:
        mirror.follower.waiters += 1
        try:
            has_come = self._link.wait_until(mirror.arrival(ack.head), self._link.timeout)
        except StenoError:
            # It is applied whatever became of the mirror; a reader of the history gets the error.
            return
        finally:
            mirror.follower.waiters -= 1
        if not has_come:
            raise not_contained(self.id, ack)
