"""Transcripts of other agents in a folder, written as sessions.

context.jsonl               the conversation as messages
context_1.jsonl ...         what compactions replaced, and the other branches
stream-claude-code.jsonl    the file of the other program, byte for byte
stream-tool-results.jsonl   long results of tools, which Claude Code keeps in files of their own
stream-source.jsonl         where the file is, see `SourceNote`
state.json                  the title, and the program as a label
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec

from steno.local import sync_file
from steno_agents.claude_code import ClaudeCode
from steno_agents.detection import BESIDE, FORMATS, guessed
from steno_agents.following import Digest, pieces_of
from steno_agents.json_lines import lenient_object, objects_of
from steno_agents.limits import FOLLOWED_LINE_BYTES
from steno_agents.origin import NOTES
from steno_agents.transcript import CONVERSATION_ROLES, ForeignTranscript, History
from steno_follow import compressed
from steno_follow.codex_rollouts import Rollouts
from steno_follow.companions import new_pieces
from steno_follow.limits import (
    TITLE_FILE_BYTES_MAX,
    TRANSCRIPT_LINE_BYTES_MAX,
)
from steno_follow.recognition import detected, first_objects, line_within
from steno_follow.session_folders import check_session_id
from steno_follow.session_indexes import indexes_above, names_in
from steno_follow.source_tree import Entry, SourceTree, Walk
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, StenoError, TooLarge

_SUBAGENTS: Final = "subagents"
"""Claude Code's folder of a session's subagents, beside the session's file."""

_SUFFIX: Final = ".jsonl"

_ENDINGS: Final = (_SUFFIX, _SUFFIX + compressed.SUFFIX)

_DIGEST_CHARS: Final = 12
"""Characters of a digest at the end of a name that was cut: no two names of a user are alike."""

_LOOKED_AT_OBJECTS: Final = 64
"""Records of an unknown file that are compared with the forms of other programs."""

SOURCE: Final = NOTES
"""The stream with notes about the file."""

PASSES: Final = 3
"""How often the lines of a transcript are read: to copy, to learn branches, and to convert."""


class EmptyTranscript(BadRequest):
    """A transcript has no message.

    Attributes:
        is_known: its records are those that its program writes before the first message.
    """

    is_known: bool = False


class Counted(NamedTuple):
    """What an import found in a transcript.

    Attributes:
        branches: the generations with branches that were left.
        compactions: the generations that a compaction replaced.
        rolled_back: the generations whose last turns were withdrawn.
        unread: past histories that are too many to be generations.
        salvaged: records that were read from damaged lines.
        odd: messages in a form that the reader does not know.
        elsewhere: the session with the beginning of the conversation, if its file was not found.
    """

    branches: int = 0
    compactions: int = 0
    rolled_back: int = 0
    unread: int = 0
    salvaged: int = 0
    odd: int = 0
    elsewhere: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """A transcript of another agent.

    Attributes:
        session: the id that it gets.
        tree: the folder of the import.
        inside: the place of the file in it; the file is only read.
        format: its format.
        bytes_max: about the bytes that `write` takes of the file; None for all.
        skipped: the bytes of each message that is too long for a record, after `write`.
        undecoded: the bytes of each line without a whole record, after `write`.
        unfinished: the bytes of a last line without an end, which `write` did not take.
        counted: the other findings, after `write`; empty before.
    """

    session: str
    tree: SourceTree
    inside: PurePath
    format: type[ForeignTranscript]
    bytes_max: int | None = None
    skipped: list[int] = field(default_factory=list[int])
    undecoded: list[int] = field(default_factory=list[int])
    unfinished: list[int] = field(default_factory=list[int])
    counted: list[Counted] = field(default_factory=list[Counted])

    @property
    def file(self) -> Path:
        """The path of the file; that of its database with its id, if it comes from one."""
        return self.tree.name_of(self.inside)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.tree.path(self.inside).parent

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
        return PASSES * self.tree.size(self.inside)

    def shape(self) -> tuple[int, int]:
        """A value that changes when the file is replaced or cut, and not with an append."""
        stat = self.tree.stat(self.inside)
        return stat.st_ino, stat.st_dev

    def identity(self) -> str:
        """What the file is, wherever it lies.

        Raises:
            OSError: it cannot be read.
        """
        named = _session_of(self.tree, self.inside, self.format, None)
        if self.format is ClaudeCode:
            # The name of the project's folder is that of a place.
            return f"{self.format.stream}/{self._session_in_records()}/{_stem(self.inside.name)}"
        return named

    def _session_in_records(self) -> str | None:
        transcript = self.format()
        with _opened(self.tree, self.inside) as content:
            for place, record in enumerate(first_objects(content)):
                transcript.scan(place, record)
                if transcript.session is not None:
                    break
        return transcript.session

    @contextmanager
    def seekable(self) -> Generator[BinaryIO]:
        """The open file; a compressed one is decompressed into a file without a name.

        Raises:
            OSError: it cannot be read.
        """
        with _opened(self.tree, self.inside) as file:
            if not self.inside.name.endswith(compressed.SUFFIX):
                yield file
                return
            with tempfile.TemporaryFile() as whole:
                shutil.copyfileobj(file, whole, limits.COPY_BYTES)
                whole.seek(0)
                yield cast("BinaryIO", whole)

    def title_of(self, transcript: ForeignTranscript) -> str:
        """The title that the program shows, or the first words that a person typed."""
        title = (
            self._indexed_title(transcript)
            or transcript.own_title
            or self._title_beside()
            or transcript.title(transcript.histories())
        )
        return (title or "")[: limits.TITLE_CHARS_MAX]

    def write(
        self, folder: Path, show: Callable[[int], None], mask: Callable[[bytes], bytes] | None
    ) -> None:
        """Write the session's files; durable once the folder is synced.

        Only whole lines are taken: the program may be writing the next one.

        Args:
            folder: an empty folder.
            show: called with the bytes of each line, `PASSES` times altogether.
            mask: hides secrets in what is kept as Base64; the caller masks the files.

        Raises:
            EmptyTranscript: no record is a message.
            TooLarge: a line is too long to be read.
            OSError: a file cannot be read or written.
        """
        transcript, digest = self.format(), Digest()
        transcript.lookup = Rollouts(self.file)
        for found in (self.skipped, self.undecoded, self.unfinished, self.counted):
            found.clear()
        with (
            _opened(self.tree, self.inside) as source,
            _new(folder / self.stream) as copy,
        ):
            self._copy_lines(source, copy, digest, show)
            _sync(copy)
        spans = self._scan(transcript, folder / self.stream, show)
        histories = transcript.histories()
        written = self._write_contexts(transcript, histories, folder, spans, show)
        self.counted.append(
            Counted(
                sum(each.end == "branch" for each in written),
                sum(each.end == "compaction" for each in written),
                sum(each.end == "roll-back" for each in written),
                transcript.unread,
                sum(bool(each) for each in spans.values()),
                transcript.odd,
                transcript.elsewhere,
            )
        )
        self._write_companions(folder, mask)
        lines = self._wrap(folder, mask)
        title = self.title_of(transcript)
        cursor = digest.cursor(0)
        self._write_state(transcript, title, folder)
        note = SourceNote(
            path=str(self.file), identity=self.identity(), title=title,
            generation=0, lines=lines, offset=cursor.offset, digest=cursor.digest,
        )  # fmt: skip
        with _new(folder / paths.stream_file(SOURCE)) as file:
            file.write(msgspec.json.encode(note) + b"\n")
            _sync(file)
        # `steno sessions` sorts by the last change, which is the other program's.
        changed = self.tree.stat(self.inside)
        for each in folder.iterdir():
            os.utime(each, ns=(changed.st_atime_ns, changed.st_mtime_ns))

    def _copy_lines(
        self, source: BinaryIO, copy: BinaryIO, digest: Digest, show: Callable[[int], None]
    ) -> None:
        """Copy the whole lines that are taken.

        A function of its own, because its last line may be as long as one is read.
        """
        for line in whole_lines(source, self.file, self.unfinished):
            copy.write(line)
            digest.feed(line)
            show(len(line))
            if self.bytes_max is not None and digest.offset >= self.bytes_max:
                break

    def _wrap(self, folder: Path, mask: Callable[[bytes], bytes] | None) -> int:
        """Give the stream its records; a daemon would cut a damaged last line.

        Returns:
            The number of its lines.
        """
        exact, count = folder / self.stream, 0
        wrapped = exact.with_suffix(".wrapped")
        with exact.open("rb") as lines, _new(wrapped) as records:
            for line in whole_lines(lines, self.file, []):
                for piece in pieces_of(line, mask):
                    records.write(piece.record + b"\n")
                    count += 1
            _sync(records)
        wrapped.replace(exact)
        return count

    def _scan(
        self, transcript: ForeignTranscript, stream: Path, show: Callable[[int], None]
    ) -> dict[int, int]:
        """Let the transcript read each record once.

        Returns:
            The bytes of each record that shares its line with damage, by place.
        """
        salvaged: dict[int, int] = {}
        offset = 0
        with stream.open("rb") as lines:
            for line in whole_lines(lines, self.file, []):
                is_long = len(line) > FOLLOWED_LINE_BYTES
                records = [] if is_long else objects_of(line, self.format.is_record)
                for record in records:
                    place = offset + record.start
                    if record.end - record.start != len(line):
                        salvaged[place] = record.end - record.start
                    transcript.scan(place, record.value)
                if not records and not line.isspace():
                    self.undecoded.append(len(line))
                offset += len(line)
                show(len(line))
        return salvaged

    def _write_contexts(
        self,
        transcript: ForeignTranscript,
        histories: Sequence[History],
        folder: Path,
        salvaged: dict[int, int],
        show: Callable[[int], None],
    ) -> list[History]:
        """Write a generation for each history with messages; returns the past ones.

        Raises:
            EmptyTranscript: the live history has no message.
        """
        written: list[History] = []
        with (folder / self.stream).open("rb") as stream:
            for history in histories:
                is_live = history.end == "live"
                path = folder / paths.generation_file(len(written) + 1)
                path = folder / paths.CONTEXT if is_live else path
                records = _records_at(transcript, stream, history.places, salvaged)
                with _new(path) as context:
                    messages = 0
                    for message in _messages(transcript, records):
                        line = msgspec.json.encode(message)
                        if len(line) <= limits.RECORD_BYTES_MAX:
                            context.write(line + b"\n")
                            messages += message["role"] in CONVERSATION_ROLES
                        elif is_live:
                            self.skipped.append(len(line))
                    _sync(context)
                if not is_live and messages:
                    written.append(history)
                elif not is_live:
                    path.unlink()
                elif not (messages or self.skipped):
                    raise self._empty(transcript)
        if not histories:
            raise self._empty(transcript)
        show(self.tree.size(self.inside))
        return written

    def _empty(self, transcript: ForeignTranscript) -> EmptyTranscript:
        program = transcript.program
        if transcript.odd or self.undecoded:
            why = (
                f"{transcript.odd + len(self.undecoded)} records of it are damaged, or in a form of"
                f" {program} that this version of steno cannot read: update steno, or report it"
            )
        else:
            why = f"{program} had not written a message to it when it ended"
        error = EmptyTranscript(f"{self.file} has no conversation: {why}")
        error.is_known = not (transcript.odd or self.undecoded)
        return error

    def companions(
        self, name: str, taken: Mapping[str, int], mask: Callable[[bytes], bytes] | None
    ) -> Iterator[bytes]:
        """Yield the records of what is new in a folder of files beside the transcript.

        Args:
            name: one of the `companions` of the format, and the stream with the records.
            taken: the bytes of each file that the stream has.
            mask: hides secrets.
        """
        return new_pieces(self.tree, self._beside(name), taken, mask)

    def has_companions(self, name: str) -> bool:
        """Whether there is such a folder."""
        return self.tree.has_folder(self._beside(name))

    def _beside(self, name: str) -> PurePath:
        return self.inside.parent / _stem(self.inside.name) / name

    def _write_companions(self, folder: Path, mask: Callable[[bytes], bytes] | None) -> None:
        for name in self.format.companions:
            pieces = self.companions(name, {}, mask)
            first = next(pieces, None)
            if first is None:
                continue
            with _new(folder / paths.stream_file(name)) as stream:
                stream.writelines(piece + b"\n" for piece in chain([first], pieces))
                _sync(stream)

    def _write_state(self, transcript: ForeignTranscript, title: str, folder: Path) -> None:
        state = {"version": 1, "custom_title": title or None, "labels": [transcript.stream]}
        with _new(folder / paths.STATE) as file:
            file.write(json.dumps(state, ensure_ascii=False).encode(errors="replace"))
            _sync(file)

    def _title_beside(self) -> str | None:
        """The title in a file of the program that describes the session."""
        if self.format.title_file is None:
            return None
        path = Path(os.path.normpath(self.folder / self.format.title_file))
        with suppress(OSError, StenoError):
            with (
                closing(SourceTree(path.parent)) as above,
                above.open(PurePath(path.name)) as file,
            ):
                content = file.read(TITLE_FILE_BYTES_MAX)
            return self.format.title_in(content.decode(errors="replace"))
        return None

    def _indexed_title(self, transcript: ForeignTranscript) -> str | None:
        """The name in the program's index, the last one of the session."""
        index = self.format.index
        if index is None or transcript.session is None:
            return None
        for path in indexes_above(self.folder, index):
            with suppress(OSError, StenoError):
                return names_in(path, index).get(transcript.session)
        return None


class SourceNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note that a session has its file up to an offset, in the stream `source`.

    Attributes:
        path: its path.
        identity: what it is, wherever it lies.
        title: the title that its session got from it.
        generation: the generation of the stream with its bytes.
        lines: the lines of that stream.
        offset: the bytes of the file in it.
        digest: a digest of them.
        is_gone: the file was deleted.
    """

    path: str
    identity: str
    title: str = ""
    generation: int = 0
    lines: int = 0
    offset: int = 0
    digest: str = ""
    is_gone: bool = False

    @classmethod
    def of(cls, record: dict[str, Any]) -> "SourceNote | None":
        """Return the note in a record; None if the record is none."""
        with suppress(msgspec.ValidationError):
            return msgspec.convert(record, cls)
        return None


class Unknown(NamedTuple):
    """A file that no reader understands.

    Attributes:
        path: its path.
        guess: the name of the program that most likely wrote it; None if nothing suggests one.
    """

    path: Path
    guess: str | None

    @property
    def why(self) -> str:
        """The reason why it is left out."""
        known = ", ".join(each.program for each in FORMATS)
        what = (
            "its records are those of no agent that steno knows"
            if self.guess is None
            else f"it looks like a transcript of {self.guess}, which steno cannot read"
        )
        return f"{what}; it reads those of {known}, and session folders of kimi-cli"


@dataclass(slots=True)
class Found:
    """The transcripts of other agents in a folder.

    Attributes:
        sources: those that can be imported.
        nameless: those whose path is no session id.
        unknown: files with lines of JSON that no reader understands.
        contexts: files whose lines are the messages of kimi-cli.
        left_out: files and folders that were not read, with the reason.
    """

    sources: list[ForeignSource] = field(default_factory=list["ForeignSource"])
    nameless: list[Path] = field(default_factory=list[Path])
    unknown: list[Unknown] = field(default_factory=list[Unknown])
    contexts: set[PurePath] = field(default_factory=set[PurePath])
    left_out: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])


def find_foreign(tree: SourceTree, prefix: str | None) -> Found:
    """Find the transcripts of other agents in a folder.

    Args:
        tree: the folder, or its one file; folders below it are searched, except those of sessions.
        prefix: the prefix of the ids, or the id of the one file; None is the name of the program.

    Raises:
        BadRequest, ImpossibleId: the prefix is no session id.
    """
    if prefix is not None:
        check_session_id(prefix)
    found = Found()
    walk = Walk(tree)
    for inside in [PurePath(tree.only)] if tree.only is not None else _files(walk):
        try:
            _look(tree, inside, prefix, found)
        except StenoError as error:
            found.left_out.append((tree.path(inside), error.message))
        except OSError as error:
            why = f"it cannot be read: {error.strerror or error}"
            found.left_out.append((tree.path(inside), why))
    found.left_out += walk.left_out
    return found


def unknown_context(tree: SourceTree, inside: PurePath) -> Unknown | None:
    """What a context file is if it has no message of kimi-cli; None if it may have.

    Raises:
        OSError: it cannot be read.
    """
    with tree.open(inside) as content:
        objects = first_objects(content)
        first = [each for _, each in zip(range(_LOOKED_AT_OBJECTS), objects, strict=False)]
    if not first or any(isinstance(each.get("role"), str) for each in first):
        return None
    guesses = (guess for each in first if (guess := guessed(each)) is not None)
    return Unknown(tree.path(inside), next(guesses, None))


def find_one(tree: SourceTree, inside: PurePath) -> ForeignSource | None:
    """Return the transcript in a file; None if no reader understands it yet.

    Raises:
        OSError, StenoError: it cannot be read.
    """
    found = Found()
    _look(tree, inside, None, found)
    return next(iter(found.sources), None)


def _look(tree: SourceTree, inside: PurePath, prefix: str | None, found: Found) -> None:
    """Find out what a file is."""
    with _opened(tree, inside) as content:
        objects = first_objects(content)
        first = [each for _, each in zip(range(_LOOKED_AT_OBJECTS), objects, strict=False)]
        is_context = bool(first) and all(isinstance(each.get("role"), str) for each in first)
        detection = detected(first)
        if detection.format is None and not is_context and detection.guess is None:
            detection = detected(_both(first, objects))
    kind = detection.format
    if kind is None:
        if is_context:
            found.contexts.add(inside)
        elif first:
            found.unknown.append(Unknown(tree.path(inside), detection.guess))
        return
    is_named = tree.only is not None and prefix is not None
    session = prefix if is_named and prefix else _session_of(tree, inside, kind, prefix)
    try:
        paths.split_session(session)
    except BadRequest:
        found.nameless.append(tree.path(inside))
    else:
        found.sources.append(ForeignSource(session, tree, inside, kind))


def _both(first: list[dict[str, Any]], rest: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from first
    yield from rest


def _files(walk: Walk) -> Iterator[PurePath]:
    """The files with lines of JSON that belong to no session folder, those above first."""
    waiting = [PurePath()]
    while waiting:
        folder = waiting.pop()
        files, below = perhaps_transcripts(walk.below(folder))
        yield from (folder / name for name in files)
        waiting += [folder / name for name in reversed(below)]


_COMPANIONS: Final = frozenset(name for each in FORMATS for name in each.companions)


def perhaps_transcripts(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Return the files of a folder that may be transcripts, and the folders to search."""
    shown = [each for each in entries if not each.name.startswith(".")]
    names = {each.name for each in shown if not each.is_folder}
    if paths.CONTEXT in names:
        return [], []
    files = [name for name in sorted(names - BESIDE) if name.endswith(_ENDINGS)]
    return files, [each.name for each in shown if each.is_folder and each.name not in _COMPANIONS]


def _opened(tree: SourceTree, inside: PurePath) -> BinaryIO:
    """Open a transcript; a compressed one is decompressed as it is read."""
    file = tree.open(inside)
    if inside.name.endswith(compressed.SUFFIX):
        return compressed.decompressed(file, tree.path(inside))
    return file


def _stem(name: str) -> str:
    return name.removesuffix(compressed.SUFFIX).removesuffix(_SUFFIX)


def _session_of(
    tree: SourceTree, inside: PurePath, kind: type[ForeignTranscript], prefix: str | None
) -> str:
    """The id of a transcript: it depends on the file's place, not on the folder of the import."""
    start = kind.stream if prefix is None else prefix.rstrip("/")
    path = tree.path(inside)
    if kind is ClaudeCode:
        return _fitted([start, *_claude_segments([*path.parts[1:-1], _stem(path.name)])])
    if segments := kind.path_segments(path.parts):
        return _fitted([start, *segments])
    transcript = kind()
    with _opened(tree, inside) as content:
        for place, record in enumerate(first_objects(content)):
            transcript.scan(place, record)
            if transcript.session is not None:
                break
    return f"{start}/{transcript.session or _stem(path.name)}"


def _claude_segments(parts: Sequence[str]) -> list[str]:
    """The part of a path that names a transcript of Claude Code.

    <project>/<session>.jsonl, <project>/<session>/subagents/<agent>.jsonl, and the agents of a
    workflow some folders below `subagents`.
    """
    above = [at for at, part in enumerate(parts[:-1]) if part == _SUBAGENTS]
    begin = max(0, above[-1] - 2) if above else -2
    # A project's folder begins with the dash of its first slash, and a segment may not.
    return [part.lstrip("-") or "root" for part in parts[begin:]]


def _fitted(segments: list[str]) -> str:
    """A session id of segments; long ones keep their beginning and get a digest of the whole."""
    longest = limits.SESSION_SEGMENT_CHARS_MAX
    cut = [_cut(each, longest) for each in segments]
    over = len("/".join(cut)) - limits.SESSION_ID_CHARS_MAX
    if over > 0:
        at = max(range(len(cut)), key=lambda each: len(cut[each]))
        cut[at] = _cut(segments[at], max(len(cut[at]) - over, _DIGEST_CHARS))
    return "/".join(cut)


def _cut(segment: str, size: int) -> str:
    if len(segment) <= size:
        return segment
    digest = hashlib.sha256(os.fsencode(segment)).hexdigest()[:_DIGEST_CHARS]
    return f"{segment[: max(0, size - _DIGEST_CHARS - 1)]}-{digest}".lstrip("-")


def whole_lines(source: BinaryIO, path: Path, unfinished: list[int]) -> Iterator[bytes]:
    """The whole lines of a transcript.

    Args:
        source: the open transcript.
        path: its path, for messages.
        unfinished: gets the bytes of a last line without an end.

    Raises:
        TooLarge: a line is too long to be kept in memory.
    """
    offset = 0
    while line := line_within(source, TRANSCRIPT_LINE_BYTES_MAX):
        if not line.endswith(b"\n"):
            unfinished.append(len(line))
            return
        yield line
        offset += len(line)
    if line is None:
        raise too_long_line(path, offset)


def too_long_line(path: Path, offset: int) -> TooLarge:
    """The error for a line that is longer than any that an agent writes."""
    return TooLarge(
        f"the line at byte {offset} of {path} has more than {TRANSCRIPT_LINE_BYTES_MAX} bytes, more"
        " than steno reads: remove the line from a copy of the file, and import the copy"
    )


class LineLength:
    """Refuses a file with a line that is too long, block by block.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 0

    def feed(self, block: bytes) -> None:
        """Look at the next block.

        Raises:
            TooLarge: a line has become too long.
        """
        last = block.rfind(b"\n") + 1
        longest = self._offset - self._line + (block.find(b"\n") if last else len(block))
        if longest > TRANSCRIPT_LINE_BYTES_MAX:
            raise too_long_line(self._path, self._line)
        self._line = self._offset + last if last else self._line
        self._offset += len(block)


def _records_at(
    transcript: ForeignTranscript,
    stream: BinaryIO,
    places: Sequence[int],
    salvaged: dict[int, int],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records at places of a stream, or of another transcript that it continues."""
    for place in places:
        if place < 0:
            inherited = transcript.inherited(place)
            if inherited is not None:
                yield place, inherited
            continue
        stream.seek(place)
        size = salvaged.get(place)
        record = lenient_object(stream.readline() if size is None else stream.read(size))
        if record is not None:
            yield place, record


def _messages(
    transcript: ForeignTranscript, records: Iterator[tuple[int, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    converter = transcript.converter()
    for place, record in records:
        yield from converter.messages(place, record)
    yield from converter.finish()


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    sync_file(file.fileno())
