"""The first import of a transcript: the files of its session, written aside.

context.jsonl               the conversation as messages
context_1.jsonl ...         what compactions replaced, and the other branches
stream-claude-code.jsonl    the file of the other program, byte for byte
stream-tool-results.jsonl   long results of tools, which Claude Code keeps in files of their own
stream-source.jsonl         where the file is, see `SourceNote`
state.json                  the title, and the program as a label
"""

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from steno_agents.following import Reading, messages_of, pieces_of
from steno_agents.transcript import History
from steno_follow.aside import new_file
from steno_follow.codex_rollouts import Rollouts
from steno_follow.companions import new_pieces
from steno_follow.foreign_source import ForeignSource
from steno_follow.lines import still_has, whole_lines
from steno_follow.outcomes import Imported
from steno_follow.source_notes import SOURCE, SourceNote
from steno_protocol import paths
from steno_protocol.errors import BadRequest, Busy

Mask = Callable[[bytes], bytes]

PASSES: Final = 2
"""How often the lines of a transcript are read: to keep them, and to convert them."""

_CONTROL: Final = b'{"role":"_'
"""Begins a record that is no message."""


class EmptyTranscript(BadRequest):
    """A transcript has no message.

    Attributes:
        is_known: its records are those that its program writes before the first message.
    """

    is_known: bool = False


def write_session(
    source: ForeignSource,
    folder: Path,
    show: Callable[[int], None],
    mask: Mask | None,
    bytes_max: int | None = None,
) -> Imported:
    """Write a session's files; durable once the folder is synced.

    Only whole lines are taken: the program may be writing the next one.

    Args:
        source: the transcript.
        folder: an empty folder.
        show: called with the bytes of each line, `PASSES` times altogether.
        mask: hides secrets in what is kept as Base64; the caller masks the files.
        bytes_max: about the bytes that are taken of the file; None for all.

    Raises:
        EmptyTranscript: no record is a message.
        TooLarge: a line is too long to be read.
        Busy: the file was rewritten meanwhile.
        OSError: a file cannot be read or written.
    """
    reading = Reading(source.format, Rollouts(source.file), is_bounded=False)
    with source.seekable() as file:
        kept = _write_stream(source, file, reading, folder, show, mask, bytes_max)
        # A last line without an end was read, and not taken.
        unfinished = file.tell() - reading.offset
        found = _write_contexts(source, file, reading, folder)
        found.unfinished = unfinished
        if not still_has(file, reading):
            raise rewritten(source.folder, source.session)
    show(reading.offset)
    for name in source.format.companions:
        pieces = new_pieces(source, name, {}, mask)
        first = next(pieces, None)
        if first is not None:
            _write(
                folder / paths.stream_file(name),
                (b"%s\n" % each for each in chain([first], pieces)),
            )
    title, cursor = source.title_of(reading.transcript), reading.cursor(0)
    state = {"version": 1, "custom_title": title or None, "labels": [source.format.stream]}
    _write(folder / paths.STATE, [json.dumps(state, ensure_ascii=False).encode(errors="replace")])
    note = SourceNote(
        path=str(source.file), identity=source.identity, title=title,
        generation=0, lines=kept, offset=cursor.offset, digest=cursor.digest,
        is_masked=mask is not None,
    )  # fmt: skip
    _write(folder / paths.stream_file(SOURCE), [msgspec.json.encode(note) + b"\n"])
    # `steno sessions` sorts by the last change, which is the other program's.
    changed = source.tree.stat(source.inside)
    for each in folder.iterdir():
        os.utime(each, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    return found


def rewritten(folder: Path, session: str) -> Busy:
    """Return the error for a source that was replaced or cut while it was read."""
    return Busy(
        f"{folder} was rewritten while it was copied: import it again while the program that"
        " owns it is idle",
        session=session,
    )


def _write_stream(
    source: ForeignSource,
    file: BinaryIO,
    reading: Reading,
    folder: Path,
    show: Callable[[int], None],
    mask: Mask | None,
    bytes_max: int | None,
) -> int:
    """Keep the whole lines, and let the reader see each once; returns the number of records.

    A function of its own, because its last line may be as long as one is read.
    """
    count = 0
    with new_file(folder / paths.stream_file(source.format.stream)) as stream:
        for line in whole_lines(file, source.file):
            for piece in pieces_of(line, mask):
                stream.write(piece.record)
                stream.write(b"\n")
                count += 1
            reading.feed(line)
            show(len(line))
            if bytes_max is not None and reading.offset >= bytes_max:
                break
    return count


def _write_contexts(
    source: ForeignSource, file: BinaryIO, reading: Reading, folder: Path
) -> Imported:
    """Write a generation for each history with messages.

    Raises:
        EmptyTranscript: no history has a message.
    """
    transcript, written, skipped = reading.transcript, list[History](), list[None]()
    record_at = partial(reading.record_at, file)
    for history in transcript.histories():
        is_live = history.end == "live"
        name = paths.CONTEXT if is_live else paths.generation_file(len(written) + 1)
        skipped.clear()
        lines = messages_of(transcript, history, record_at, partial(skipped.append, None))
        if _write(folder / name, (line + b"\n" for line in lines)):
            written.append(history)
        elif not is_live:
            (folder / name).unlink()
    if not (written or skipped):
        raise _empty(source, reading)
    if not (folder / paths.CONTEXT).exists():
        # The program withdrew all of it, or a user cleared it.
        _write(folder / paths.CONTEXT, [])
    ends = [each.end for each in written]
    return Imported(
        ends.count("branch"), ends.count("compaction"), ends.count("roll-back"),
        transcript.unread, reading.salvaged, transcript.odd, transcript.elsewhere,
        len(skipped), reading.damaged_count, damaged=reading.damaged,
    )  # fmt: skip


def _empty(source: ForeignSource, reading: Reading) -> EmptyTranscript:
    program, unread = source.format.program, reading.transcript.odd + reading.damaged_count
    why = (
        f"{unread} records of it are damaged, or in a form of {program} that this version of steno"
        " cannot read: update steno, or report it"
        if unread
        else f"{program} had not written a message to it when it ended"
    )
    error = EmptyTranscript(f"{source.file} has no conversation: {why}")
    error.is_known = not unread
    return error


def _write(path: Path, lines: Iterable[bytes]) -> int:
    """Write a new file; returns the number of its lines that are messages or other data."""
    messages = 0
    with new_file(path) as file:
        for line in lines:
            file.write(line)
            messages += not line.startswith(_CONTROL)
    return messages
