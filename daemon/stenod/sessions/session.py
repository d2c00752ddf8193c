"""One open session: the writers of its files, and their openers."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import (
    AppendStream,
    AppendWire,
    Command,
    DeleteStream,
    ReadStream,
    ReadWire,
)
from steno_protocol.errors import Busy
from steno_protocol.positions import Position
from steno_protocol.replies import OpenSession
from stenod.core.keys import KeyTable
from stenod.feed.feed import Feed
from stenod.recovery import file_opening, stream_opening
from stenod.recovery.inspection import Inspection
from stenod.recovery.opened import Opened, Opening, OpenOptions
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import DiskRefused
from stenod.writer.services import Services
from stenod.writer.writer import Writer

File = str
"""One of a session's files, without its ending: `context`, `wire` or `stream-` and a name."""

Start = Callable[[Writer], None]
"""Starts a writer's task."""


class ClosedSessionKeys:
    """The idempotency keys of sessions without stamps, kept after their files are closed.

    The lines of such a session hold no keys, so only memory has them. The methods may be called
    from several threads, in which files are opened.

    Args:
        keys_max: the number of keys to keep, in all files together.
    """

    def __init__(self, keys_max: int = limits.KEYS_KEPT_MAX) -> None:
        self._tables: OrderedDict[tuple[str, str, str], KeyTable] = OrderedDict()
        self._keys_max = keys_max
        self._lock = threading.Lock()

    def restore(self, path: str, file: File, opened: Opened) -> None:
        """Give a newly opened file the keys that it had when it was last open.

        If there are too many keys, the file that was opened least recently loses its keys.

        Args:
            path: the path of the session's folder; a copy of the folder is another session.
            file: the file's name in the session.
            opened: the opened file.
        """
        if opened.machine.stamp:
            return
        name, keys = (path, opened.incarnation, file), opened.machine.keys
        with self._lock:
            before = self._tables.pop(name, None)
            if before is not None:
                keys.carry_on(before)
            self._tables[name] = keys
            # An empty table counts, too: it takes memory, and the newest one fills up.
            while len(self._tables) > 1 and (
                sum(len(table) + 1 for table in self._tables.values()) > self._keys_max
            ):
                self._tables.popitem(last=False)

    def move(self, path: str, new_path: str) -> None:
        """Keep the keys of a renamed session, and of those below it, for its new path."""
        with self._lock:
            for name in list(self._tables):
                if name[0] == path or name[0].startswith(f"{path}/"):
                    moved = new_path + name[0].removeprefix(path)
                    self._tables[moved, name[1], name[2]] = self._tables.pop(name)


class _ContextOpener(msgspec.Struct, frozen=True):
    """Opens a session's context for its writer, at the first use and after each failure."""

    folders: SessionFolders
    place: Place
    wall: Callable[[], float]
    closed_keys: ClosedSessionKeys

    def __call__(self, how: OpenOptions) -> Opened:
        with _full_path_in_errors(self.place):
            folder = self.folders.open_folder(self.place, create=how.create, keep=True)
            opened = file_opening.open_session(self.folders.disk, folder, self.opening(how))
        self.closed_keys.restore(self.place.path, "context", opened)
        return opened

    def opening(self, how: OpenOptions) -> Opening:
        """Returns the arguments of recovery for one opening."""
        return Opening(
            session=self.place.session,
            path=self.place.path,
            now=self.wall(),
            incarnation=os.urandom(8).hex(),
            create=how.create,
            stamp=how.stamp,
            shared=self.place.shared,
            by=how.by,
            claim=how.claim,
            key=how.key,
            proven=how.proven,
            changed_while_open=how.changed_while_open,
            to_follow=how.to_follow,
            failed_syncs=self.folders.failed_syncs,
        )


class _StreamOpener(msgspec.Struct, frozen=True):
    """Opens a stream or the wire file; the context is open before, and holds the folder's lock."""

    opener: _ContextOpener
    context: Writer
    file: File

    def __call__(self, how: OpenOptions) -> Opened:
        opened = self.context.opened
        if opened is None:
            raise Busy(
                "the session is being opened again after a failure: try again in a moment",
                session=self.context.session,
            )
        with _full_path_in_errors(self.opener.place):
            folder = self.opener.folders.open_folder(self.opener.place)
            stream = stream_opening.open_stream(
                self.opener.folders.disk,
                folder,
                self.opener.opening(how),
                name=paths.file_of(self.file),
                stamp=opened.machine.stamp,
                context_head=self._context_head,
            )
        self.opener.closed_keys.restore(self.opener.place.path, self.file, stream)
        return stream

    def _context_head(self) -> Position:
        return self.context.feed.head


class Session:
    """The writers of one session.

    Args:
        place: the session's id and path.
        folders: opens the session's folder.
        services: the clocks, threads and statistics of the writers.
        closed_keys: keeps the session's keys while its files are closed.
        start: starts a writer's task.
        take_handles: reserves file handles; False if there are none left.

    Attributes:
        context: the writer of the context.
        is_claimed: True once a caller got the reply that it created the session.
    """

    def __init__(
        self,
        place: Place,
        folders: SessionFolders,
        services: Services,
        closed_keys: ClosedSessionKeys,
        start: Start,
        take_handles: Callable[[int], bool],
    ) -> None:
        self._services = services
        self._take_handles = take_handles
        self._start = start
        self.place = place
        self.is_claimed = False
        self._id = place.session
        self._opener = _ContextOpener(folders, place, services.wall, closed_keys)
        self.context = Writer(self._id, self._opener, self._feed(), services)
        self._streams: dict[File, Writer] = {}
        self._kept_out: set[File] = set()
        start(self.context)

    @property
    def writers(self) -> list[Writer]:
        """Its writers; those of the streams, which need the context's, come first."""
        return [*self._streams.values(), self.context]

    @property
    def is_idle(self) -> bool:
        """True when all its writers are idle."""
        return not self._kept_out and all(writer.is_idle for writer in self.writers)

    @property
    def is_followed(self) -> bool:
        """True while one of its files has subscribers."""
        return any(writer.feed for writer in self.writers)

    @property
    def used_at(self) -> float:
        """Monotonic time of the last write to one of its files."""
        return max(writer.used_at for writer in self.writers)

    def writer(self, file: File) -> Writer:
        """Returns the writer of one of its files; creates a stream's at its first use.

        Raises:
            Busy: the stream is being deleted, or too many streams are in use.
        """
        if file == "context":
            return self.context
        return self._streams.get(file) or self._begin(file)

    def opened(self, file: File) -> Opened | None:
        """Returns one of its files if it is open, else None."""
        writer = self.context if file == "context" else self._streams.get(file)
        return writer.opened if writer is not None else None

    @contextmanager
    def stream_kept_out(self, file: File) -> Generator[Writer | None]:
        """Keep a stream from being opened until the block ends; yields its writer, which must end.

        Raises:
            Busy: another deletion of the stream is under way.
        """
        self._check_kept_out(file)
        self._kept_out.add(file)
        try:
            yield self._streams.pop(file, None)
        finally:
            self._kept_out.discard(file)

    def retire_streams(self, since: float, surplus: int = 0) -> None:
        """Close the streams that were not used since a time, and the `surplus` oldest idle ones."""
        idle = [(file, each) for file, each in self._streams.items() if each.is_idle]
        idle.sort(key=lambda entry: entry[1].used_at)
        for number, (file, writer) in enumerate(idle):
            if number < surplus or writer.used_at < since:
                writer.retire()
                del self._streams[file]

    def _begin(self, file: File) -> Writer:
        self._check_kept_out(file)
        if file != "wire":
            self._make_room()
        opener = _StreamOpener(self._opener, self.context, file)
        writer = Writer(self._id, opener, self._feed(), self._services, needs=self.context)
        self._streams[file] = writer
        self._start(writer)
        return writer

    def _make_room(self) -> None:
        """Close the least recently used stream, if the limit of open ones is reached.

        Raises:
            Busy: all open streams are in use, or no file handles are left.
        """
        if len(self._streams) >= limits.STREAMS_OPEN_MAX:
            self.retire_streams(-inf, surplus=1)
        is_room = len(self._streams) < limits.STREAMS_OPEN_MAX
        if is_room and not self._take_handles(limits.HANDLES_PER_STREAM_MAX):
            self.retire_streams(-inf, surplus=limits.RETIRED_TOGETHER_MAX)
            is_room = self._take_handles(limits.HANDLES_PER_STREAM_MAX)
        if not is_room:
            raise Busy(
                f"{len(self._streams)} streams of the session are in use, and there is no room or"
                " no file handle for another one: try again when one of them is idle",
                session=self._id,
            )

    def _check_kept_out(self, file: File) -> None:
        if file in self._kept_out:
            raise Busy("the stream is being deleted: try again in a moment", session=self._id)

    def inspect(self) -> Inspection | None:
        """Returns the state of its context if that is open, else None."""
        opened = self.context.opened
        return inspection_of(opened) if opened is not None else None

    def activity(self, now_s: float) -> OpenSession:
        """Returns its counters.

        Args:
            now_s: the monotonic time.
        """
        writers = self.writers
        latest = max(writers, key=lambda writer: writer.appended_s)
        return OpenSession(
            session=self._id,
            appended_records=sum(writer.appended_records for writer in writers),
            appended_bytes=sum(writer.appended_bytes for writer in writers),
            queued=sum(len(writer.mailbox) for writer in writers),
            writers=len(writers),
            idle_s=round(now_s - self.used_at, 3),
            by=latest.last_author,
        )

    async def poll_foreign_changes(self) -> None:
        """Check its followed files for changes by other programs, and send these changes."""
        for writer in reversed(self.writers):
            if writer.feed:
                await writer.look()

    def retire(self) -> None:
        """Close its files; the session is idle."""
        for writer in self.writers:
            writer.retire()

    def close(self) -> None:
        """Accept no more commands; queued commands are still written."""
        for writer in self.writers:
            writer.mailbox.close()

    def _feed(self) -> Feed:
        return Feed(self._services.spawn, self._services.read, self._services.monotonic)


def file_of(command: Command) -> File:
    """Returns the file that a command is about."""
    match command:
        case AppendWire() | ReadWire():
            return "wire"
        case AppendStream() | ReadStream() | DeleteStream():
            return f"{paths.STREAM}{command.stream}"
        case _:
            return "context"


def inspection_of(opened: Opened) -> Inspection:
    """Returns the state of an open context."""
    return Inspection(
        size=opened.log.synced,
        head=opened.machine.head,
        counters=opened.machine.counters.copy(),
        incarnation=opened.incarnation,
        stamp=opened.machine.stamp,
    )


@contextmanager
def _full_path_in_errors(place: Place) -> Generator[None]:
    """Put the full path into an OSError, which names a file without its folder, or no file.

    A refusal of a replicated disk has a text of its own, in which the path would hide it.
    """
    try:
        yield
    except DiskRefused:
        raise
    except OSError as error:
        if error.filename2 is None:
            name: object = error.filename
            error.filename = str(Path(place.path, name if isinstance(name, str) else ""))
        raise
