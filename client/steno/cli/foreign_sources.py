"""Transcripts of other agents in a folder, written as sessions.

context.jsonl               the conversation as messages
stream-claude-code.jsonl    the file of the other program, byte for byte
state.json                  the title, and the program as a label
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from steno._connect.private_files import sync_file
from steno._sansio.foreign.claude_code import ClaudeCode
from steno._sansio.foreign.transcript import ForeignTranscript
from steno.cli.import_sources import check_session_id
from steno.cli.sizes import size_of
from steno.cli.transcripts import first_objects, foreign_format, lenient_object
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest

_SUBAGENTS: Final = "subagents"
"""Claude Code's folder of a session's subagents, beside the session's file."""


PASSES: Final = 3
"""How often the lines of a transcript are read: to copy, to look for names, and to convert."""


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """A transcript of another agent.

    Attributes:
        session: the id that it gets.
        file: the file; it is only read.
        format: its format.
        skipped: the bytes of each message that is too long for a record, after `write`.
        undecoded: the bytes of each line that is no JSON object, after `write`.
        unfinished: the bytes of a last line without an end, which `write` did not take.
    """

    session: str
    file: Path
    format: type[ForeignTranscript]
    skipped: list[int] = field(default_factory=list[int])
    undecoded: list[int] = field(default_factory=list[int])
    unfinished: list[int] = field(default_factory=list[int])

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.file.parent

    @property
    def origin(self) -> Path:
        """The path to name in messages."""
        return self.file

    @property
    def stream(self) -> str:
        """The name of the file that keeps the transcript in the session's folder."""
        return f"stream-{self.format.stream}.jsonl"

    def work_bytes(self) -> int:
        """The bytes that `write` reads."""
        return PASSES * size_of(self.file)

    def shape(self) -> tuple[int, int]:
        """A value that changes when the file is replaced or cut, and not with an append."""
        stat = self.file.stat()
        return stat.st_ino, stat.st_dev

    def compare(self, folder: Path) -> int | None:
        """Compare the file with the stream of an existing session.

        Returns:
            The bytes of the whole lines that were added since the import; None if the session does
            not come from this file.
        """
        try:
            with (folder / self.stream).open("rb") as kept, self.file.open("rb") as source:
                while block := kept.read(limits.COPY_BYTES):
                    if source.read(len(block)) != block:
                        return None
                return sum(len(line) for line in _whole_lines(source))
        except FileNotFoundError:
            return None

    def write(self, folder: Path, show: Callable[[int], None]) -> None:
        """Write the session's files; durable once the folder is synced.

        Only whole lines are taken: the program may be writing the next one.

        Args:
            folder: an empty folder.
            show: called with the bytes of each line, `PASSES` times altogether.

        Raises:
            OSError: a file cannot be read or written.
        """
        transcript = self.format()
        with self.file.open("rb") as source, _new(folder / self.stream) as copy:
            for line in _whole_lines(source):
                copy.write(line)
                show(len(line))
            self.unfinished[:] = [left] if (left := source.tell() - copy.tell()) else []
            _sync(copy)
        for record in self._records(folder / self.stream, show):
            transcript.scan(record)
        with _new(folder / paths.CONTEXT) as context:
            for message in self._messages(transcript, folder / self.stream, show):
                context.write(message)
            _sync(context)
        # `steno sessions` sorts by the last change, which is the other program's.
        changed = self.file.stat()
        os.utime(folder / paths.CONTEXT, ns=(changed.st_atime_ns, changed.st_mtime_ns))
        with _new(folder / paths.STATE) as state:
            state.write(json.dumps(_state(transcript), ensure_ascii=False).encode())
            _sync(state)

    def _records(self, stream: Path, show: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        self.undecoded.clear()
        with stream.open("rb") as lines:
            for line in lines:
                show(len(line))
                record = lenient_object(line)
                if record is not None:
                    yield record
                elif line.strip():
                    self.undecoded.append(len(line))

    def _messages(
        self, transcript: ForeignTranscript, stream: Path, show: Callable[[int], None]
    ) -> Iterator[bytes]:
        self.skipped.clear()
        for record in self._records(stream, show):
            yield from self._lines(transcript.messages(record))
        yield from self._lines(transcript.finish())

    def _lines(self, messages: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        for message in messages:
            line = msgspec.json.encode(message)
            if len(line) > limits.RECORD_BYTES_MAX:
                self.skipped.append(len(line))
            else:
                yield line + b"\n"


def find_foreign(folder: Path, prefix: str | None) -> tuple[list[ForeignSource], list[Path]]:
    """Find the transcripts of other agents in a folder, and those whose path is no session id.

    Args:
        folder: a file, or a folder; folders below it are searched, except those of sessions.
        prefix: the prefix of the ids, or the id of the one file; None is the name of the program.

    Raises:
        WrongUsage: the prefix is no session id.
    """
    if prefix is not None:
        check_session_id(prefix)
    found: list[ForeignSource] = []
    nameless: list[Path] = []
    for file in _files(folder):
        kind = foreign_format(file)
        if kind is None:
            continue
        is_named = folder.is_file() and prefix is not None
        session = prefix if is_named and prefix else _session_of(file, kind, prefix)
        try:
            paths.split_session(session)
        except BadRequest:
            nameless.append(file)
        else:
            found.append(ForeignSource(session, file, kind))
    return found, nameless


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    for place, folders, files in os.walk(folder):
        is_session = paths.CONTEXT in files
        folders[:] = [] if is_session else sorted(each for each in folders if each[0] != ".")
        for name in [] if is_session else sorted(files):
            path = Path(place, name)
            if name.endswith(".jsonl") and path.is_file() and not path.is_symlink():
                yield path


def _session_of(file: Path, kind: type[ForeignTranscript], prefix: str | None) -> str:
    """The id of a transcript: it depends on the file's place, not on the folder of the import."""
    start = kind.stream if prefix is None else prefix.rstrip("/")
    if kind is ClaudeCode:
        # <project>/<session>.jsonl, and <project>/<session>/subagents/<agent>.jsonl
        depth = 4 if file.parent.name == _SUBAGENTS else 2
        # A project's folder begins with the dash of its first slash, and a segment may not.
        below = [part.lstrip("-") for part in file.resolve().with_suffix("").parts[-depth:]]
        return "/".join([start, *below])
    transcript = kind()
    with file.open("rb") as content:
        for record in first_objects(content):
            transcript.scan(record)
    return f"{start}/{transcript.session or file.stem}"


def _whole_lines(source: BinaryIO) -> Iterator[bytes]:
    for line in source:
        if line.endswith(b"\n"):
            yield line


def _state(transcript: ForeignTranscript) -> dict[str, Any]:
    title = (transcript.title or "")[: limits.TITLE_CHARS_MAX]
    return {"version": 1, "custom_title": title or None, "labels": [transcript.stream]}


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    sync_file(file.fileno())
