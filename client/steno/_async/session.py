"""One session, through an async client."""

from collections.abc import Sequence

import anyio.lowlevel

from steno._async.compaction_verbs import CompactionSession
from steno._async.dmail_verbs import MailSession
from steno._async.fork_verbs import ForkingSession
from steno._async.repair_verbs import RepairSession
from steno._async.subscription import LineStream, RecordStream, Subscription, fetch
from steno._async.wire_verbs import WireSession
from steno._sansio.messages import Message, encode_messages
from steno._sansio.reading import LineReader, PastReader, PastState
from steno._sansio.request_builders import (
    Durability,
    Followed,
    PositionLike,
    position_text,
    starts_of,
)
from steno.values import Ack
from steno_protocol import commands, replies
from steno_protocol.context import ContextState
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


class Session(WireSession, CompactionSession, MailSession, ForkingSession, RepairSession):
    """A session that is read and written through its daemon; made by `Client.open`.

    Every mutation takes the same three options, and returns once its bytes are as durable as asked
    (`compact`, `repair` and those of D-Mail do without some, and say why):

    `key` is the caller's idempotency key: the command is applied once, however often it is sent.
    `expect` is the position that the caller believes is the head; another head is a Conflict and
    nothing is written. `durability` is `synced` (on the disk) or `written` (in the page cache).

    When a mutation of a followed session returns, `history` and its siblings contain it. They hold
    only what is on the disk, so the daemon syncs a `written` mutation of a followed session at
    once; `written` is faster only with `follow=False`. A cancelled call may have been applied:
    repeat it with the same key to find out.
    """

    # --- writing ---------------------------------------------------------------------------------

    async def append_message(
        self,
        message: Message | Sequence[Message],
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append one message, or a sequence of them as one atomic batch.

        Args:
            message: an object with a `role` and `content`, or the bytes of one, encoded already.

        Raises:
            BadRequest, TooLarge: nothing was sent, or the daemon refused it.
            Conflict: another writer was faster; `head` says where the session ends.
            StorageFailed: the disk refused, and nothing of it is there.
            OutcomeUnknown: it may be there; repeat it with the error's `key`.
            Unreachable: it was never sent.
        """
        return await self._change(
            commands.Append, key, expect, durability, records=encode_messages(message)
        )

    async def checkpoint(
        self,
        add_user_message: bool = False,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append a checkpoint, with the message that shows it to the model if so wanted.

        The ack's `checkpoint_id` is unique however many writers ask at once.
        """
        return await self._change(
            commands.Checkpoint, key, expect, durability, add_user_message=add_user_message
        )

    async def revert_to(
        self,
        checkpoint_id: int,
        *,
        why: str | None = None,
        drop_damaged: bool = False,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop a checkpoint and all that follows it; the ack's `rotated` holds what was there.

        Args:
            why: a reason for the timeline.
            drop_damaged: drop the lines before it that are no records, too.

        Raises:
            NotFound: there is no such checkpoint; the message names the valid range.
        """
        return await self._change(
            commands.RevertTo,
            key,
            expect,
            durability,
            checkpoint_id=checkpoint_id,
            why=why,
            drop_damaged=drop_damaged,
        )

    async def clear(
        self,
        *,
        why: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop everything, the system prompt too; the ack's `rotated` holds what was there."""
        return await self._change(commands.Clear, key, expect, durability, why=why)

    async def update_token_count(
        self,
        token_count: int,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append how many tokens the context has, as a model counted them."""
        return await self._change(
            commands.UpdateTokenCount, key, expect, durability, token_count=token_count
        )

    async def write_system_prompt(
        self,
        prompt: str,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Put the system prompt first; on a session that has content this is a rewrite."""
        return await self._change(
            commands.WriteSystemPrompt, key, expect, durability, prompt=prompt
        )

    async def restore_generation(
        self,
        generation: int,
        *,
        why: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Bring back what a rewrite left behind; what is there now is left behind in its turn.

        Raises:
            NotFound: there is no such generation.
        """
        return await self._change(
            commands.RestoreGeneration, key, expect, durability, generation=generation, why=why
        )

    # --- reading ---------------------------------------------------------------------------------

    def lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> LineStream:
        """The lines between two positions of one generation as bytes, newline included.

        Args:
            after: where to begin; None is the start of the present generation. Of a position
                behind the end comes nothing, as of the end itself.
            until: where to end; None is its end at the time of reading.
        """
        return LineStream(self._link, LineReader(self.id, after, until))

    def records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> RecordStream:
        """The records between two positions of one generation, each with its cursor.

        Args:
            strict: stop at the first damaged line with Corrupt; else such lines are passed over
                and counted in the `damaged` of what is returned.
        """
        return RecordStream(self._link, LineReader(self.id, after, until), strict=strict)

    async def stat(self) -> replies.SessionStat:
        """The session's numbers at its head, as the daemon knows them."""
        self._opened = await self._link.ask(commands.Stat(session=self.id), replies.SessionStat)
        return self._opened

    async def timeline(self) -> list[TimelineEntry]:
        """What ever happened to the session, oldest first."""
        asked = commands.Timeline(session=self.id)
        return (await self._link.ask(asked, replies.TimelineReport)).entries

    async def clients(self) -> replies.ClientsReport:
        """The followers of the session."""
        asked = commands.Clients(session=self.id)
        return await self._link.ask(asked, replies.ClientsReport)

    async def history_at(
        self, at: PastState | None = None, *, checkpoint: int | None = None
    ) -> ContextState:
        """A past state; the present is not touched.

        Args:
            at: a position, or the number of a generation for its end; None is the present.
            checkpoint: the state before this checkpoint of that generation, as a revert leaves it.

        Raises:
            NotFound: there is no such position, generation or checkpoint.
        """
        past = PastReader(self.id, at, checkpoint)
        while await fetch(self._link, past.reader):
            past.absorb()
            # A long history must not keep the other tasks waiting.
            await anyio.lowlevel.checkpoint()
        return past.state(await self.timeline() if past.tells_no_checkpoint else ())

    # --- following -------------------------------------------------------------------------------

    def subscribe(
        self,
        after: PositionLike = "start",
        *,
        records: Followed = "context",
        wire_after: PositionLike | None = None,
        incarnation: str | None = None,
    ) -> Subscription:
        """The session's events, to be used with `async for`: backlog, Live, then what is new.

        If this object follows the session, `history` contains the records of an event once the
        event is handed out.

        Args:
            after: `start` (of the present generation), `now`, or a position. `now` is the instant
                at which `async with` on the subscription was entered.
            records: `context`, `wire`, or `both`; `file` of each event names its file. With
                `both` each file has a Live of its own, and each file's events are in order.
            wire_after: as `after`, in the wire file; needed with `both` after a position, because
                the two files have positions of their own.
            incarnation: the `incarnation` of this object, or of the subscription, at the time when
                the positions were saved. If the session was deleted and created again since then, a
                Reset that keeps nothing comes first. Without it the positions are taken for
                positions of the present session.
        """
        starts = starts_of(records, after, wire_after)
        return Subscription(self._link, self.id, starts, incarnation, self._mirror_finder())

    async def wait_for(self, position: PositionLike) -> None:
        """Wait until this process's mirror contains everything before `position`.

        With the `head` of an ack of another process this is read-your-writes across processes.
        """
        target = Position.parse(position_text(position))
        await self._link.reach(self._followed(), target, urgent=False)

    async def restore(self) -> bool:
        """Load the session's history; True when there is something.

        Raises:
            RuntimeError: it is loaded already, and was changed through this object since.
        """
        self._refuse_when_changed()
        if self._mirror is None:
            await self.load()
        return not self._state().is_empty
