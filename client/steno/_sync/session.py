"""One session, through a blocking client; the verbs are those of `Session`."""

from collections.abc import Iterator, Sequence

from steno._sansio.argument_checks import given_seconds
from steno._sansio.messages import Message, encode_messages
from steno._sansio.reading import LineReader, PastReader, PastState
from steno._sansio.request_builders import (
    Durability,
    Followed,
    PositionLike,
    position_text,
    starts_of,
)
from steno._sync.compaction_verbs import BlockingCompactionSession
from steno._sync.dmail_verbs import BlockingMailSession
from steno._sync.fork_verbs import BlockingForkingSession
from steno._sync.repair_verbs import BlockingRepairSession
from steno._sync.streams import BlockingRecords, blocking_lines, fetch
from steno._sync.subscription import BlockingSubscription
from steno._sync.wire_verbs import BlockingWireSession
from steno.values import Ack
from steno_protocol import commands, replies
from steno_protocol.context import ContextState
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


class BlockingSession(
    BlockingWireSession,
    BlockingCompactionSession,
    BlockingMailSession,
    BlockingForkingSession,
    BlockingRepairSession,
):
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
        expect: PositionLike | None = None,
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
        expect: PositionLike | None = None,
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
        expect: PositionLike | None = None,
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
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop everything, the system prompt too; the ack's `rotated` holds what was there."""
        return self._change(commands.Clear, key, expect, durability, why=why)

    def update_token_count(
        self,
        token_count: int,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
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
        expect: PositionLike | None = None,
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
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Bring back what a rewrite left behind; what is there now is left behind in its turn."""
        return self._change(
            commands.RestoreGeneration, key, expect, durability, generation=generation, why=why
        )

    # --- reading ---------------------------------------------------------------------------------

    def lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> Iterator[bytes]:
        """The lines between two positions of one generation as bytes, newline included."""
        return blocking_lines(self._link, LineReader(self.id, after, until))

    def records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
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

    def timeline(self) -> list[TimelineEntry]:
        """What ever happened to the session, oldest first."""
        asked = commands.Timeline(session=self.id)
        return self._link.ask(asked, replies.TimelineReport).entries

    def clients(self) -> replies.ClientsReport:
        """The followers of the session."""
        asked = commands.Clients(session=self.id)
        return self._link.ask(asked, replies.ClientsReport)

    def history_at(
        self, at: PastState | None = None, *, checkpoint: int | None = None
    ) -> ContextState:
        """A past state; the present is not touched. See `Session.history_at`."""
        past = PastReader(self.id, at, checkpoint)
        while fetch(self._link, past.reader):
            past.absorb()
        return past.state(self.timeline() if past.tells_no_checkpoint else ())

    # --- following -------------------------------------------------------------------------------

    def subscribe(
        self,
        after: PositionLike = "start",
        *,
        records: Followed = "context",
        wire_after: PositionLike | None = None,
        incarnation: str | None = None,
    ) -> BlockingSubscription:
        """The session's events, to be used with `for`: backlog, Live, then what is new.

        If this object follows the session, `history` contains the records of an event once the
        event is handed out.

        Args are those of `Session.subscribe`. From `now` on it has begun when this returns.

        Raises:
            NotFound, Unreachable: the daemon did not say where `now` is.
        """
        starts = starts_of(records, after, wire_after)
        return BlockingSubscription(self._link, self.id, starts, incarnation, self._mirror_finder())

    def refresh(self) -> None:
        """Take in what others wrote, as far as it has arrived."""
        self._link.take_in(self._followed().follower)
        self._followed()

    def wait_for(self, position: PositionLike, timeout: float | None = None) -> bool:
        """Wait until this process's mirror contains everything before `position`.

        Returns:
            False when that took longer than `timeout` seconds.
        """
        target = Position.parse(position_text(position))
        given_seconds(timeout, "timeout")
        mirror = self._followed()
        return self._link.wait_until(mirror.arrival(target), timeout)

    def restore(self) -> bool:
        """Load the session's history; True when there is something.

        Raises:
            RuntimeError: it is loaded already, and was changed through this object since.
        """
        self._refuse_when_changed()
        if self._mirror is None:
            self.load()
        return not self._state().is_empty
