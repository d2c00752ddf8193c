"""The notes of a session about the file that it comes from, in its stream `source`."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from steno import BlockingClient
from steno_agents.origin import NOTES
from steno_follow.foreign_source import ForeignSource
from steno_follow.source_tree import is_gone
from steno_protocol.errors import Exists, NotFound
from steno_protocol.records import RESERVED_KEYS
from steno_redact.redactor import Redactor

SOURCE: Final = NOTES
"""The stream with notes about the file."""

GONE: Final = "source-deleted"
"""The label of a session whose file was deleted by its program."""


AUTHOR: Final = "steno-import"
"""The author of all that following writes; other authors go on with a session themselves."""


class AnotherCopy(Exists):
    """The session follows another file with the same identity, which is still there."""


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
        is_masked: secrets were masked in that stream as it was written.
    """

    path: str
    identity: str
    title: str = ""
    generation: int = 0
    lines: int = 0
    offset: int = 0
    digest: str = ""
    is_gone: bool = False
    is_masked: bool = False

    @classmethod
    def of(cls, record: dict[str, Any]) -> "SourceNote | None":
        """Return the note in a record; None if the record is none."""
        with suppress(msgspec.ValidationError):
            return msgspec.convert(record, cls)
        return None


def without_stamp(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the keys that steno adds."""
    return {name: record[name] for name in record if name not in RESERVED_KEYS}


def last_note(client: BlockingClient, session: str) -> SourceNote | None:
    """Return the last note about the file of a session; None if there is none."""
    last = client.session(session).stream(SOURCE).last(1)
    return SourceNote.of(last[0].record) if last else None


def add_note(client: BlockingClient, session: str, note: SourceNote) -> None:
    """Append a note to those of a session."""
    client.session(session).stream(SOURCE).append(msgspec.to_builtins(note))


def mark_gone(client: BlockingClient, session: str, path: str) -> bool:
    """Note that the file of a session was deleted, and label the session.

    Returns:
        False if that is known, the session has its file at another path now, or was deleted, too.
    """
    with suppress(NotFound):
        last = last_note(client, session)
        if last is not None and not last.is_gone and last.path == path:
            labels = [each for each in client.stat(session).labels if each != GONE]
            client.session(session).describe(labels=[*labels, GONE])
            add_note(client, session, msgspec.structs.replace(last, is_gone=True))
            return True
    return False


def note_of(source: ForeignSource, redactor: Redactor | None, **fields: Any) -> SourceNote:
    """Return a note about a file, masked as all that is written to its session.

    Raises:
        OSError: the file cannot be read.
    """
    found = {"path": str(source.file), "identity": source.identity, **fields}
    return msgspec.convert(found if redactor is None else redactor.value(found), SourceNote)


def is_copy(note: SourceNote | None, here: SourceNote, source: ForeignSource) -> bool:
    """Whether the file that a session comes from is still there, and another one."""
    if note is None or note.path == here.path:
        return False
    with suppress(OSError):
        return not source.file.samefile(note.path)
    return not is_gone(note.path)


def check_identity(note: SourceNote | None, here: SourceNote, source: ForeignSource) -> None:
    """Refuse to replace what comes from another file.

    Raises:
        Exists: the session comes from no transcript.
        AnotherCopy: the file that it comes from is still there, or was another one.
    """
    if note is None:
        raise Exists(
            f"another session is at {source.session}, which does not come from {source.file}:"
            " import it under another id",
            session=source.session,
        )
    is_same = here.path == note.path or here.identity == note.identity
    if not is_same or is_copy(note, here, source):
        raise AnotherCopy(
            f"{source.session} follows {note.path}, and {source.file} has other records: import it"
            " under another id",
            session=source.session,
        )
