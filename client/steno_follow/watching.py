"""The transcripts of other agents below some folders, followed until a signal.

A look finds the files that changed; each of them is then brought up to its end, the newest first.
A file that fails is said once and tried again later, and the others go on. While no daemon answers,
all wait: nothing is lost, because the session itself says where to go on.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from steno import BlockingClient
from steno.local import open_stored
from steno_follow.file_watch import FileWatch, WatchedFile
from steno_follow.first_import import EmptyTranscript
from steno_follow.following import Follower
from steno_follow.foreign_source import ForeignSource
from steno_follow.limits import (
    WATCH_BACKOFF_MAX_S,
    WATCH_BACKOFF_MIN_S,
    WATCH_LOOK_BYTES,
    WATCH_PROGRESS_S,
    WATCH_READERS_BYTES_MAX,
    WATCH_READERS_MAX,
    WATCH_SETTLED_S,
    WATCH_WORK_S,
)
from steno_follow.opencode_mirror import DatabaseMirror
from steno_follow.outcomes import Followed, Imported, Outcome, left_out_of, notes_of
from steno_follow.search import find_one
from steno_follow.session_indexes import IndexWatch
from steno_follow.source_notes import SOURCE, mark_gone
from steno_follow.source_tree import is_gone
from steno_follow.taking_in import Importer
from steno_protocol import paths
from steno_protocol.errors import (
    Busy,
    OutcomeUnknown,
    ShuttingDown,
    StenoError,
    Unreachable,
)
from steno_redact.redactor import Redactor

State = Literal["imported", "grown", "rewritten", "deleted", "left_out"]

AWAY: Final = (Unreachable, ShuttingDown, OutcomeUnknown)
"""The daemon's own trouble, which is no fault of a file."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the watcher did.

    Attributes:
        session: the id of the session; None if the file is none yet.
        path: the file.
        state: what happened.
        file_bytes: the bytes that were added.
        messages: the records that were added to the context.
        notes: what there is to say of it.
    """

    session: str | None
    path: str
    state: State
    file_bytes: int = 0
    messages: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Work:
    """A file that has to be looked at.

    Attributes:
        file: the file.
        at: when, in seconds of the watcher's clock.
        failures: how often it failed in a row.
        failure: the last reason that was said.
    """

    file: WatchedFile
    at: float
    failures: int = 0
    failure: str = ""


@dataclass(slots=True)
class _Longer:
    """A file of which only a part was taken in.

    Attributes:
        said_at: when a line was said of it, in seconds of the watcher's clock.
        file_bytes: the bytes that were added since.
        messages: the records that were added since.
    """

    said_at: float
    file_bytes: int = 0
    messages: int = 0


class Watcher:
    """Follows files until it is not called any more.

    Args:
        client: of the daemon of a root on this machine.
        tree: the folder of its sessions.
        redactor_for: what masks a session as it is written, by its id.
        watch: the files.
        clock: seconds that only rise.
        mirrors: databases whose sessions are among the files.

    Attributes:
        idle: the files that were complete when they were first seen.
        sources: the transcripts that were looked at, by path.
        followers: those whose readers are in memory, the one that was used last at the end.
    """

    def __init__(
        self,
        client: BlockingClient,
        tree: Path,
        redactor_for: Callable[[str], Redactor | None],
        watch: FileWatch,
        clock: Callable[[], float] = time.monotonic,
        mirrors: Sequence[DatabaseMirror] = (),
    ) -> None:
        self.idle: int = 0
        self._client = client
        self._watch = watch
        self._clock = clock
        self._importer = Importer(client, tree, redactor_for)
        self._known = self._importer.known
        self._complete = {each.note.path: each for each in self._known.all()}
        self._mirrors = dict.fromkeys(mirrors, "")
        for mirror in mirrors:
            mirror.learn(self._known.all())
        self.sources: dict[str, ForeignSource] = {}
        self.followers: OrderedDict[str, Follower] = OrderedDict()
        self._work: dict[str, _Work] = {}
        self._indexes = IndexWatch()
        # They come after the others.
        self._longer: dict[str, _Longer] = {}

    @property
    def databases(self) -> list[Path]:
        """The databases that are there."""
        return [each.database for each in self._mirrors if each.database.exists()]

    def look(self, paths: Iterable[Path] | None = None) -> None:
        """Find the files that changed, of all or of these."""
        if paths is None:
            for mirror in self._mirrors:
                mirror.look()
        now, clock_ns = self._clock(), time.time_ns()
        found = (
            self._watch.look(now, clock_ns)
            if paths is None
            else self._watch.look_at(paths, now, clock_ns)
        )
        for file in found:
            if file.shape is not None and self._is_complete(file):
                self.idle += 1
            else:
                before = self._work.get(file.path)
                # A file that fails is not tried more often because it grows.
                if before is None or not before.failures or file.shape is None:
                    # One that was moved is found at its new place first.
                    pause = WATCH_SETTLED_S if file.shape is None else 0.0
                    self._work[file.path] = _Work(file, self._clock() + pause)
        if paths is None:
            self._look_at_names()

    def _look_at_names(self) -> None:
        """Let the sessions that an index gives another name be looked at."""
        names = self._indexes.changed(self._watch.tops)
        for known in self._known.all() if names else ():
            name = names.get(known.note.identity)
            file = self._watch.files.get(known.note.path)
            if name is not None and name != known.note.title and file is not None:
                # A follower looks for a title when it is new.
                self.followers.pop(file.path, None)
                self._work.setdefault(file.path, _Work(file, self._clock()))

    def _is_complete(self, file: WatchedFile) -> bool:
        """Whether the session of a file has it as it is; asked once, when the watch begins."""
        known = self._complete.pop(file.path, None)
        if known is None or known.note.is_gone or file.shape is None:
            return False
        with suppress(OSError):
            stream, _ = open_stored(known.folder / paths.stream_file(SOURCE))
            with stream:
                noted = os.fstat(stream.fileno())
            is_later = file.shape.changed_ns > noted.st_mtime_ns
            return known.note.offset == file.shape.size and not is_later
        return False

    def _deleted(self) -> Iterator[Seen]:
        """Mark the sessions whose files went while nobody watched; yields them."""
        while self._complete:
            known = next(iter(self._complete.values()))
            below = any(map(Path(known.note.path).is_relative_to, self._watch.tops))
            if below and not known.note.is_gone and is_gone(known.note.path):
                yield from self._marked(known.session, known.note.path)
            # Only now: the daemon may have been away.
            del self._complete[known.note.path]
        for mirror in self._mirrors:
            yield from self._deleted_in(mirror)

    def _deleted_in(self, mirror: DatabaseMirror) -> Iterator[Seen]:
        """Mark the sessions that a database has no more, and name what hinders to read it."""
        while mirror.gone:
            known = self._known.at(mirror.gone[0])
            if known is not None:
                yield from self._marked(known.session, mirror.gone[0])
            del mirror.gone[0]
        if mirror.left_out is not None and mirror.left_out != self._mirrors[mirror]:
            yield Seen(None, str(mirror.database), "left_out", notes=(mirror.left_out,))
        self._mirrors[mirror] = mirror.left_out or ""

    def _marked(self, session: str, path: str) -> Iterator[Seen]:
        if mark_gone(self._client, session, path):
            yield Seen(session, path, "deleted")

    def work(self) -> Iterator[Seen]:
        """Bring files up to their ends, the newest first, for a while; yields what was done.

        Raises:
            Unreachable, ShuttingDown, OutcomeUnknown: the daemon is away; a later call goes on.
        """
        begun = self._clock()
        due = [each for each in self._work.values() if each.at <= begun]
        due.sort(key=lambda each: each.file.changed_at, reverse=True)
        due.sort(key=lambda each: each.file.path in self._longer)
        for each in due:
            if self._clock() - begun > WATCH_WORK_S:
                return
            yield from self._try(each)
        # A file that was moved while nobody watched is found at its new place first.
        if not any(map(self._is_new, self._work.values())):
            yield from self._deleted()

    def _is_new(self, work: _Work) -> bool:
        """Whether a file waits for its first look, as it does while another import runs."""
        return not work.failures and work.file.path not in self.sources

    def pause_s(self, longest_s: float) -> float:
        """The time until a file waits for `work`."""
        due = (each.at - self._clock() for each in self._work.values())
        return max(0.0, min(due, default=longest_s))

    def _try(self, work: _Work) -> Iterator[Seen]:
        file = work.file
        try:
            seen = list(self._gone(file) if file.shape is None else self._follow(file))
        except AWAY:
            raise
        except Busy:
            # Another import, or other writers: the next look finds them gone.
            work.at = self._clock() + 1
            return
        except (StenoError, OSError) as error:
            self.followers.pop(file.path, None)
            reason = error.message if isinstance(error, StenoError) else _reason_of(error)
            work.failures += 1
            pause = min(WATCH_BACKOFF_MIN_S * 2 ** (work.failures - 1), WATCH_BACKOFF_MAX_S)
            work.at = self._clock() + pause
            if reason != work.failure:
                work.failure = reason
                yield Seen(None, file.path, "left_out", notes=(reason,))
            return
        is_settled = self._is_settled(file)
        if file.path in self._longer:
            self._work[file.path] = _Work(file, self._clock())
        elif file.shape is None or is_settled or file.path not in self.sources:
            self._work.pop(file.path, None)
        else:
            self._work[file.path] = _Work(file, file.changed_at + WATCH_SETTLED_S)
        yield from seen

    def _is_settled(self, file: WatchedFile) -> bool:
        return self._clock() - file.changed_at >= WATCH_SETTLED_S

    def _gone(self, file: WatchedFile) -> Iterator[Seen]:
        self.followers.pop(file.path, None)
        self._longer.pop(file.path, None)
        source, known = self.sources.pop(file.path, None), self._known.at(file.path)
        if source is not None:
            copies = [path for path, each in self.sources.items() if each.session == source.session]
            for path in copies:
                # A copy without records of its own takes its place.
                if path in self._watch.files:
                    self._work[path] = _Work(self._watch.files[path], self._clock())
            if not copies:
                yield from self._marked(source.session, str(source.file))
        elif known is not None:
            # It was complete when the watch began, and was not looked at since.
            yield from self._marked(known.session, file.path)

    def _follow(self, file: WatchedFile) -> Iterator[Seen]:
        source = self.sources.get(file.path) or find_one(file.tree, file.inside)
        if source is None:
            return
        try:
            # Others wait meanwhile: of a long file, the rest comes bit by bit.
            placed, found = self._importer.bring(
                source, bytes_max=WATCH_LOOK_BYTES, look=partial(self._look, file)
            )
        except EmptyTranscript as error:
            if error.is_known:
                return
            raise
        assert isinstance(placed, ForeignSource)
        self.sources[file.path] = placed
        if isinstance(found, Imported):
            self.followers.pop(file.path, None)
            has_more = file.shape is not None and file.shape.size > WATCH_LOOK_BYTES
        else:
            has_more = found.has_more
        longer = self._longer.pop(file.path, None)
        if has_more:
            self._longer[file.path] = longer = longer or _Longer(self._clock())
        for seen in _seen(found, placed):
            yield from (seen,) if longer is None else self._bounded(seen, longer, has_more=has_more)

    def _bounded(self, seen: Seen, longer: _Longer, *, has_more: bool) -> Iterator[Seen]:
        """What is said of a long file: its end, all but growth, and now and then a sum."""
        longer.file_bytes += seen.file_bytes
        longer.messages += seen.messages
        is_recent = self._clock() - longer.said_at < WATCH_PROGRESS_S
        if has_more and is_recent and seen.state == "grown" and not seen.notes:
            return
        yield replace(seen, file_bytes=longer.file_bytes, messages=longer.messages)
        longer.said_at, longer.file_bytes, longer.messages = self._clock(), 0, 0

    def _look(
        self, file: WatchedFile, source: ForeignSource, redactor: Redactor | None
    ) -> Followed:
        # Rows of a database are whole: a message is one transaction.
        is_settled = self._is_settled(file) or source.format.has_states
        return self._follower(source, file, redactor).look(is_settled=is_settled)

    def _follower(
        self, source: ForeignSource, file: WatchedFile, redactor: Redactor | None
    ) -> Follower:
        """The follower of a file; the one that was used the longest time ago is dropped."""
        follower = self.followers.pop(file.path, None) or Follower(
            self._client, source, redactor, look_bytes_max=WATCH_LOOK_BYTES
        )
        self.followers[file.path] = follower
        while len(self.followers) > 1 and (
            len(self.followers) > WATCH_READERS_MAX
            or sum(each.reader_bytes for each in self.followers.values()) > WATCH_READERS_BYTES_MAX
        ):
            self.followers.popitem(last=False)
        return follower


def _seen(found: Outcome, source: ForeignSource) -> Iterator[Seen]:
    """What is said of a file; nothing if nothing has changed."""
    if isinstance(found, Imported):
        left_out = tuple(left_out_of(found, source))
        yield Seen(source.session, str(source.file), "imported", notes=left_out)
    elif found.has_changed or found.is_continued_here:
        state: State = "rewritten" if found.was_rewritten else "grown"
        added = found.file_bytes + found.companion_bytes, found.messages
        yield Seen(source.session, str(source.file), state, *added, tuple(notes_of(found, source)))


def _reason_of(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"
