"""The program and the file that a session comes from, and how its program goes on with it."""

import re
import shlex
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steno.values import StreamRecord
from steno_agents.claude_code import ClaudeCode
from steno_agents.detection import FORMATS
from steno_agents.limits import ORIGIN_FIRST_RECORDS, ORIGIN_LAST_RECORDS
from steno_agents.traces import Circumstances
from steno_agents.transcript import ForeignTranscript, text_field

if TYPE_CHECKING:
    from steno import BlockingSession, Session

NOTES: Final = "source"
"""The stream of a session with notes about its file."""

_BY_STREAM: Final = {each.stream: each for each in FORMATS}

_SHORT: Final = {
    "claude": "claude-code",
    "copilot": "copilot-cli",
    "gemini": "gemini-cli",
    "kimi": "kimi-code",
    "qwen": "qwen-code",
}
"""What people call the programs."""

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,255}")
"""An id that a shell takes as it is, and that no mask is in."""

_MASKED: Final = "[redacted: "
"""The beginning of a mask, which may have been put in as the session was written."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session comes from.

    Attributes:
        program: the name of the program.
        format: its short name, which is also that of the stream with the lines of the file.
        path: the path of the file; None if no note has it.
        is_gone: the file was deleted.
        is_masked: secrets were masked as its lines were kept, so that they are not byte for byte
            those of the file.
        id: the id of the session in the program; None if nothing names it.
        work_dir: the directory in which it began.
        branch: the branch of the repository there, as the program saw it last.
        model: the model that it used last.
        parent: the id, in the program, of the session whose subagent this one is.
        resume: the line for a shell that goes on with the session; None if there is none.
    """

    program: str
    format: str
    path: str | None = None
    is_gone: bool = False
    is_masked: bool = False
    id: str | None = None
    work_dir: str | None = None
    branch: str | None = None
    model: str | None = None
    parent: str | None = None
    resume: str | None = None

    def masked(self, mask: Callable[[str], str]) -> "Origin":
        """Return what may be shown; a command with a mask in it would be no command.

        Args:
            mask: hides the secrets in a text.
        """
        names = ("path", "id", "work_dir", "branch", "model", "parent")
        before = {name: getattr(self, name) for name in names}
        shown = {name: value and mask(value) for name, value in before.items()}
        resume = self.resume
        if resume is not None and (mask(resume) != resume or shown != before):
            resume = None
        return msgspec.structs.replace(self, **shown, resume=resume)


def format_named(name: str) -> str | None:
    """Return the short name of a program that somebody typed; None if steno knows no such program.

    >>> format_named("Claude"), format_named("codex"), format_named("emacs")
    ('claude-code', 'codex', None)
    """
    lower = name.lower()
    found = _SHORT.get(lower, lower)
    return found if found in _BY_STREAM else None


def reader_among(streams: Iterable[str]) -> type[ForeignTranscript] | None:
    """Return the reader of a session's transcript, by the names of its streams."""
    return next((_BY_STREAM[each] for each in streams if each in _BY_STREAM), None)


def read_origin(session: "BlockingSession") -> Origin | None:
    """Return where a session comes from; None if it is steno's own.

    Raises:
        NotFound: there is no such session.
    """
    kind = reader_among(each.name for each in session.streams())
    if kind is None:
        return None
    notes = session.stream(NOTES).last(1)
    stream = session.stream(kind.stream)
    first = list(islice(stream.records(), ORIGIN_FIRST_RECORDS))
    return origin_of(kind, notes, [*first, *stream.last(ORIGIN_LAST_RECORDS)])


async def fetch_origin(session: "Session") -> Origin | None:
    """Return the same, through an async client.

    Raises:
        NotFound: there is no such session.
    """
    kind = reader_among(each.name for each in await session.streams())
    if kind is None:
        return None
    notes = await (await session.stream(NOTES)).last(1)
    stream = await session.stream(kind.stream)
    first: list[StreamRecord] = []
    async for each in stream.records():
        first.append(each)
        if len(first) == ORIGIN_FIRST_RECORDS:
            break
    return origin_of(kind, notes, [*first, *await stream.last(ORIGIN_LAST_RECORDS)])


def origin_of(
    kind: type[ForeignTranscript], notes: Iterable[StreamRecord], lines: Iterable[StreamRecord]
) -> Origin:
    """Return the origin that some records name.

    Args:
        kind: the reader of the file.
        notes: the last note about the file, if there is one.
        lines: the first records of the file, and the last ones.
    """
    records = [each.record for each in notes]
    note: dict[str, Any] = records[0] if records else {}
    transcript, found = kind(), Circumstances()
    for place, each in enumerate(lines):
        record = each.record
        if transcript.session is None:
            transcript.scan(place, record)
        # Programs find a session by the directory in which it began.
        more = kind.circumstances(record)
        found = Circumstances(
            found.work_dir or more.work_dir,
            more.branch or found.branch,
            more.model or found.model,
            found.parent or more.parent,
        )
    path = text_field(note, "path")
    identity = _id_of(kind, path, transcript.session)
    return Origin(
        program=kind.program,
        format=kind.stream,
        path=path,
        is_gone=note.get("is_gone") is True,
        is_masked=note.get("is_masked") is True,
        id=identity,
        **found._asdict(),
        resume=_resuming(kind, identity, found),
    )


def _id_of(kind: type[ForeignTranscript], path: str | None, named: str | None) -> str | None:
    """The id by which the program finds the session."""
    parts = PurePath(path).parts if path is not None else ()
    if kind is ClaudeCode and parts:
        # A copy of a file has the records of another one, and Claude Code looks for the name.
        return PurePath(parts[-1]).name.removesuffix(".jsonl")
    if segments := kind.path_segments(parts):
        return segments[0] if len(segments) == 1 else None
    return named


def _resuming(
    kind: type[ForeignTranscript], identity: str | None, found: Circumstances
) -> str | None:
    """The line for a shell; None if a mask or a control character would make it another one."""
    if identity is None or _ID.fullmatch(identity) is None or found.parent is not None:
        return None
    command = kind.resuming(identity)
    work_dir = found.work_dir
    if not command or work_dir is None:
        return shlex.join(command) or None
    if not work_dir.isprintable() or _MASKED in work_dir:
        return None
    return f"{shlex.join(['cd', work_dir])} && {shlex.join(command)}"
