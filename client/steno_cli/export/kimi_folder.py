"""A session folder in the format of kimi-cli, written file by file.

    context.jsonl, wire.jsonl      read through the daemon, without the keys that steno adds
    context_1.jsonl ...            the past generations, in the same way
    subagents/a1b2/                a session of its own, written by the same rules
    state.json, uploads/, tasks/   and other files: copied byte for byte from the daemon's folder

Files that only steno reads (`timeline.jsonl`, `quarantine/`, recovery points, unfinished files) and
symbolic links are skipped. A client on another machine than the daemon gets the lines alone.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from steno import BlockingClient
from steno.local import open_regular, sync_file, sync_folder
from steno_cli.connection import local_root
from steno_cli.render.progress import Progress
from steno_cli.session_files import size_below
from steno_cli.session_ids import is_session_id
from steno_protocol import limits, paths
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.records import RESERVED_KEYS
from steno_protocol.replies import SessionStat

_OWN_NAMES: Final = frozenset(
    {
        paths.TIMELINE,
        paths.QUARANTINE,
        paths.recovery_point_file(paths.CONTEXT),
        paths.recovery_point_file(paths.WIRE),
        paths.JOURNAL_MARK,
        paths.STATE_NEW,
        paths.REWRITE,
    }
)
"""Files of a session that only steno reads."""


_decode_parts: Callable[[bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Written:
    """The result of writing a folder.

    Attributes:
        damaged: skipped lines that were no records.
        has_files: False if the daemon runs on another machine, so that only lines were written.
    """

    damaged: int = 0
    has_files: bool = True


def write_session(
    client: BlockingClient, session: str, folder: Path, progress: Progress
) -> Written:
    """Write a session, and the sessions of its subagents, into an empty folder; synced.

    Raises:
        NotFound: there is no such session.
        OSError: a file cannot be read or written; the folder is incomplete.
    """
    is_local = local_root(client) is not None
    writer = _Writer(client, progress, Written(has_files=is_local))
    if is_local:
        progress.expect(size_below(Path(client.stat(session).folder)))
        writer.session(session, folder)
    else:
        writer.lines(session, folder)
    return writer.written


class _Writer:
    def __init__(self, client: BlockingClient, progress: Progress, written: Written) -> None:
        self._client = client
        self._progress = progress
        self.written = written

    def session(self, session: str, folder: Path) -> None:
        """Write a whole session of this machine."""
        stat = self._client.stat(session)
        source = Path(stat.folder)
        self._context_and_wire(stat, folder)
        self._streams(session, folder)
        self._below(session, source, folder, done={path.name for path in folder.iterdir()})
        for written in folder.iterdir():
            _keep_time(source / written.name, written)
        sync_folder(folder)

    def lines(self, session: str, folder: Path) -> None:
        """Write the parts that the daemon can send: the lines, and a `state.json` from the stat."""
        stat = self._client.stat(session)
        self._context_and_wire(stat, folder)
        self._streams(session, folder)
        state = _state(stat)
        if state is not None:
            self._write(folder / paths.STATE, [state])

    def _context_and_wire(self, stat: SessionStat, folder: Path) -> None:
        session = self._client.session(stat.session)
        present = Position.parse(stat.head).generation
        # The events first: an event must not refer to lines that the context lacks.
        self._copy_lines(folder / paths.WIRE, session.wire_lines())
        wire = Path(stat.folder, paths.WIRE)
        if not (folder / paths.WIRE).stat().st_size and not (
            self.written.has_files and wire.exists()
        ):
            (folder / paths.WIRE).unlink()
        self._copy_lines(folder / paths.CONTEXT, session.lines(Position(present, 0)))
        for generation in range(present):
            path = folder / paths.generation_file(generation + 1)
            try:
                lines = session.lines(Position(generation, 0))
                self._copy_lines(path, lines, keeps_damaged=True)
            except NotFound:
                # The generation has expired; the later ones keep their names.
                path.unlink()

    def _streams(self, session: str, folder: Path) -> None:
        """Write the records of each stream as they were appended."""
        handle = self._client.session(session)
        for info in handle.streams():
            records = handle.stream(info.name).records(until=info.head)
            path = folder / paths.stream_file(info.name)
            lines = (each.data + b"\n" for each in records)
            self._write(path, self._counted(lines, path.name))
            self.written.damaged += records.damaged

    def _below(self, session: str, source: Path, folder: Path, done: set[str]) -> None:
        """Write the other files of a session's folder."""
        for name in sorted(os.listdir(source)):  # noqa: PTH208  # names are enough
            is_own = (
                name in _OWN_NAMES
                or paths.generation_of(name) is not None
                or paths.is_stream_file(name)
            )
            if not is_own and name not in done:
                self._any(f"{session}/{name}", source / name, folder / name)

    def _any(
        self, address: str, source: Path, target: Path, *, is_session_part: bool = True
    ) -> None:
        """Write a file, or a folder with its content; an upload is no session."""
        if source.is_symlink() or source.name == paths.JOURNAL_MARK:
            return
        if source.is_file():
            self._copy_file(source, target)
        elif source.is_dir():
            target.mkdir(mode=0o700)
            is_session_part = is_session_part and source.name != paths.UPLOADS
            if is_session_part and (source / paths.CONTEXT).is_file() and is_session_id(address):
                self.session(address, target)
                return
            for name in sorted(os.listdir(source)):  # noqa: PTH208  # names are enough
                self._any(
                    f"{address}/{name}",
                    source / name,
                    target / name,
                    is_session_part=is_session_part,
                )
            sync_folder(target)

    def _copy_lines(
        self, path: Path, lines: Iterable[bytes], *, keeps_damaged: bool = False
    ) -> None:
        """Write lines without stamps.

        A damaged line of the present context or of the events is skipped, since kimi-cli would stop
        there. A past generation keeps it: kimi-cli does not read it before it is restored.
        """

        def wanted() -> Iterator[bytes]:
            for line in lines:
                self._progress.add(len(line), path.name)
                plain = unstamped(line) if line.strip() else line
                if plain is not None:
                    yield plain
                elif keeps_damaged:
                    yield line
                else:
                    self.written.damaged += 1

        self._write(path, wanted())

    def _copy_file(self, source: Path, target: Path) -> None:
        try:
            file = open_regular(source)
        except FileNotFoundError:
            return  # removed meanwhile
        with file:
            blocks = iter(lambda: file.read(limits.COPY_BYTES), b"")
            self._write(target, self._counted(blocks, target.name))
        _keep_time(source, target)

    def _counted(self, pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
        for piece in pieces:
            self._progress.add(len(piece), name)
            yield piece

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            sync_file(file.fileno())


def _keep_time(source: Path, target: Path) -> None:
    """Give a copy the modification time of its source, by which kimi-cli orders sessions."""
    try:
        found = source.stat()
    except FileNotFoundError:
        return
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _state(stat: SessionStat) -> bytes | None:
    """A `state.json` from the stat of a session; None if it would be empty."""
    state: dict[str, Any] = {}
    if stat.title:
        state |= {"custom_title": stat.title, "title_generated": True}
    if stat.archived:
        state["archived"] = True
    if stat.labels:
        state["labels"] = stat.labels
    if not state:
        return None
    return json.dumps({"version": 1, **state}, ensure_ascii=False).encode() + b"\n"


def unstamped(line: bytes) -> bytes | None:
    """A line without `_id`, `_by` and `_at`, or None if it is no JSON object.

    A line without these keys is unchanged byte for byte, and so is each value of other lines.
    """
    try:
        parts = _decode_parts(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if parts.keys().isdisjoint(RESERVED_KEYS):
        return line if line.endswith(b"\n") else line + b"\n"
    return _encode({key: value for key, value in parts.items() if key not in RESERVED_KEYS}) + b"\n"
