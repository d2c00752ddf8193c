"""A transcript of another agent and its session: what was added to the file is appended.

Three steps, each of which a kill may end; the next call sees what is there and goes on:

1. The whole lines behind the cursor go to the stream. The key of each append is the next cursor,
   and `expect` is the head that belongs to the last one, so that of two writers one gets `conflict`
   and looks again. A file that does not begin with what the stream has was rewritten: the stream is
   deleted, which keeps it as a past generation, and begins anew.
2. The messages go to the context, with `expect` again. Where the reader sees earlier messages
   otherwise, the session is reverted to the last one that stays.
3. The stream `source` gets a note: the file is in the session up to there. It also has the place
   of the file, and its title.

The files that the program keeps beside it go to a stream of their own, once nothing was written for
a while: they may come later than the lines that name them.

A context that others changed is left as it is: a person goes on with it.

A program that keeps its sessions in a database has no file that grows: its rows change. What the
stream has is then the beginning of the file, and the rows that changed are what was added to it.
"""

import os
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, Literal, cast

import msgspec

from steno import BlockingClient
from steno.parts import mutation
from steno.values import decode_object
from steno_agents.following import (
    Agreement,
    Changed,
    Conversation,
    Cursor,
    Damage,
    Reading,
    RecordAt,
    agreement,
    lines_of,
    messages_of,
    pieces_of,
)
from steno_agents.json_lines import lenient_object
from steno_agents.limits import FOLLOWED_RECORDS_MAX, RAW_BYTES
from steno_agents.row_log import additions
from steno_agents.transcript import ForeignTranscript, Message
from steno_follow.codex_rollouts import Rollouts
from steno_follow.companions import taken_of
from steno_follow.foreign_sources import SOURCE, ForeignSource, SourceNote, too_long_line
from steno_follow.limits import (
    FOLLOW_ATTEMPTS_MAX,
    FOLLOW_BATCH_BYTES,
    FOLLOW_BATCH_RECORDS_MAX,
    FOLLOW_PAST_MAX,
    FOLLOW_UPDATE_FACTOR_MAX,
    TRANSCRIPT_LINE_BYTES_MAX,
)
from steno_follow.recognition import line_within
from steno_present.wording import count
from steno_protocol.commands import (
    Append,
    AppendStream,
    Clear,
    DeleteStream,
    Mutation,
    RevertTo,
    UpdateTokenCount,
    WriteSystemPrompt,
)
from steno_protocol.errors import Busy, Conflict, Exists
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS
from steno_protocol.replies import Ack, Deleted
from steno_protocol.timeline_entries import REWRITES, ROTATED
from steno_redact.records import masked_bytes
from steno_redact.redactor import Redactor

Durability = Literal["synced", "written"]

AUTHOR: Final = "steno-import"
"""The author of all that following writes; other authors go on with a session themselves."""

_PLACES_SHOWN: Final = 3
"""Damaged lines whose places are named."""

GONE: Final = "source-deleted"
"""The label of a session whose file was deleted by its program."""


class AnotherCopy(Exists):
    """The session follows another file with the same identity, which is still there."""


@dataclass(slots=True)
class Followed:
    """What one look at a file has changed in its session.

    Attributes:
        session: the id of the session.
        file_bytes: the bytes of the file that were added to the stream.
        companion_bytes: those of records with files beside it.
        messages: the records that were added to the context.
        was_rewritten: the file did not begin with what the stream had.
        was_reverted: earlier messages were replaced; they are a past generation.
        is_continued_here: others changed the context, so that it was left as it is.
        lost_beginning: the session with the beginning of a fork, if its file was there before and
            is not found; the context was left as it is.
        is_too_long: the file has more records than are followed; only its lines are kept.
        has_more: the file has more than one look takes in.
        unfinished: the bytes of a last line without an end.
        skipped: the bytes of each message that is too long for a record.
        damaged: the first new lines without a whole record.
        damaged_count: the number of all new ones.
    """

    session: str
    file_bytes: int = 0
    companion_bytes: int = 0
    messages: int = 0
    was_rewritten: bool = False
    was_reverted: bool = False
    is_continued_here: bool = False
    lost_beginning: str | None = None
    is_too_long: bool = False
    has_more: bool = False
    unfinished: int = 0
    skipped: list[int] = field(default_factory=list[int])
    damaged: list[Damage] = field(default_factory=list[Damage])
    damaged_count: int = 0

    @property
    def has_changed(self) -> bool:
        """Whether anything was written."""
        added = self.file_bytes or self.companion_bytes or self.messages
        return bool(added or self.was_rewritten or self.was_reverted)


@dataclass(frozen=True, slots=True)
class _Request:
    """A change of the context: a command, its records, and what else it has."""

    kind: type[Mutation]
    records: Sequence[bytes] = ()
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Follower:
    """Keeps one session as its file is; used for one look at a file, or for many.

    Args:
        client: of the daemon that has the session.
        source: the file, and the id of a session that exists.
        redactor: what masks the session as it is written.
        look_bytes_max: the bytes of the file that one look takes in; None for all.
    """

    def __init__(
        self,
        client: BlockingClient,
        source: ForeignSource,
        redactor: Redactor | None,
        *,
        look_bytes_max: int | None = None,
    ) -> None:
        self._look_bytes_max = look_bytes_max
        self.source = source
        self._client = client
        self._session = client.session(source.session)
        self._stream = self._session.stream(source.format.stream)
        self._redactor = redactor
        self._reading: Reading | None = None
        self._identity = (0, 0)
        self._conversation: Conversation | None = None
        self._head = Position(0, 0)
        self._stream_head = Position(0, 0)
        # The bytes of the next line that the stream has already.
        self._ahead: int | None = 0
        self._title: str | None = None
        self._identity_of_file = ""
        # The records that the context was made of.
        self._updated_at = 0
        # The bytes of a log of rows that the stream has.
        self._logged = 0
        # The head of each stream of files beside it, and the bytes that it has of each file.
        self._companions: dict[str, tuple[Position, dict[str, int]]] = {}
        # The offset of the last note, up to which the context is complete.
        self._noted = -1

    def look(self, *, is_settled: bool = True) -> Followed:
        """Bring the session up to the present end of the file.

        Args:
            is_settled: the file was not written for a while, so that no message waits for the rest
                of it.

        Raises:
            Busy: other followers were faster, again and again.
            Exists: the session is another one's.
            TooLarge: a line is too long to be read.
            OSError: the file cannot be read.
            StenoError: the daemon refused what was sent.
        """
        done = Followed(self.source.session)
        for _ in range(FOLLOW_ATTEMPTS_MAX):
            try:
                with self._opened() as file:
                    self._look(file, done, is_settled=is_settled)
            except Conflict:
                self.forget()
            except BaseException:
                self.forget()
                raise
            else:
                return done
        raise Busy(
            f"others write the session while {self.source.file} is followed: import it again",
            session=self.source.session,
        )

    @property
    def read_records(self) -> int:
        """The records of the file whose reader is in memory."""
        return 0 if self._reading is None else self._reading.records

    def forget(self) -> None:
        """Drop what is in memory; the next look reads the file from its beginning."""
        self._reading = self._conversation = None
        self._updated_at = 0
        self._companions = {}

    @contextmanager
    def _opened(self) -> Generator[BinaryIO]:
        """The file; of rows that change, their log: what the stream has, and the changes."""
        with self.source.seekable() as file:
            if not self.source.format.has_states:
                yield file
                return
            self.forget()
            self._stream_head = head = self._stream.head()
            with tempfile.TemporaryFile() as whole:
                log = cast("BinaryIO", whole)
                for line in lines_of(each.data for each in self._stream.records(until=head)):
                    log.write(line)
                self._logged = log.tell()
                log.seek(0)
                for number, line in enumerate(additions(log, map(self._mask, file))):
                    if number == 0 and self._logged and not _ends_with_newline(log):
                        # A kill fell between the parts of a long line, which comes again.
                        log.write(b"\n")
                    log.write(line)
                log.flush()
                yield log

    def _look(self, file: BinaryIO, done: Followed, *, is_settled: bool) -> None:
        stat = os.fstat(file.fileno())
        reading = self._reading
        if reading is None or not self._is_continued(file, stat, reading):
            self.forget()
            reading = self._begin(file, stat.st_size, done)
        is_first = self._reading is None
        self._add_lines(file, stat.st_size, reading, done)
        done.unfinished = stat.st_size - reading.offset
        done.is_too_long = reading.is_full
        # An update looks at all records: with each bit of a long file it would be quadratic.
        is_due = reading.records >= self._updated_at * FOLLOW_UPDATE_FACTOR_MAX
        if not reading.is_full and (is_due or not done.has_more):
            self._updated_at = reading.records
            # A message may wait for the rest of it, which is in the file already.
            settled = is_settled and not done.has_more
            self._update_context(file, reading, done, is_settled=settled)
        if is_settled and not done.has_more:
            self._add_companions(done)
        title = reading.transcript.own_title
        if is_first or title != self._title or (is_settled and self._noted != reading.offset):
            self._describe(reading)
        self._reading, self._title = reading, title
        self._identity = stat.st_dev, stat.st_ino

    # --- the stream -------------------------------------------------------------------------------

    def _is_continued(self, file: BinaryIO, stat: os.stat_result, reading: Reading) -> bool:
        """Whether the file is the one that was read, with at most more behind it."""
        begin = reading.offset - len(reading.tail)
        is_same = self._identity == (stat.st_dev, stat.st_ino) and stat.st_size >= reading.offset
        return is_same and os.pread(file.fileno(), len(reading.tail), begin) == reading.tail

    def _begin(self, file: BinaryIO, size: int, done: Followed) -> Reading:
        """Read what the stream has; begins a new generation of it if the file has something else.

        Raises:
            Exists: the session is another one's.
        """
        reading = self._new_reading()
        if self.source.format.has_states:
            self._check_identity()
            file.seek(0)
            for line in _lines(file, 0, self._logged, self.source):
                reading.feed(line)
            self._ahead = self._logged - reading.offset
            return reading
        self._stream_head = self._stream.head()
        cursor = self._cursor(reading)
        self._ahead = 0 if cursor is None else _read_up_to(file, size, reading, cursor, self.source)
        if cursor is not None and self._ahead is not None:
            return reading
        self._check_identity()
        done.was_rewritten = True
        self._begin_anew()
        self._ahead = 0
        return self._new_reading()

    def _new_reading(self) -> Reading:
        return Reading(self.source.format, Rollouts(self.source.file))

    def _cursor(self, reading: Reading) -> Cursor | None:
        """How much of a file the stream has; None if it does not say."""
        generation, lines = self._stream_head
        if lines == 0:
            # It begins anew, or the session is no transcript's.
            self._check_identity()
            return reading.cursor(generation)
        last = self._stream.last(1)
        found = Cursor.of_key(last[0].key) if last and last[0].key else None
        if found is not None:
            return found if found.generation == generation else None
        note = self.source_note()
        if note is not None and (note.generation, note.lines) == (generation, lines):
            return Cursor(generation, note.offset, note.digest)
        return None

    def source_note(self) -> SourceNote | None:
        """The last note about the file; None if there is none."""
        return last_note(self._client, self.source.session)

    def _check_identity(self) -> None:
        """Refuse to replace what comes from another file.

        Raises:
            Exists: it comes from another transcript.
            AnotherCopy: the file that it comes from is still there.
        """
        note, here = self.source_note(), self._note_of()
        if note is None or (note.path != here.path and note.identity != here.identity):
            raise Exists(
                f"another session is at {self.source.session}, which does not come from"
                f" {self.source.file}: import it under another id",
                session=self.source.session,
            )
        if note.path != here.path and os.path.lexists(note.path):
            raise AnotherCopy(
                f"{self.source.session} follows {note.path}, and {self.source.file} is another copy"
                " of it with other records: import it under another id",
                session=self.source.session,
            )

    def _begin_anew(self) -> None:
        """Let the stream begin again; what it had stays as a deleted generation."""
        generation, lines = self._stream_head
        if lines:
            # A repeat after a kill finds the stream empty, and deletes nothing.
            deletion = DeleteStream(
                session=self.source.session, stream=self.source.format.stream,
                key=f"rewritten-{generation}-{lines}", expect=str(self._stream_head), by=AUTHOR,
            )  # fmt: skip
            self._client.request(deletion, Deleted)
            self._stream_head = Position(generation + 1, 0)

    def _add_lines(self, file: BinaryIO, size: int, reading: Reading, done: Followed) -> None:
        """Append the whole lines up to a size."""
        begin, known = reading.offset, reading.damaged_count
        generation, batch, batch_bytes = self._stream_head.generation, list[bytes](), 0
        file.seek(begin)
        for line in _lines(file, begin, size, self.source):
            if self._look_bytes_max and reading.offset - begin >= self._look_bytes_max:
                done.has_more = True
                break
            if self._ahead or len(line) > RAW_BYTES:
                self._append_lines(batch, reading.cursor(generation))
                self._append_long(line, reading)
                batch, batch_bytes = [], 0
                reading.feed(line)
                continue
            batch += [piece.record for piece in pieces_of(line, self._mask)]
            batch_bytes += len(line)
            reading.feed(line)
            if len(batch) >= FOLLOW_BATCH_RECORDS_MAX or batch_bytes >= FOLLOW_BATCH_BYTES:
                self._append_lines(batch, reading.cursor(generation))
                batch, batch_bytes = [], 0
        self._append_lines(batch, reading.cursor(generation))
        done.file_bytes += reading.offset - begin
        done.damaged_count += reading.damaged_count - known
        done.damaged += [each for each in reading.damaged if each.offset >= begin]

    def _append_long(self, line: bytes, reading: Reading) -> None:
        """Append a line that may take several requests; a kill may fall between them."""
        ahead, self._ahead = self._ahead or 0, 0
        for piece in pieces_of(line[ahead:], self._mask, is_rest=ahead > 0):
            ahead += piece.size
            cursor = reading.cursor(self._stream_head.generation, memoryview(line)[:ahead])
            self._append_lines([piece.record], cursor)

    def _append_lines(self, records: list[bytes], cursor: Cursor) -> None:
        if records:
            stream, head = self.source.format.stream, self._stream_head
            self._stream_head = self._append_to(stream, records, head, cursor.key)

    def _append_to(
        self, stream: str, records: list[bytes], head: Position, key: str | None = None
    ) -> Position:
        command = mutation(
            AppendStream, self.source.session, AUTHOR, key, head, "synced", stream=stream
        )
        ack, _ = self._client.request(command, Ack, records)
        return Position.parse(ack.head)

    def _add_companions(self, done: Followed) -> None:
        """Append what is new in the files beside the transcript."""
        for name in self.source.format.companions:
            if not self.source.has_companions(name):
                continue
            if name not in self._companions:
                stream = self._session.stream(name)
                head = stream.head()
                taken = taken_of(each.record for each in stream.records(until=head))
                self._companions[name] = head, taken
            head, taken = self._companions[name]
            for piece in self.source.companions(name, dict(taken), self._mask):
                head = self._append_to(name, [piece], head)
                taken.update(taken_of([msgspec.json.decode(piece)]))
                self._companions[name] = head, taken
                done.companion_bytes += len(piece)

    def _mask(self, line: bytes) -> bytes:
        return line if self._redactor is None else masked_bytes(self._redactor, line)

    # --- the context ------------------------------------------------------------------------------

    def _update_context(
        self, file: BinaryIO, reading: Reading, done: Followed, *, is_settled: bool
    ) -> None:
        """Add the messages that the file has now."""
        transcript, record_at = reading.transcript, partial(_record_at, file, reading)
        if self._conversation is not None:
            more = self._conversation.more(transcript, record_at, is_settled=is_settled)
            try:
                self._add_messages(more, done)
            except Changed:
                self._conversation = None
            else:
                done.skipped = self._conversation.skipped
                return
        conversation = self._compare(transcript, record_at, done, is_settled=is_settled)
        if conversation is not None:
            self._conversation = conversation
            done.skipped = conversation.skipped

    def _compare(
        self,
        transcript: ForeignTranscript,
        record_at: RecordAt,
        done: Followed,
        *,
        is_settled: bool,
    ) -> Conversation | None:
        """Give the context the messages of a transcript; None if it is left as it is."""
        conversation = Conversation()
        self._head = head = Position.parse(self._client.stat(self.source.session).head)
        # A message that an earlier process added early is not taken back.
        wanted = conversation.more(transcript, record_at, is_settled=is_settled, present=head.line)
        present = self._present()
        found = agreement(present.messages(), wanted, self._is_same)
        # The lines that go must be of no other author, either.
        deque(present.messages(), maxlen=0)
        if present.has_other_author or self._was_rewritten_here(head.generation):
            done.is_continued_here = found.has_more or next(found.missing, None) is not None
            return None
        if found.has_more and transcript.elsewhere is not None:
            # The context has the beginning, from a time when the file was there.
            done.lost_beginning = transcript.elsewhere
            return None
        if found.has_more:
            done.was_reverted = True
            if self._complete_past(transcript, record_at, done):
                return self._compare(transcript, record_at, done, is_settled=is_settled)
        self._become(found, done)
        return conversation

    def _present(self) -> "_Present":
        begin = Position(self._head.generation, 0)
        return _Present(self._session.lines(begin, self._head))

    def _become(self, found: Agreement, done: Followed) -> None:
        """Let the context have the messages that it was compared with."""
        if found.has_more:
            self._go_back(Position(self._head.generation, found.same))
        self._add_messages(found.missing, done)

    def _complete_past(
        self, transcript: ForeignTranscript, record_at: RecordAt, done: Followed
    ) -> bool:
        """Add the end of what was replaced: a compaction often follows within the same look.

        Several compactions since the last look become a past generation each. A kill in between
        leaves the beginning of one of them, from which the next look goes on.

        Returns:
            Whether messages were added.
        """
        past = transcript.histories()[:-1][-FOLLOW_PAST_MAX:]
        compared = (
            (at, self._compared(messages_of(transcript, past[at], record_at)))
            for at in reversed(range(len(past)))
        )
        at, found = next((each for each in compared if not each[1].has_more), (len(past), None))
        if found is None:
            return False
        before = done.messages
        self._become(found, done)
        for later in past[at + 1 :]:
            self._become(self._compared(messages_of(transcript, later, record_at)), done)
        return done.messages > before

    def _compared(self, wanted: Iterator[bytes]) -> Agreement:
        return agreement(self._present().messages(), wanted, self._is_same)

    def _was_rewritten_here(self, generation: int) -> bool:
        """Whether the present generation is a rewrite of another author, such as `steno undo`."""
        return any(
            entry.generation == generation
            and entry.kind in {*REWRITES, ROTATED}
            and entry.by != AUTHOR
            for entry in self._session.timeline()
        )

    def _is_same(self, record: Message, wanted: Message) -> bool:
        """Whether a record is a message, masked or not."""
        if record == wanted or self._redactor is None:
            return record == wanted
        masked = self._redactor.value(wanted)
        return masked in (record, self._redactor.value(record))

    def _go_back(self, position: Position) -> None:
        """Drop the messages from a position on; they stay in a past generation."""
        why = "the transcript is another one now"
        if position.line:
            self._change(_Request(RevertTo, fields={"position": str(position), "why": why}))
        else:
            self._change(_Request(Clear, fields={"why": why}))

    def _add_messages(self, lines: Iterator[bytes], done: Followed) -> None:
        """Append messages; the last request waits for the disk, and with it the others."""
        waiting: _Request | None = None
        for request in self._requests(lines, done):
            if waiting is not None:
                self._change(waiting, "written")
            waiting = request
        if waiting is not None:
            self._change(waiting)

    def _requests(self, lines: Iterator[bytes], done: Followed) -> Iterator["_Request"]:
        """The requests that append messages, in their order."""
        batch, batch_bytes = list[bytes](), 0
        for line in lines:
            done.messages += 1
            control = _control_of(line)
            is_full = len(batch) >= FOLLOW_BATCH_RECORDS_MAX or batch_bytes >= FOLLOW_BATCH_BYTES
            if batch and (control is not None or is_full):
                yield _Request(Append, batch)
                batch, batch_bytes = [], 0
            if control is None:
                batch.append(line)
                batch_bytes += len(line)
            elif control["role"] == "_usage":
                yield _Request(UpdateTokenCount, fields={"token_count": control["token_count"]})
            else:
                yield _Request(WriteSystemPrompt, fields={"prompt": control["content"]})
        if batch:
            yield _Request(Append, batch)

    def _change(self, request: "_Request", durability: Durability = "synced") -> None:
        command = mutation(
            request.kind, self.source.session, AUTHOR, None, self._head, durability,
            **request.fields,
        )  # fmt: skip
        ack, _ = self._client.request(command, Ack, request.records)
        self._head = Position.parse(ack.head)

    # --- what describes the session ---------------------------------------------------------------

    def _describe(self, reading: Reading) -> None:
        """Note how far the session has the file, where that is, and a new title."""
        last = self.source_note()
        generation, lines = self._stream_head
        title = self.source.title_of(reading.transcript) or (last.title if last else "")
        cursor = reading.cursor(generation)
        note = self._note_of(
            title=title, generation=generation, lines=lines, offset=cursor.offset,
            digest=cursor.digest,
        )  # fmt: skip
        self._noted = reading.offset
        if note == last:
            return
        stat = self._client.stat(self.source.session)
        is_ours = last is not None and stat.title in {"", last.title}
        labels = [each for each in stat.labels if each != GONE]
        if (is_ours and stat.title != note.title) or len(labels) < len(stat.labels):
            self._session.describe(title=note.title if is_ours else None, labels=labels)
        _add_note(self._client, self.source.session, note)

    def _note_of(self, **fields: Any) -> SourceNote:
        """A note about the file, masked as all that is written to the session."""
        self._identity_of_file = self._identity_of_file or self.source.identity()
        found = {"path": str(self.source.file), "identity": self._identity_of_file, **fields}
        masked = found if self._redactor is None else self._redactor.value(found)
        return msgspec.convert(masked, SourceNote)


def last_note(client: BlockingClient, session: str) -> SourceNote | None:
    """Return the last note about the file of a session; None if there is none."""
    last = client.session(session).stream(SOURCE).last(1)
    return SourceNote.of(last[0].record) if last else None


def mark_gone(client: BlockingClient, session: str, path: str) -> bool:
    """Note that the file of a session was deleted, and label the session.

    Returns:
        False if that is known, or the session has its file at another path now.
    """
    last = last_note(client, session)
    if last is None or last.is_gone or last.path != path:
        return False
    labels = client.stat(session).labels
    client.session(session).describe(labels=[*(each for each in labels if each != GONE), GONE])
    _add_note(client, session, msgspec.structs.replace(last, is_gone=True))
    return True


def _add_note(client: BlockingClient, session: str, note: SourceNote) -> None:
    client.session(session).stream(SOURCE).append(msgspec.to_builtins(note))


def notes_of(found: Followed, source: ForeignSource) -> Iterator[str]:
    """What to say of a look at a file."""
    if found.was_rewritten:
        yield (
            f"{source.file} was rewritten: {found.session} begins anew, and what it had stays as"
            f" past generations (`steno timeline {found.session}`)"
        )
    if found.is_continued_here:
        yield (
            f"{found.session} was changed in steno, so that its context is left as it is, and only"
            f" its stream {source.format.stream} grows: `steno fork {found.session} NAME` keeps"
            f" your work, and after `steno delete {found.session} --yes` an import takes the"
            " transcript"
        )
    if found.is_too_long:
        yield (
            f"{source.file} has more than {FOLLOWED_RECORDS_MAX} records: the context of"
            f" {found.session} is left as it is, and only its stream {source.format.stream} grows"
        )
    if found.lost_beginning:
        yield (
            f"{found.session} is a fork of {found.lost_beginning}, whose file is not there any"
            f" more: its context is left as it is, and only its stream {source.format.stream} grows"
        )
    if found.skipped:
        left_out = count(len(found.skipped), "message")
        yield f"{left_out} of {found.session} too long for a record, kept in its stream only"
    if found.damaged_count:
        places = ", ".join(f"byte {each.offset}" for each in found.damaged[:_PLACES_SHOWN])
        more = " ..." if found.damaged_count > _PLACES_SHOWN else ""
        yield (
            f"{count(found.damaged_count, 'damaged line')} in {source.file} at {places}{more}: kept"
            f" in the stream of {found.session} only"
        )


class _Present:
    """The records of a context, without the keys of steno.

    Attributes:
        has_other_author: a record of another author was read.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.has_other_author = False
        self._lines = lines

    def messages(self) -> Iterator[Message]:
        """The records that were not read yet."""
        for line in self._lines:
            record = decode_object(line)
            if record is None:
                continue
            self.has_other_author |= "_id" in record and record.get("_by") != AUTHOR
            yield {name: record[name] for name in record if name not in RESERVED_KEYS}


def _control_of(line: bytes) -> dict[str, Any] | None:
    """The control record in a line; None if it is a message."""
    if not line.startswith(b'{"role":"_'):
        return None
    record: dict[str, Any] = msgspec.json.decode(line)
    return record


def _ends_with_newline(file: BinaryIO) -> bool:
    """Whether the last byte is a newline; the file is at its end afterwards."""
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _lines(file: BinaryIO, begin: int, size: int, source: ForeignSource) -> Iterator[bytes]:
    """The whole lines between an offset and a size.

    Raises:
        TooLarge: a line is too long to be kept in memory.
    """
    while begin < size:
        line = line_within(file, TRANSCRIPT_LINE_BYTES_MAX)
        if line is None:
            raise too_long_line(source.file, begin)
        if not line.endswith(b"\n") or begin + len(line) > size:
            return
        yield line
        begin += len(line)


def _read_up_to(
    file: BinaryIO, size: int, reading: Reading, cursor: Cursor, source: ForeignSource
) -> int | None:
    """Read what a stream has of a file.

    Returns:
        The bytes that it has of the next line, too; None if the file has something else.
    """
    file.seek(0)
    for line in _lines(file, 0, min(size, cursor.offset + TRANSCRIPT_LINE_BYTES_MAX), source):
        rest = cursor.offset - reading.offset
        if rest < len(line):
            is_same = reading.cursor(cursor.generation, line[:rest]) == cursor
            return rest if is_same else None
        reading.feed(line)
    is_same = reading.cursor(cursor.generation) == cursor
    return 0 if is_same else None


def _record_at(file: BinaryIO, reading: Reading, place: int) -> dict[str, Any] | None:
    if place < 0:
        return reading.transcript.inherited(place)
    salvaged = reading.salvaged
    file.seek(place)
    size = salvaged.get(place)
    return lenient_object(file.readline() if size is None else file.read(size))
