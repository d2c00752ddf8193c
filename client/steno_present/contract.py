"""The documents of `--json`, whose keys are always present; keys may be added, never removed.

The page `client/guide/reference/json.md` lists them, and is generated from what these functions
return for an example of each Struct.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from steno.values import (
    Ack,
    Checkpoint,
    Compacted,
    Deleted,
    Mail,
    Record,
    Reset,
    StreamInfo,
    StreamRecord,
    Turn,
    WireRecord,
)
from steno_protocol.errors import OutcomeUnknown, StenoError, Unreachable
from steno_protocol.positions import Position
from steno_protocol.replies import (
    CheckFinding,
    SessionEntry,
    SessionStat,
    StatsReport,
    TrashEntry,
    Verification,
)
from steno_protocol.timeline_entries import TimelineEntry

if TYPE_CHECKING:
    from steno_protocol.context import ContextState

_encode = msgspec.json.Encoder().encode

EXPORT_HEAD: Final = (
    "session", "title", "labels", "archived", "forked_from", "head", "generation",
)  # fmt: skip
"""The keys of an export that describe the whole session."""


_CLUSTER_FIELDS: Final = ("stale", "owner")
_TOLD: Final = "repaired"
"""The field of replies that the command tells on stderr, whatever the reply is to."""


def ack(session: str, value: Ack) -> dict[str, Any]:
    """The acknowledgement of a change."""
    fields = document(value, Ack.__struct_fields__)
    handle = value.handle if isinstance(value, Checkpoint) else None
    return {"session": session, **fields, "handle": handle}


def sessions(
    entries: Sequence[SessionEntry], flat: Sequence[SessionEntry]
) -> dict[str, list[dict[str, Any]]]:
    """The list of `sessions`; `flat` are sessions that only this command and `import` know."""
    return {
        "sessions": [document(entry) for entry in entries],
        "flat": [document(entry) for entry in flat],
    }


def trash(entries: Sequence[TrashEntry]) -> dict[str, list[dict[str, Any]]]:
    """The deleted sessions in the trash."""
    return {"trash": [document(entry) for entry in entries]}


def record(value: Record | WireRecord) -> bytes:
    """One record or event as a line of JSON, with its own bytes unchanged."""
    return b'{"cursor":"%s","record":%s}\n' % (str(value.cursor).encode(), value.raw.strip())


def stream_record(value: StreamRecord) -> bytes:
    """One record of a stream as a line of JSON, with its own bytes unchanged."""
    return b'{"cursor":"%s","key":%s,"by":%s,"record":%s}\n' % (
        str(value.cursor).encode(), _encode(value.key), _encode(value.by), value.data
    )  # fmt: skip


def streams(session: str, found: Sequence[StreamInfo]) -> dict[str, Any]:
    """The streams of a session."""
    return {"session": session, "streams": [document(each) for each in found]}


def reset(value: Reset) -> dict[str, Any]:
    """A rewrite in a subscription."""
    return {"reset": document(value, ("generation", "kept", "why"))}


def hit(session: str, cursor: Position, at: float | None, role: str, line: str) -> dict[str, Any]:
    """A matching line of text; `at` is None if its time is unknown."""
    return {"session": session, "cursor": str(cursor), "at": at, "role": role, "line": line}


def finding(
    session: str | None, file: str, at: str | None, name: str, preview: str
) -> dict[str, Any]:
    """A masked secret with its place and the name of its pattern."""
    return {"session": session, "file": file, "at": at, "name": name, "preview": preview}


def turn(number: int, value: Turn) -> dict[str, Any]:
    """A turn with its number for `fork --turn`."""
    return {"turn": number, **document(value)}


def origin(value: msgspec.Struct | None) -> dict[str, Any] | None:
    """Where a session comes from."""
    return None if value is None else msgspec.to_builtins(value)


def state(session: str, value: "ContextState") -> dict[str, Any]:
    """The context of a session, as a model receives it."""
    return {
        "session": session,
        "head": str(value.head),
        "generation": value.head.generation,
        "system_prompt": value.system_prompt,
        "token_count": value.token_count,
        "token_count_with_pending": value.token_count_with_pending,
        "n_checkpoints": value.n_checkpoints,
        "checkpoints": [{"id": number, "cursor": str(at)} for number, at in value.checkpoints],
        "messages": value.history,
        "damaged": value.damaged,
    }


def usage(session: str, value: "ContextState") -> dict[str, Any]:
    """The token counts of a session."""
    return {
        "session": session,
        "token_count": value.token_count,
        "token_count_with_pending": value.token_count_with_pending,
        "usages": [document(entry) for entry in value.usage_history],
    }


def usages(table: msgspec.Struct, sessions: int, prices: str | None) -> dict[str, Any]:
    """The tokens of some sessions; `prices` is the file with the prices."""
    return {**msgspec.to_builtins(table), "sessions": sessions, "prices": prices}


def description(stat: SessionStat) -> dict[str, Any]:
    """The title, labels and archive mark of a session."""
    return document(stat, ("session", "title", "labels", "archived"))


def mail(session: str, value: Mail | None) -> dict[str, Any]:
    """The pending D-Mail of a session."""
    return {"session": session, "mail": None if value is None else document(value)}


ImportState = Literal["imported", "grown", "rewritten", "there"]
"""What an import did: took a session in, added to it, began it anew, or nothing."""


def imported(stat: SessionStat, folder: Path, damaged: int, state: ImportState) -> dict[str, Any]:
    """A session of an import; `folder` is its source."""
    fields = document(stat, ("session", "head", "bytes"))
    return {**fields, "folder": str(folder), "damaged": damaged, "state": state, "why": None}


def left_out(session: str | None, folder: Path, why: str) -> dict[str, Any]:
    """A session that could not be imported; its id is None if its path is no id."""
    known = {"session": session, "folder": str(folder), "state": "left_out", "why": why}
    return {**known, "head": None, "bytes": None, "damaged": None}


def watched(
    session: str | None, path: str, state: str, file_bytes: int, messages: int
) -> dict[str, Any]:
    """A change of a session that follows the transcript at a path."""
    return {
        "session": session, "path": path, "state": state, "bytes": file_bytes, "messages": messages,
    }  # fmt: skip


def hook(program: str, text: str, place: str) -> dict[str, Any]:
    """The hooks of a program: what belongs into its configuration, and where that is."""
    return {"program": program, "text": text, "place": place}


def deleted(session: str, value: Deleted) -> dict[str, Any]:
    """A deleted session."""
    return {"session": session, **document(value)}


def compacted(session: str, value: Compacted | None, why: str | None = None) -> dict[str, Any]:
    """The result of a compaction, or the reason why there was none."""
    done = None if value is None else value.ack
    return {
        "session": session,
        "compacted": value is not None,
        "why": why,
        "head": done and str(done.head),
        "messages": value and value.messages,
        "tokens": value and value.tokens,
        "checkpoint_id": value and value.checkpoint_id,
        "rotated": done and done.rotated and str(done.rotated),
        "key": done and done.key,
    }


def timeline(session: str, head: str, entries: Sequence[TimelineEntry]) -> dict[str, Any]:
    """The history of a session."""
    return {"session": session, "head": head, "entries": [document(each) for each in entries]}


def checked(value: Verification, path: str | None, program: str | None = None) -> dict[str, Any]:
    """The findings of a check of a session, or of a file or folder that a program wrote."""
    return {**document(value), "path": path, "program": program}


def repaired(
    session: str | None,
    path: str | None,
    findings: Sequence[CheckFinding],
    *,
    applied: bool,
    kept_in: str | None,
    head: str | None,
    program: str | None = None,
) -> dict[str, Any]:
    """The findings of a repair and its result; `head` is that of a session."""
    return {
        "session": session,
        "path": path,
        "program": program,
        "findings": [document(each) for each in findings],
        "applied": applied,
        "kept_in": kept_in,
        "head": head,
    }


def stats(report: StatsReport) -> dict[str, Any]:
    """The counters of the daemon as a whole; `top` has those of the sessions."""
    fields = document(report)
    del fields["sessions"]
    return fields


def document(value: msgspec.Struct, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The document of a value: a key for each of its fields, also those with a default value.

    Positions and paths are text. `stale` and `owner` are there only in a cluster, where they say
    something.

    Args:
        value: a reply of the daemon, or a value of the library.
        names: only these fields.
    """
    if names is None:
        names = [name for name in value.__struct_fields__ if name != _TOLD]
    fields = {name: _plain(getattr(value, name)) for name in names}
    return {name: each for name, each in fields.items() if each or name not in _CLUSTER_FIELDS}


def _plain(value: object) -> Any:
    match value:
        case Position() | Path():
            return str(value)
        case msgspec.Struct():
            return document(value)
        case list() | tuple():
            return [_plain(each) for each in cast("Sequence[object]", value)]
        case _:
            return value


def error_document(error: StenoError) -> dict[str, Any]:
    """The JSON document of an error; `code` is one of the protocol, `unreachable` or `failed`."""
    return {
        "code": _code(error),
        "message": error.message,
        "outcome": str(error.outcome),
        "session": error.session,
        "head": error.head,
        "key": error.key if isinstance(error, OutcomeUnknown) else None,
    }


def _code(error: StenoError) -> str:
    if error.code is not None:
        return str(error.code)
    # No daemon answered, or another party failed, such as the model of a compaction.
    return "unreachable" if isinstance(error, Unreachable | OutcomeUnknown) else "failed"
