# Generated from client/steno/_async/session.py, which is the file to edit, by:
# PYTHONPATH=tests python -m support.generate_sync
"""One session, through a blocking client."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from steno import values
from steno._sansio import requests, wire_events
from steno._sansio.messages import Message
from steno._sansio.reading import LineReader
from steno._sansio.repairs import repair_fields
from steno._sansio.requests import CheckpointLike, Durability, MutationT, PositionLike
from steno._sansio.wire_events import Payload, WireEvent, WireReader
from steno._sync.bases import RefreshedSession
from steno._sync.streams import BlockingLineStream, BlockingRecordStream, BlockingWireRecordStream
from steno.values import Ack, Checkpoint, Compacted, Mail, SentMail, StreamInfo, Turn
from steno_protocol import commands, limits, replies, wire
from steno_protocol.errors import StenoError, StorageFailed
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

# What few callers use is imported by the method that needs it, so that a short command starts fast.
if TYPE_CHECKING:
    from steno._sansio.compaction import Compacting
    from steno._sansio.event_merge import Followed
    from steno._sansio.past_state import PastReader, PastState
    from steno._sansio.summaries import BlockingSummarize
    from steno._sync.link import BlockingLink
    from steno._sync.record_list import BlockingRecordList
    from steno._sync.stream import BlockingStream
    from steno._sync.subscription import BlockingSubscription
    from steno_protocol.context import ContextState


class BlockingSession(RefreshedSession):
    """A session that is read and written through its daemon; made by `BlockingClient.open`.

    Every mutation takes the same three options, and returns once its bytes are as durable as
    requested (`compact`, `repair` and the D-Mail verbs lack some of them, for a reason given
    there):

    `key` is the caller's idempotency key: the command is applied once, however often it is sent.
    `expect` is the head that the caller assumes; with another head the daemon writes nothing and
    replies Conflict. `durability` is `synced` (on the disk), `written` (in the page cache) or,
    in a cluster, `replicated` (on a majority of its servers).

    When a mutation of a followed session returns, `history` and its siblings contain it. They hold
    only what is on the disk, so the daemon syncs a `written` mutation of a followed session at
    once; `written` is faster only with `follow=False`. An interrupted call may have been applied:
    repeat it with the same key to find out. The history follows other writers at each call, and on
    `refresh`.

    Example:
        >>> sent = {"role": "user", "content": "once"}
        >>> ack = session.append_message(sent, key="step-1", expect=session.head)
        >>> session.append_message(sent, key="step-1").duplicate
        True
    """

    def __init__(
        self, link: "BlockingLink", session: str, stat: replies.SessionStat | None
    ) -> None:
        super().__init__(session, stat, link.repairs)
        self._link = link

    def __del__(self) -> None:
        if self._mirror is not None:
            self._link.abandon(self._mirror.follower)

    # --- writing ----------------------------------------------------------------------------------

    def append_message(
        self,
        message: Message | Sequence[Message],
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append one message, or a sequence of them as one atomic batch.

        Args:
            message: an object with a `role` and `content`: a dict, a msgspec.Struct, a dataclass
                or a pydantic model (its `model_dump(mode="json")`); or the encoded bytes of one,
                which are stored as they are, without whitespace between tokens.
            key: the idempotency key, 1 to 64 of A-Z a-z 0-9 _ -; a fresh one by default.
            expect: the head that the caller assumes; None accepts any.
            durability: `synced` returns when the bytes are on the disk, `written` when they are in
                the page cache.

        Returns:
            The ack; the messages are as durable as its `durability` states.

        Raises:
            BadRequest, TooLarge: nothing was sent, or the daemon refused it; the error names the
                message and the field.
            NotFound: there is no such session; `BlockingClient.open` creates it.
            Conflict: another writer was faster; `head` is the end of the session.
            StorageFailed: the disk failed, and nothing was written.
            OutcomeUnknown: the messages may be there; repeat with the error's `key`.
            Unreachable: the request was never sent.

        Example:
            >>> ack = session.append_message({"role": "assistant", "content": "Hello"})
            >>> str(ack.first), str(ack.head), ack.durability
            ('0:2', '0:3', 'synced')
            >>> [message["content"] for message in session.history]
            ['hi', 'Hello']
        """
        return self._change(
            commands.Append, key, expect, durability, records=requests.encode_records(message)
        )

    def checkpoint(
        self,
        add_user_message: bool = False,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Checkpoint:
        """Append a checkpoint.

        Args:
            add_user_message: append a message that shows the checkpoint to the model, too.
            key, expect, durability: as in every mutation.

        Returns:
            The checkpoint, which `revert_to` takes. Its `id` is unique among concurrent writers,
            and is never assigned again in a session of steno's own; see `Checkpoint`.

        Raises:
            StenoError: as `append_message`.

        Example:
            >>> mark = session.checkpoint()
            >>> ack = session.append_message({"role": "assistant", "content": "a mistake"})
            >>> ack = session.revert_to(mark)
            >>> mark.id, len(session.history)
            (1, 1)
        """
        ack = self._change(
            commands.Checkpoint, key, expect, durability, add_user_message=add_user_message
        )
        return requests.checkpoint_of(ack)

    def revert_to(
        self,
        target: CheckpointLike | Position,
        *,
        why: str | None = None,
        drop_damaged: bool = False,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop a checkpoint and everything after it; the ack's `rotated` keeps the dropped lines.

        Args:
            target: what `checkpoint` returned, its `handle`, or an id; or the position of any line
                of the present generation, which is dropped like a checkpoint.
            why: a reason for the timeline.
            drop_damaged: drop also the damaged lines before it.
            key, expect, durability: as in every mutation.

        Returns:
            The ack; the session is as before or as after this call, also after a crash.

        Raises:
            NotFound: there is no such checkpoint, or no more; the message names the rewrite that
                removed it and the generation that still contains it.
            Conflict: another checkpoint has this id now, the position is of another generation,
                or another writer was faster than `expect`; nothing was changed.
            StenoError: otherwise, as `append_message`.

        Example:
            >>> ack = session.append_message({"role": "assistant", "content": "a mistake"})
            >>> ack = session.revert_to(0, why="wrong direction")
            >>> [message["content"] for message in session.history], ack.rotated.name
            (['hi'], 'context_1.jsonl')
        """
        return self._change(
            commands.RevertTo,
            key,
            expect,
            durability,
            why=why,
            drop_damaged=drop_damaged,
            **requests.reverted(target),
        )

    def clear(
        self,
        *,
        why: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Drop everything, the system prompt too; the ack's `rotated` keeps the dropped lines.

        Args:
            why: a reason for the timeline.
            key, expect, durability: as in every mutation.

        Returns:
            The ack; `restore_generation` brings the dropped lines back.

        Raises:
            StenoError: as `append_message`.

        Example:
            >>> ack = session.clear()
            >>> session.history, str(ack.head)
            ([], '1:0')
        """
        return self._change(commands.Clear, key, expect, durability, why=why)

    def update_token_count(
        self,
        token_count: int,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append the token count of the context, as a model reported it.

        Args:
            token_count: the number of tokens, at least 0.
            key, expect, durability: as in every mutation.

        Returns:
            The ack of its record.

        Raises:
            StenoError: as `append_message`.

        Example:
            >>> ack = session.update_token_count(1472)
            >>> session.token_count
            1472
        """
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
        """Put the system prompt first; on a session that has content this is a rewrite.

        Args:
            prompt: the text of the system prompt.
            key, expect, durability: as in every mutation.

        Returns:
            The ack; after a rewrite its `rotated` is the file with the previous generation.

        Raises:
            StenoError: as `append_message`.

        Example:
            >>> ack = session.write_system_prompt("You are terse.")
            >>> session.system_prompt, ack.rotated.name
            ('You are terse.', 'context_1.jsonl')
        """
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
        """Restore a generation that a rewrite left behind; the present one is kept like it.

        Args:
            generation: the number of the generation.
            why: a reason for the timeline.
            key, expect, durability: as in every mutation.

        Returns:
            The ack; its `rotated` is the file with the generation that was the present one.

        Raises:
            NotFound: there is no such generation.
            StenoError: otherwise, as `append_message`.

        Example:
            >>> ack = session.clear()
            >>> ack = session.restore_generation(0)
            >>> len(session.history), str(ack.head)
            (1, '2:2')
        """
        return self._change(
            commands.RestoreGeneration, key, expect, durability, generation=generation, why=why
        )

    # --- reading ----------------------------------------------------------------------------------

    def lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> BlockingLineStream:
        r"""Read the lines between two positions of one generation as bytes, newline included.

        Args:
            after: where to begin; None is the start of the present generation. A position behind
                the end yields nothing, like the end itself.
            until: where to end; None is the end of the generation at the time of reading.

        Returns:
            A stream for `for`; it sends its first request with the first line.

        Raises:
            NotFound: while it is read: there is no such session, generation or position.

        Example:
            >>> [line.endswith(b"\n") for line in session.lines()]
            [True, True]
        """
        return BlockingLineStream(self._link, LineReader(self.id, after, until))

    def records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> BlockingRecordStream:
        """Read the records between two positions of one generation, each with its cursor.

        Args:
            after: as in `lines`.
            until: as in `lines`.
            strict: stop at the first damaged line with Corrupt; otherwise damaged lines are
                skipped, and counted in `damaged` of the returned object.

        Returns:
            A stream for `for`; its `damaged` counts the lines that it has skipped.

        Raises:
            Corrupt: while it is read with `strict`: a line is no JSON object.
            NotFound: while it is read: there is no such session, generation or position.

        Example:
            >>> [(str(each.cursor), each.record["role"]) for each in session.records()]
            [('0:0', 'user'), ('0:1', '_checkpoint')]
        """
        reader = LineReader(self.id, after, until)
        return BlockingRecordStream(self._link, reader, partial(reader.records, strict=strict))

    def stat(self) -> replies.SessionStat:
        """Return the session's numbers at its head, as the daemon knows them.

        Returns:
            Head, size, token counts, title and folder; nothing is changed.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> session.stat().n_checkpoints
            1
        """
        self._opened = self._link.ask(commands.Stat(session=self.id), replies.SessionStat)
        return self._opened

    def timeline(self) -> list[TimelineEntry]:
        """Return the timeline of the session, oldest entry first.

        Returns:
            An entry for the creation and for every rewrite, fork, D-Mail and repair.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> ack = session.clear(why="a new task")
            >>> [(entry.kind, entry.why) for entry in session.timeline()]
            [('created', None), ('cleared', 'a new task')]
        """
        asked = commands.Timeline(session=self.id)
        return (self._link.ask(asked, replies.TimelineReport)).entries

    def clients(self) -> replies.ClientsReport:
        """List the followers of the session.

        Returns:
            The clients that follow it, the number of its queued commands, and its last error; empty
            when there is no such session.

        Raises:
            BadRequest: the id is no session id.

        Example:
            >>> [each.name for each in session.clients().clients]
            ['planner']
        """
        asked = commands.Clients(session=self.id)
        return self._link.ask(asked, replies.ClientsReport)

    def history_at(
        self, at: "PastState | None" = None, *, checkpoint: CheckpointLike | None = None
    ) -> "ContextState":
        """Return a past state; the present one does not change.

        Args:
            at: a position, or the number of a generation for its end; None is the present.
            checkpoint: the state before this checkpoint of that generation, as a revert leaves it.
                What `checkpoint` returned names its generation itself, also a past one.

        Returns:
            The state at that instant, with `history`, `checkpoints`, `token_count` and more.

        Raises:
            NotFound: there is no such position, generation or checkpoint.
            Conflict: the checkpoint is another session's.

        Example:
            >>> ack = session.clear()
            >>> session.history_at(0).history
            [{'role': 'user', 'content': 'hi'}]
        """
        from steno._sansio.past_state import PastReader  # noqa: PLC0415

        past = PastReader(self.id, at, checkpoint)
        self._read(past)
        return past.state(self.timeline())

    # --- following --------------------------------------------------------------------------------

    def load(self) -> None:
        """Begin to follow the session, and return once its backlog is in the mirror.

        A session that is loaded already stays as it is.

        Raises:
            NotFound: there is no such session.
            Unreachable: no daemon answered in time.

        Example:
            >>> reader = client.session("talk")
            >>> reader.load()
            >>> len(reader.history)
            1
        """
        if self._mirror is not None:
            return
        from steno._sansio.mirror import Mirror  # noqa: PLC0415

        mirror = Mirror(self.id)
        self._link.follow(mirror.follower)
        try:
            self._link.reach(mirror, None)
            self._mirror = mirror
        except BaseException:
            self._mirror = None
            self._link.unfollow(mirror.follower)
            raise

    def close(self) -> None:
        """Stop following the session; acknowledged changes stay as they are.

        Example:
            >>> session.close()
            >>> session.is_following
            False
        """
        if self._mirror is not None:
            mirror, self._mirror = self._mirror, None
            self._link.unfollow(mirror.follower)
            mirror.notify_watchers()

    def restore(self) -> bool:
        """Load the session's history; return True unless it is empty.

        Returns:
            True when the session has any line.

        Raises:
            RuntimeError: the history is loaded, and was changed through this object since.
            NotFound: there is no such session.

        Example:
            >>> reader = client.session("talk")
            >>> reader.restore()
            True
        """
        self._refuse_when_changed()
        if self._mirror is None:
            self.load()
        return not self._state().is_empty

    def subscribe(
        self,
        after: PositionLike = "start",
        *,
        records: "Followed" = "context",
        wire_after: PositionLike | None = None,
        incarnation: str | None = None,
        pace: float = 0.0,
    ) -> "BlockingSubscription":
        """Follow the session's events with `for`: the backlog, Live, then new events.

        If this object follows the session, `history` contains the records of an event before the
        event is delivered.

        Args:
            after: `start` (of the present generation), `now`, or a position. `now` is an instant
                before this returns.
            records: `context`, `wire`, or `both`; `file` of each event names its file. With
                `both` each file has a Live of its own, and each file's events are in order.
            wire_after: as `after`, in the wire file; needed with `both` after a position, because
                the two files have positions of their own.
            incarnation: the `incarnation` of this object, or of the subscription, at the time when
                the positions were saved. If the session was deleted and created again since then, a
                Reset that keeps nothing comes first. Without it the positions are taken for
                positions of the present session.
            pace: shortest time in seconds, 0 to 10, between two events with new records of a file.
                The first event after a quiet time comes at once, and records of the meantime come
                together. 0 is an event for each commit. A busy writer then pays for one event in
                that time instead of one for each commit. Records come early in front of a Reset or
                a DmailEvent, and when 1 MiB of them is there.

        Returns:
            The subscription; the description of its class states when it begins.

        Raises:
            NotFound, Unreachable: the daemon did not answer with the position of `now`.

        Raises:
            BadRequest: an argument has another form.

        Example:
            >>> with session.subscribe("start") as events:
            ...     for event in events:
            ...         if isinstance(event, steno.Live):
            ...             break  # the backlog ends here
            ...         print(len(event.records()), "records from", event.first)
            2 records from 0:0
        """
        from steno._sansio.event_merge import starts_of  # noqa: PLC0415
        from steno._sync.subscription import BlockingSubscription  # noqa: PLC0415

        starts = starts_of(records, after, wire_after)
        mirror_of = self._mirror_finder()
        return BlockingSubscription(self._link, self.id, starts, incarnation, mirror_of, pace)

    # --- the wire file ----------------------------------------------------------------------------

    def append_wire(
        self,
        event: str | Sequence[WireEvent],
        payload: Payload | None = None,
        timestamp: float | None = None,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "written",
        header: Payload | None = None,
    ) -> Ack:
        """Append an event, or a sequence of them as one atomic batch.

        Args:
            event: the type of the event; or events, each `(type, payload)`,
                `(type, payload, timestamp)`, a WireRecord, or a whole record.
            payload: the contents of the event, an object: see `append_message`.
            timestamp: Unix time in seconds, now if it is not given.
            key: as in every mutation.
            expect: as in every mutation; a position of the wire file.
            durability: `written` returns when the bytes are in the page cache; they are synced
                within a second, within 50 ms while the file has followers, and readers see them
                only then. The ack contains the durability that was reached.
            header: further fields of the file's header line, such as `session_id`, if this append
                begins the file; otherwise they are checked and not used.

        Returns:
            The ack; its positions are positions of the wire file.

        Raises:
            StenoError: as `append_message`.

        Example:
            >>> begun = ("TurnBegin", {"user_input": "hi"})
            >>> ack = session.append_wire([begun], durability="synced")
            >>> ack.durability
            'synced'
        """
        records = wire_events.encode_events(event, payload, timestamp)
        fields = wire_events.header_fields(header)
        command = requests.mutation(
            commands.AppendWire, self.id, self._link.name, key, expect, durability, header=fields
        )
        ack, _ = self._link.request(command, replies.Ack, records, mirror=self._mirror)
        return requests.ack_of(ack, command.key)

    def wire_records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> BlockingWireRecordStream:
        """Read the events between two positions of the wire file, each with its cursor.

        Events that are not synced yet are left out.

        Args:
            after: begin here.
            until: end here.
            strict: stop with Corrupt at the first line that is neither an event, a header nor
                blank; otherwise such lines are skipped, and counted in `damaged` of the returned
                object.

        Returns:
            A stream for `for`; its `damaged` counts the lines that it has skipped.

        Raises:
            Corrupt: while it is read with `strict`: a line is no event.
            NotFound: while it is read: there is no such session or position.

        Example:
            >>> begun = ("TurnBegin", {"user_input": "hi"})
            >>> ack = session.append_wire([begun], durability="synced")
            >>> [(event.type, str(event.at)) for event in session.wire_records()]
            [('TurnBegin', '0:2')]
        """
        reader = WireReader(self.id, after, until)
        return BlockingWireRecordStream(self._link, reader, partial(reader.events, strict=strict))

    def wire_lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> BlockingLineStream:
        """Read the lines between two positions of the wire file as bytes, the header included.

        Args:
            after: begin here.
            until: end here.

        Returns:
            A stream for `for`.

        Raises:
            NotFound: while it is read: there is no such session or position.

        Example:
            >>> begun = ("TurnBegin", {"user_input": "hi"})
            >>> ack = session.append_wire([begun], durability="synced")
            >>> len([line for line in session.wire_lines()])
            2
        """
        return BlockingLineStream(self._link, WireReader(self.id, after, until))

    def wire_version(self) -> str:
        """Return the version of the events: from the header; `1.1` for a file without a header.

        An empty or missing file has the version that its first event will bring.

        Returns:
            A text such as `1.10`.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> session.wire_version()
            '1.10'
        """
        reader = WireReader(self.id, None)
        while (version := reader.version()) is None:
            if not self._link.fetch(reader):
                return wire.WIRE_VERSION
        return version

    def wire_is_empty(self) -> bool:
        """Return True when the wire file is missing, or has only blank lines and the header.

        A file that cannot be read may not be empty, so the answer for it is False.

        Returns:
            False also when the file cannot be read.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> session.wire_is_empty()
            True
        """
        reader = WireReader(self.id, None)
        try:
            while not reader.has_content():
                if not self._link.fetch(reader):
                    return True
        except StorageFailed:
            return False
        return False

    def turns(self) -> list[Turn]:
        """Return the turns of the session, oldest first.

        Returns:
            A turn for each event `TurnBegin`; its index is the number that `fork` takes.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> begun = ("TurnBegin", {"user_input": "hi"})
            >>> ack = session.append_wire([begun], durability="synced")
            >>> [turn.user_input for turn in session.turns()]
            ['hi']
        """
        return [turn for record in self.wire_records() if (turn := wire_events.turn_of(record))]

    # --- streams ---------------------------------------------------------------------------------

    def stream(self, name: str) -> "BlockingStream":
        """Return a handle to one of the session's streams; no request is sent, nothing is made.

        Args:
            name: 1 to 64 of a-z 0-9 . _ -, but neither `context` nor `wire`.

        Returns:
            The handle; the first append creates the stream.

        Raises:
            BadRequest: the name is invalid.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append({"text": "Ask for the size of the shop."})
            >>> [record.record["text"] for record in notes.last(1)]
            ['Ask for the size of the shop.']
        """
        from steno._sync.stream import BlockingStream  # noqa: PLC0415

        return BlockingStream(self._link, self.id, name)

    def record_list(self, name: str) -> "BlockingRecordList":
        """Return one of the session's streams as a list whose items can change; sends no request.

        Args:
            name: the name of the stream, which only the list's own methods may append to.

        Returns:
            The list; its first item creates the stream.

        Raises:
            BadRequest: the name is invalid.

        Example:
            >>> todo = session.record_list("todo")
            >>> ack = todo.append([{"text": "a"}, {"text": "b"}])
            >>> todo.delete(0)
            {'text': 'a'}
            >>> todo.read().items
            [{'text': 'b'}]
        """
        from steno._sync.record_list import BlockingRecordList  # noqa: PLC0415

        return BlockingRecordList(self.stream(name))

    def streams(self) -> list[StreamInfo]:
        """List the session's streams.

        Returns:
            The name, head, records, size and time of change of each, ordered by name.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> ack = session.stream("notes").append({"text": "x"})
            >>> [(stream.name, stream.records) for stream in session.streams()]
            [('notes', 1)]
        """
        asked = commands.Streams(session=self.id)
        found = self._link.ask(asked, replies.StreamList)
        return [values.stream_info(entry) for entry in found.streams]

    # --- compaction -------------------------------------------------------------------------------

    def compact(
        self,
        summarize: "BlockingSummarize",
        *,
        preserve: int = 2,
        instruction: str | None = None,
        why: str | None = None,
        key: str | None = None,
        lease: float = limits.COMPACTION_SILENT_LEASE_MS / 1000,
    ) -> Compacted | None:
        """Put a summary in place of all but the last messages, as one rewrite.

        All clients can write meanwhile: messages that arrive while the model thinks are kept, in
        their order, behind the preserved messages. The summarised messages stay readable in the
        ack's `rotated`, and `restore_generation` restores them.

        There is no `durability`, because a rewrite is always synced, and no `expect`: the
        compaction is valid while the session is in the generation in which it began.

        Args:
            summarize: a function that gets the messages of one request to a model, and
                returns the model's answer as a text or a `Summary`.
            preserve: how many of the last user and assistant messages stay as they are; a tool's
                result always stays with its call.
            instruction: a wish for the summary, which goes before the prompt's own order.
            why: a reason for the timeline.
            key: as in every mutation: a repeat returns the first result, also when the session
                was rewritten since, and asks no model.
            lease: seconds after which other clients may begin. The lease is not renewed while
                `summarize` runs, and `summarize` is not ended after it.

        Returns:
            The result, synced to the disk; None when there is too little to summarise.

        Raises:
            Busy: another client compacts the session; the message names it.
            Conflict: a revert, a clear or another rewrite came between, or the session was deleted
                and created again.
            BadRequest: the summary has no text.
            NotFound: this is a repeat, and `gc` has removed a generation of the first compaction.
            OutcomeUnknown: the summary may be in place; repeat with the error's `key`.
            Exception: an error of `summarize`. This, all other errors, and an interrupt before
                the summary was there leave the session unchanged.

        Example:
            >>> def summarize(messages):
            ...     return "The user counted to eight."
            >>> texts = [{"role": "user", "content": str(number)} for number in range(9)]
            >>> ack = session.append_message(texts)
            >>> done = session.compact(summarize)
            >>> done.messages, len(session.history)
            (8, 3)
        """
        from steno._sansio.compaction import Compacting, check_asking  # noqa: PLC0415
        from steno._sync.model_call import ModelCall  # noqa: PLC0415

        check_asking(summarize, instruction)
        model = ModelCall(summarize, lease)
        job = Compacting(self.id, self._link.name, key, preserve, model.lease_ms)
        # Before `begin`: after a rewrite there may be nothing left to do, and a model costs much.
        repeated = None if key is None else self._repeated(job)
        if repeated is not None:
            return repeated
        self._link.close_requests.add(job.abort)
        try:
            begun = job.begun(self._link.ask(job.begin, replies.Compaction, mirror=self._mirror))
            if begun is None:
                return None
            messages = self._state_of(begun.past())
            summary = model.answer(self._link, begun, begun.request(messages, instruction))
            ack = self._change(
                commands.CompactCommit, job.key, None, "synced",
                records=begun.commit_record(summary), **begun.commit_fields(summary, why),
            )  # fmt: skip
        except BaseException:
            self._link.abort(job.abort)
            raise
        finally:
            self._link.close_requests.discard(job.abort)
        if ack.duplicate:
            # Only a rewrite ends the lease, and this commit was none.
            self._link.abort(job.abort)
            # Another process with the same key was faster, and its summary is in place.
            repeated = self._repeated(job)
        return repeated or begun.result(requests.checkpoint_of(ack), summary)

    # --- D-Mail -----------------------------------------------------------------------------------

    def send_dmail(
        self,
        checkpoint_id: CheckpointLike,
        message: str,
        *,
        replaces: str | None = None,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> SentMail:
        """Send a message back to a checkpoint, where it is pending until a client delivers it.

        The mail survives a restart of the daemon, and expires in the rewrite that removes its
        checkpoint. Subscribers of the session get an event. There is no `durability`: the mail
        is in the timeline, which is always synced.

        Args:
            checkpoint_id: what `checkpoint` returned, its `handle`, or an id.
            message: the text of the mail.
            replaces: the id of a pending mail that this one replaces.
            key: as in every mutation.
            expect: as in every mutation.

        Returns:
            An ack whose `id` is the mail's; the mail is synced to the disk.

        Raises:
            NotFound: there is no such checkpoint, or no more, as for `revert_to`.
            Conflict: another checkpoint has this id now, or `expect` is not the head.
            Exists: another mail is pending, and `replaces` does not name it.
            BadRequest: the message is empty or too long.

        Example:
            >>> sent = session.send_dmail(0, "The large file is of no use: skip it.")
            >>> session.pending_dmail().id == sent.id
            True
        """
        ack = self._change(
            commands.SendDmail,
            key,
            expect,
            "synced",
            message=message,
            replaces=replaces,
            **requests.target_of(checkpoint_id).fields(),
        )
        return values.sent_mail_of(ack)

    def pending_dmail(self) -> Mail | None:
        """Return the pending mail, or None; nothing is changed.

        Returns:
            The mail that `deliver_dmail` takes.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> session.pending_dmail() is None
            True
        """
        asked = commands.PendingDmail(session=self.id)
        report = self._link.ask(asked, replies.MailReport)
        return None if report.mail is None else values.mail_of(report.mail)

    def deliver_dmail(
        self,
        mail_id: str,
        *,
        add_user_message: bool = False,
        key: str | None = None,
        expect: PositionLike | None = None,
    ) -> Checkpoint:
        """Go back to the mail's checkpoint, set a new one, and append the message: one rewrite.

        There is no `durability`: a rewrite is always synced.

        Args:
            mail_id: the id of the mail; no other mail is delivered.
            add_user_message: show the new checkpoint to the model.
            key: as in every mutation.
            expect: as in every mutation.

        Returns:
            The new checkpoint, which has a new id; its `rotated` keeps the lines that were left
            behind.

        Raises:
            NotFound: this mail is not pending: it was delivered, has expired, or never was sent.

        Example:
            >>> sent = session.send_dmail(0, "Skip the large file.")
            >>> mark = session.deliver_dmail(sent.id)
            >>> len(session.history), mark.id
            (2, 1)
        """
        ack = self._change(
            commands.DeliverDmail, key, expect, "synced",
            mail_id=mail_id, add_user_message=add_user_message,
        )  # fmt: skip
        return requests.checkpoint_of(ack)

    # --- forks and descriptions -------------------------------------------------------------------

    def fork(
        self,
        new_id: str,
        *,
        at: PositionLike | None = None,
        checkpoint: CheckpointLike | None = None,
        turn: int | None = None,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Create a new session from the state of this one at an instant; this one does not change.

        Context and wire file are cut at the same instant. At most one of `at`, `checkpoint` and
        `turn` is given; none is now.

        Args:
            new_id: the id of the new session.
            at: a position of any generation, or `now`.
            checkpoint: before this checkpoint, as a revert to it leaves the session: what
                `checkpoint` returned, its `handle`, or an id.
            turn: after this turn, counted from 0; -1 is before the first.
            title: of the new session; None derives it from the title of this one.
            key: as in every mutation: a repeat gets the same session and creates no other.

        Returns:
            The new session, on the disk; followed when this one is.

        Raises:
            NotFound: there is no such position, checkpoint or turn.
            Conflict: another checkpoint has this id now.
            Exists: there is a session with the new id already.
            BadRequest: the instant is inside a batch, or the beginning of the turn is unknown; the
                message names positions. Or the new id is no session id.
            OutcomeUnknown: the new session may exist, or it exists and cannot be followed; repeat
                with the error's `key`.

        Example:
            >>> other = session.fork("plan-b", checkpoint=0)
            >>> other.id, len(other.history)
            ('plan-b', 1)
        """
        command = requests.fork_command(
            self.id, self._link.name, new_id, at, checkpoint, turn, title, key
        )
        return self._fork(command)

    def undo(
        self,
        turns: int = 1,
        new_id: str | None = None,
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Fork before the last `turns` turns.

        Args:
            turns: how many, at least 1; the wire file contains the beginnings of turns.
            new_id: None is this session's id with `-undo-` and eight characters derived from the
                key.
            title: as in `fork`.
            key: as in `fork`.

        Returns:
            The new session, as from `fork`; this one does not change.

        Raises:
            NotFound: the session has fewer turns.
            StenoError: otherwise, as `fork`.

        Example:
            >>> ack = session.append_wire("TurnBegin", {"user_input": "more"})
            >>> ack = session.append_message({"role": "user", "content": "more"})
            >>> before = session.undo(1, "before-more")
            >>> len(before.history), len(session.history)
            (1, 2)
        """
        command = requests.undo_command(self.id, self._link.name, turns, new_id, title, key)
        return self._fork(command)

    def describe(
        self,
        *,
        title: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
        replace_damaged: bool = False,
    ) -> replies.SessionStat:
        """Set the title, the labels or the archived mark of the session; None keeps the old value.

        Args:
            title: the title; the empty text removes it.
            labels: all labels; an empty list removes them.
            archived: whether lists without archived sessions leave it out.
            replace_damaged: keep a damaged `state.json` under another name and begin a new one;
                this alone is enough, too.

        Returns:
            The session's numbers with the new values, on the disk.

        Raises:
            NotFound: there is no such session.
            Corrupt: `state.json` is damaged and was not replaced; nothing was changed.

        Example:
            >>> stat = session.describe(title="Plan A", labels=["draft"])
            >>> stat.title, stat.labels
            ('Plan A', ('draft',))
        """
        asked = requests.describe_command(
            self.id, title, labels, archived, replace_damaged=replace_damaged
        )
        self._opened = self._link.ask(asked, replies.SessionStat, mirror=self._mirror)
        return self._opened

    # --- damage -----------------------------------------------------------------------------------

    def verify(self) -> replies.Verification:
        """Check all files of the session for damage; nothing is changed.

        Returns:
            The checked files, and each finding with its place and a remedy. `damage` is 0 for a
            clean session.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> session.verify().damage
            0
        """
        asked = commands.Verify(session=self.id)
        return self._link.ask(asked, replies.Verification)

    def repair(
        self, report: replies.Verification, *, why: str | None = None, key: str | None = None
    ) -> Ack:
        r"""Separate records that share a line and drop damaged lines, as one rewrite.

        The damaged file stays whole as the ack's `rotated`. Lines that were appended since the
        report are kept as they are. There is no `durability`, because a rewrite is always synced,
        and no `expect`: the repair is valid while the verified bytes are unchanged.

        Args:
            report: the result of `verify`.
            why: a reason for the timeline.
            key: as in every mutation.

        Returns:
            The ack; its `rotated` is the damaged file.

        Raises:
            Conflict: the file has changed since the report; verify again.
            BadRequest: there is nothing to repair.

        Example:
            >>> with session.file_backend.open("ab") as file:  # as a program without a daemon
            ...     size = file.write(b'{"role":"us{"role":"user","content":"fused"}\n')
            >>> report = session.verify()
            >>> ack = session.repair(report)
            >>> report.damage, session.verify().damage
            (1, 0)
        """
        return self._change(commands.Repair, key, None, "synced", why=why, **repair_fields(report))

    # --- inside -----------------------------------------------------------------------------------

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
        command = requests.mutation(
            kind, self.id, self._link.name, key, expect, durability, **fields
        )
        self._is_changed = True
        return requests.ack_of(self._link.change(command, records, self._mirror), command.key)

    def _read(self, past: "PastReader") -> None:
        while self._link.fetch(past.reader):
            past.absorb()

    def _state_of(self, past: "PastReader") -> "ContextState":
        self._read(past)
        return past.state()

    def _repeated(self, job: "Compacting") -> Compacted | None:
        """The result of the first compaction with this key; None when there was none."""
        asked = commands.Timeline(session=self.id)
        applied = job.applied((self._link.ask(asked, replies.TimelineReport)).entries)
        if applied is None:
            return None
        made = self._state_of(applied.made())
        summarised = self._state_of(applied.summarised())
        ack = self._change(
            commands.CompactCommit, job.key, None, "synced",
            records=applied.commit_record(made), **applied.commit_fields(),
        )  # fmt: skip
        return applied.result(requests.checkpoint_of(ack), made, summarised)

    def _fork(self, command: commands.Fork) -> Self:
        stat = self._link.ask(command, replies.SessionStat, mirror=self._mirror)
        made = type(self)(self._link, command.new_session, stat)
        if self.is_following:
            try:
                made.load()
            except StenoError as error:
                raise requests.made_unfollowed(error, made.id, command.key) from error
        return made
