"""A transcript of another agent and its session: what was added to the file is appended.

Three steps, each of which a kill may end; the next call sees what is there and goes on:

1. The whole lines behind the cursor go to the stream. A file that does not begin with what the
   stream has was rewritten: the stream is deleted, which keeps it as a past generation, and begins
   anew.
2. The messages go to the context.
3. The stream `source` gets a note: the file is in the session up to there. It also has the place
   of the file, and its title.

The files that the program keeps beside it follow once nothing was written for a while: they may
come later than the lines that name them.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

from steno import BlockingClient
from steno_agents.following import Reading
from steno_follow.codex_rollouts import Rollouts
from steno_follow.context import FollowedContext
from steno_follow.file_stream import FileStream
from steno_follow.foreign_source import ForeignSource
from steno_follow.limits import FOLLOW_ATTEMPTS_MAX, FOLLOW_UPDATE_FACTOR_MAX
from steno_follow.lines import still_has
from steno_follow.outcomes import Followed
from steno_follow.source_notes import (
    GONE,
    add_note,
    check_identity,
    is_copy,
    last_note,
    note_of,
)
from steno_protocol.errors import Busy, Conflict
from steno_redact.redactor import Redactor


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
        self._source = source
        self._client = client
        self._redactor = redactor
        self._stream = FileStream(client, source, redactor)
        self._context = FollowedContext(client, source.session, redactor)
        self._reading: Reading | None = None
        self._file_shape = (0, 0)
        self._title: str | None = None
        # Another file is the session's, and this one a copy that has nothing more.
        self._is_copy = False
        # The records that the context was made of.
        self._updated_at = 0
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
        done = Followed(self._source.session)
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
            f"others write the session while {self._source.file} is followed: import it again",
            session=self._source.session,
        )

    @property
    def reader_bytes(self) -> int:
        """The memory of the reader of the file, about."""
        records = 0 if self._reading is None else self._reading.records
        return records * self._source.format.record_bytes

    def forget(self) -> None:
        """Drop what is in memory; the next look reads the file from its beginning."""
        self._reading, self._updated_at = None, 0
        self._context.forget()
        self._stream.forget()

    @contextmanager
    def _opened(self) -> Generator[BinaryIO]:
        """The file; of rows that change, their log."""
        with self._source.seekable() as file:
            if not self._source.format.has_states:
                yield file
                return
            self.forget()
            with self._stream.log_of_rows(file) as log:
                yield log

    def _look(self, file: BinaryIO, done: Followed, *, is_settled: bool) -> None:
        stat = os.fstat(file.fileno())
        shape, reading = (stat.st_dev, stat.st_ino), self._reading
        is_first = reading is None or not (
            self._file_shape == shape
            and stat.st_size >= reading.offset
            and still_has(file, reading)
        )
        if reading is None or is_first:
            self.forget()
            reading = self._begin(file, stat.st_size, done)
        self._stream.add_lines(file, stat.st_size, reading, done, self._look_bytes_max)
        done.is_too_long = reading.is_full
        # A message may wait for the rest of it, which is in the file already.
        is_settled = is_settled and not done.has_more
        # An update looks at all records: with each bit of a long file it would be quadratic.
        is_due = reading.records >= self._updated_at * FOLLOW_UPDATE_FACTOR_MAX
        if not reading.is_full and (is_due or not done.has_more):
            self._updated_at = reading.records
            self._context.update(file, reading, done, is_settled=is_settled)
        if is_settled:
            for size in self._stream.add_companions():
                done.companion_bytes += size
        title = reading.transcript.own_title
        if self._is_copy:
            # It may get records of its own, or take the place of the other.
            self.forget()
            return
        if is_first or title != self._title or (is_settled and self._noted != reading.offset):
            self._describe(reading)
        self._reading, self._title, self._file_shape = reading, title, shape

    def _begin(self, file: BinaryIO, size: int, done: Followed) -> Reading:
        """Read what the stream has; begins a new generation of it if the file has something else.

        Raises:
            Exists: the session is another one's.
        """
        reading, note = self._new_reading(), last_note(self._client, self._source.session)
        has_states = self._source.format.has_states
        if has_states:
            self._stream.read_log(file, reading)
        is_same = has_states or self._stream.read(file, size, reading, note)
        here = note_of(self._source, self._redactor)
        self._is_copy = is_copy(note, here, self._source)
        has_more = self._is_copy and size > reading.offset
        if has_states or has_more or not is_same or not self._stream.head.line:
            # It begins anew, or the session is no transcript's.
            check_identity(note, here, self._source)
        if not is_same:
            done.was_rewritten = True
            self._stream.begin_anew()
        return reading if is_same else self._new_reading()

    def _new_reading(self) -> Reading:
        return Reading(self._source.format, Rollouts(self._source.file))

    def _describe(self, reading: Reading) -> None:
        """Note how far the session has the file, where that is, and a new title."""
        last = last_note(self._client, self._source.session)
        generation, lines = self._stream.head
        title = self._source.title_of(reading.transcript) or (last.title if last else "")
        cursor = reading.cursor(generation)
        # Its first lines stay masked when the root asks for no masks any more.
        was_masked = last is not None and last.is_masked and last.generation == generation
        note = note_of(
            self._source, self._redactor, title=title, generation=generation, lines=lines,
            offset=cursor.offset, digest=cursor.digest,
            is_masked=was_masked or self._redactor is not None,
        )  # fmt: skip
        self._noted = reading.offset
        if note == last:
            return
        stat = self._client.stat(self._source.session)
        is_ours = last is not None and stat.title in {"", last.title}
        labels = [each for each in stat.labels if each != GONE]
        if (is_ours and stat.title != note.title) or len(labels) < len(stat.labels):
            session = self._client.session(self._source.session)
            session.describe(title=note.title if is_ours else None, labels=labels)
        add_note(self._client, self._source.session, note)
