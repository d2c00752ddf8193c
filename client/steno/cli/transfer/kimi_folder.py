"""A session's folder as kimi-cli keeps it, written file by file.

    context.jsonl, wire.jsonl      read through the daemon, without the keys that steno adds
    context_1.jsonl ...            the older generations, the same way
    subagents/a1b2/                a session of its own: written by these same rules
    state.json, uploads/, tasks/   and all else: copied byte for byte from the daemon's folder

Left out is what only steno reads (`timeline.jsonl`, `quarantine/`, marks, unfinished files), and
every symbolic link. A client on another machine than the daemon's gets the lines alone.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from steno._connect.folders import sync_folder
from steno._connect.safe_open import open_regular
from steno._sync.client import BlockingClient
from steno.cli.render.progress import Progress
from steno.cli.render.wording import size
from steno.cli.transfer.local_root import local_root
from steno.cli.transfer.unstamped import unstamped
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat

_OWN_NAMES: Final = frozenset(
    {
        paths.TIMELINE,
        paths.QUARANTINE,
        paths.recovery_point_file(paths.CONTEXT),
        paths.recovery_point_file(paths.WIRE),
        paths.STATE_NEW,
        paths.REWRITE,
    }
)
"""Files of a session that only steno reads."""


@dataclass(slots=True)
class Written:
    """What came of writing a folder.

    Attributes:
        damaged: lines that were no records and were left out.
        has_files: False when the daemon runs on another machine, so that only lines were written.
    """

    damaged: int = 0
    has_files: bool = True


def write_session(
    client: BlockingClient, session: str, folder: Path, progress: Progress
) -> Written:
    """Write a session, and the sessions of its subagents, into an empty folder; synced.

    Args:
        client: of the daemon that has the session.
        session: its id.
        folder: where it is written.
        progress: shows what is written.

    Raises:
        NotFound: there is no such session.
        OSError: a file cannot be read or written; the folder is not whole.
    """
    is_local = local_root(client) is not None
    writer = _Writer(client, progress, Written(has_files=is_local))
    if is_local:
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
        self._below(session, source, folder, done={path.name for path in folder.iterdir()})
        for written in folder.iterdir():
            _keep_time(source / written.name, written)
        sync_folder(folder)

    def lines(self, session: str, folder: Path) -> None:
        """Write what the daemon can send: the lines, and what it knows of `state.json`."""
        stat = self._client.stat(session)
        self._context_and_wire(stat, folder)
        state = _state(stat)
        if state is not None:
            self._write(folder / paths.STATE, [state])

    def _context_and_wire(self, stat: SessionStat, folder: Path) -> None:
        session = self._client.session(stat.session)
        present = Position.parse(stat.head).generation
        # The events first, so that none speaks of lines that the context does not have yet.
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
                # It has expired; the later ones keep their names.
                path.unlink()

    def _below(self, session: str, source: Path, folder: Path, done: set[str]) -> None:
        """Write what lies in a session's folder beside its lines."""
        for name in sorted(os.listdir(source)):  # noqa: PTH208  # names are enough
            is_own = name in _OWN_NAMES or paths.generation_of(name) is not None
            if not is_own and name not in done:
                self._any(f"{session}/{name}", source / name, folder / name)

    def _any(
        self, address: str, source: Path, target: Path, *, is_session_part: bool = True
    ) -> None:
        """Write a file, or a folder with all below it; what was uploaded is no session."""
        if source.is_symlink():
            return
        if source.is_file():
            self._copy_file(source, target)
        elif source.is_dir():
            target.mkdir()
            is_session_part = is_session_part and source.name != paths.UPLOADS
            if is_session_part and (source / paths.CONTEXT).is_file() and _is_id(address):
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

        A damaged line is left out of the present context and of the events, which kimi-cli would
        stop at; an older generation is not read before it is restored, and keeps it.
        """

        def wanted() -> Iterator[bytes]:
            for line in lines:
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
            return  # its owner removed it meanwhile
        with file:
            self._write(target, iter(lambda: file.read(limits.COPY_BYTES), b""))
        _keep_time(source, target)

    def _write(self, path: Path, pieces: Iterable[bytes]) -> None:
        written = 0
        with path.open("xb") as file:
            for piece in pieces:
                written += file.write(piece)
                self._progress.show(f"{path.name}, {size(written)}")
            file.flush()
            os.fsync(file.fileno())


def _keep_time(source: Path, target: Path) -> None:
    """Give a copy the time of change of its source: kimi-cli orders sessions by it."""
    try:
        found = source.stat()
    except FileNotFoundError:
        return
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _state(stat: SessionStat) -> bytes | None:
    """What the daemon knows of a `state.json`; None when that is nothing."""
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


def _is_id(address: str) -> bool:
    try:
        paths.split_session(address)
    except BadRequest:
        return False
    return True
