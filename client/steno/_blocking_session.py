"""One session, through a blocking client; the verbs are those of `Session`."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from steno._blocking_streams import BlockingLines, BlockingRecords, fetch
from steno._blocking_wire import BlockingWireSession
from steno._following import Following
from steno._messages import Message, encode_messages
from steno._mirror import Mirror
from steno._reading import LineReader, PastReader, PastState
from steno._verbs import (
    Durability,
    Followed,
    MutationT,
    Place,
    mutation,
    not_contained,
    place,
    starts_of,
)
from steno.values import Ack, File, SubscriptionEvent, ack_of
from steno_protocol import commands, replies
from steno_protocol.context import ContextState
from steno_protocol.positions import Position

if TYPE_CHECKING:
    from steno._blocking_link import BlockingLink


class BlockingSession(BlockingWireSession):
    """A session that is read and written through its daemon; made by `BlockingClient.open`.

    Its history follows what others write at each call, and on `refresh`. Mutations take the options
    of `Session` (`key`, `expect`, `durability`), and mean and raise the same.
    """

    # --- writing ---------------------------------------------------------------------------------

    def append_message(
        self,
        message: Message | Sequence[Message],
        *,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append one message, or a sequence of them as one atomic batch."""
        return self._change(
            commands.Append, key, expect, durability, records=encode_messages(message)
        )

    def checkpoint(
        self,
        add_user_message: bool = False,
        *,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append a checkpoint, with the message that shows it to the model if so wanted."""
        return self._change(
            commands.Checkpoint, key, expect, durability, add_user_message=add_user_message
        )

    def revert_to(
        self,
        checkpoint_id: int,
        *,
        why: str | None = None,
        drop_damaged: bool = False,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop a checkpoint and all that follows it; the ack's `rotated` holds what was there."""
        return self._change(
            commands.RevertTo,
            key,
            expect,
            durability,
            checkpoint_id=checkpoint_id,
            why=why,
            drop_damaged=drop_damaged,
        )

    def clear(
        self,
        *,
        why: str | None = None,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop everything, the system prompt too; the ack's `rotated` holds what was there."""
        return self._change(commands.Clear, key, expect, durability, why=why)

    def update_token_count(
        self,
        token_count: int,
        *,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append how many tokens the context has, as a model counted them."""
        return self._change(
            commands.UpdateTokenCount, key, expect, durability, token_count=token_count
        )

    def write_system_prompt(
        self,
        prompt: str,
        *,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Put the system prompt first; on a session that has content this is a rewrite."""
        return self._change(commands.WriteSystemPrompt, key, expect, durability, prompt=prompt)

    def restore_generation(
        self,
        generation: int,
        *,
        why: str | None = None,
        key: str | None = None,
        expect: Place | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Bring back what a rewrite left behind; what is there now is left behind in its turn."""
        return self._change(
            commands.RestoreGeneration, key, expect, durability, generation=generation, why=why
        )

    # --- reading ---------------------------------------------------------------------------------

    def lines(self, after: Place | None = None, until: Place | None = None) -> Iterator[bytes]:
        """The lines between two positions of one generation as bytes, newline included."""
        return BlockingLines(self._link, LineReader(self.id, after, until))

    def records(
        self, after: Place | None = None, until: Place | None = None, *, strict: bool = False
    ) -> BlockingRecords:
        """The records between two positions of one generation, each with its cursor.

        Args:
            strict: stop at the first damaged line with Corrupt; else such lines are passed over
                and counted in the `damaged` of what is returned.
        """
        return BlockingRecords(self._link, LineReader(self.id, after, until), strict=strict)

    def stat(self) -> replies.SessionStat:
        """The session's numbers at its head, as the daemon knows them."""
        self._opened = self._link.ask(commands.Stat(session=self.id), replies.SessionStat)
        return self._opened

    def timeline(self) -> list[replies.Happening]:
        """What ever happened to the session, oldest first."""
        asked = commands.Timeline(session=self.id)
        return self._link.ask(asked, replies.TimelineReport).entries

    def clients(self) -> replies.ClientsReport:
        """Who follows the session."""
        asked = commands.Clients(session=self.id)
        return self._link.ask(asked, replies.ClientsReport)

    def history_at(
        self, at: PastState | None = None, *, checkpoint: int | None = None
    ) -> ContextState:
        """A past state; the present is not touched. See `Session.history_at`."""
        past = PastReader(self.id, at, checkpoint)
        while fetch(self._link, past.reader):
            past.absorb()
        return past.state()

    # --- following -------------------------------------------------------------------------------

    def subscribe(
        self,
        after: Place = "start",
        *,
        records: Followed = "context",
        wire_after: Place | None = None,
    ) -> "BlockingSubscription":
        """The session's events, to be used with `for`: backlog, Live, then what is new.

        Args are those of `Session.subscribe`.
        """
        return BlockingSubscription(self._link, self.id, starts_of(records, after, wire_after))

    def refresh(self) -> None:
        """Take in what others wrote, as far as it has arrived."""
        self._followed()
        self._link.take_in()
        self._followed()

    def wait_for(self, position: Place, timeout: float | None = None) -> bool:
        """Wait until this process's mirror contains everything before `position`.

        Returns:
            False when that took longer than `timeout` seconds.
        """
        target = Position.parse(place(position))
        mirror = self._followed()
        return self._link.wait_until(lambda: mirror.has_reached(target), timeout)

    def restore(self) -> bool:
        """Load the session's history; True when there is something.

        Raises:
            RuntimeError: it is loaded already, and was changed through this object since.
        """
        self._refuse_when_changed()
        if self._mirror is None:
            self.load()
        return not self._state().is_empty

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


class BlockingSubscription(Iterator[SubscriptionEvent]):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    As `Subscription`, for a `for` loop, which waits for ever for the next event; `next_event` waits
    as long as it is told.
    """

    def __init__(
        self, link: "BlockingLink", session: str, starts: Sequence[tuple[File, str]]
    ) -> None:
        self._link = link
        self._is_closed = False
        self._following = Following(session, starts, _nothing)
        for follower in self._following.followers:
            link.follow(follower)

    def __next__(self) -> SubscriptionEvent:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> SubscriptionEvent | None:
        """The next event; None when there was none within `timeout` seconds, or at the end.

        Raises:
            NotFound: the session cannot be followed any longer.
        """
        if self._is_closed or not self._link.wait_until(self._has_news, timeout):
            return None
        if not self._following.has_events:
            assert self._following.error is not None
            raise self._following.error
        event, follower = self._following.pop()
        self._link.consumed(follower)
        return event

    def close(self) -> None:
        """End the subscription."""
        self._is_closed = True
        self._following.clear()
        for follower in self._following.followers:
            self._link.unfollow(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed:
            for follower in self._following.followers:
                self._link.abandon(follower)

    def _has_news(self) -> bool:
        return self._following.has_events or self._following.error is not None


def _nothing() -> None:
    """Nobody sleeps on a subscription of the blocking client: it looks for itself."""
