"""`python -m support.generate_documents`: the page of the documents of `--json`.

The keys of a document that `steno_present.contract` makes are read off one that is made of an
example of each Struct. The others are written here by the keys that their command prints.
"""

import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from steno import values
from steno_agents.origin import Origin
from steno_agents.usage_table import UsageTable
from steno_backup.mirror import Report
from steno_present import contract
from steno_protocol import replies
from steno_protocol.context import ContextState
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from support.project import PROJECT

COMMAND: Final = "PYTHONPATH=tests python -m support.generate_documents"

PAGE: Final = PROJECT / "client" / "guide" / "reference" / "json.md"

AT: Final = Position(0, 2)

StructT = TypeVar("StructT", bound=msgspec.Struct)


def example(kind: type[StructT], **given: Any) -> StructT:
    """A value of a Struct in which each field has a value, and each list one element."""
    hints = typing.get_type_hints(kind)
    fields = {name: _value(hints[name]) for name in kind.__struct_fields__ if name not in given}
    return kind(**fields, **given)


def _value(hint: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return inner[0]
    if origin in (list, tuple, Sequence):
        return [_value(inner[0])]
    if origin in (dict, Mapping):
        return {f"<{inner[0].__name__}>": _value(inner[1])}
    if inner:
        return _value(next(each for each in inner if each is not NoneType))
    return _of_class(hint)


def _of_class(kind: Any) -> Any:
    if kind is Position:
        return AT
    if kind is Path:
        return Path("file")
    if kind in (int, float, bool, str, bytes):
        return kind()
    return example(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else ""


@dataclass(frozen=True, slots=True)
class Document:
    """One kind of document.

    Attributes:
        name: what this page and the others call it.
        keys: its keys, as text or as a document with these keys.
        commands: the words behind `steno` that print it.
        note: more about it.
    """

    name: str
    keys: str | Mapping[str, Any] | bytes
    commands: Sequence[str] = ()
    note: str = ""


_CONTEXT: Final = ContextState(0)
_CONTEXT.apply_lines([b'{"role":"_checkpoint","id":0}\n', b'{"role":"_usage","token_count":1}\n'])

_ACK: Final = contract.ack("demo", example(values.Ack))
_STAT: Final = contract.document(example(replies.SessionStat))
_MAIL: Final = contract.mail("demo", example(values.Mail))
_CLUSTER: Final = contract.document(example(replies.ClusterReport))
_PROOFS: Final = (
    "proved proofs [{claim holds detail}] root session file agents records repeated killed_pid"
    " next_pid away_s"
)


DOCUMENTS: Final = (
    Document(
        "ack", _ACK,
        ("append", "checkpoint", "revert", "undo", "redo", "clear", "restore", "emit", "usage",
         "prompt"),
        "`append` prints one a line when it reads stdin, `usage` and `prompt` if they write.",
    ),
    Document(
        "sessions", contract.sessions([example(replies.SessionEntry)], []), ("sessions",),
        "`flat` has the same keys, for sessions in kimi-cli's old format; `records` is null if it"
        " is unknown.",
    ),
    Document("trash", contract.trash([example(replies.TrashEntry)]), ("sessions --trash",)),
    Document(
        "record", contract.record(example(values.Record, raw=b"{}")),
        ("read", "tail", "wire", "replay"), "One a line.",
    ),
    Document(
        "stream", contract.stream_record(example(values.StreamRecord, data=b"{}")), ("stream",),
        "`stream SESSION NAME`, one a line; `key` and `by` are null if the line has none.",
    ),
    Document(
        "streams", contract.streams("demo", [example(values.StreamInfo)]), ("stream",),
        "`stream SESSION`.",
    ),
    Document(
        "reset", contract.reset(example(values.Reset)), ("tail -f", "stream -f"),
        "A rewrite; lines from `kept` on follow.",
    ),
    Document(
        "hit", contract.hit("demo", AT, None, "user", ""), ("grep",),
        'One a line; with -l only {"session"}.',
    ),
    Document(
        "turn", contract.turn(0, example(values.Turn)), ("turns",),
        "One a line; `at` is null if it is unknown.",
    ),
    Document("state", {**contract.state("demo", _CONTEXT), "origin": None}, ("show",)),
    Document(
        "origin", contract.origin(example(Origin)) or {}, (),
        "In other documents: unknown keys are null, and so is the origin of a session that comes"
        " from no other program.",
    ),
    Document("usage", contract.usage("demo", _CONTEXT), ("usage",), "Of one session."),
    Document(
        "usages", contract.usages(example(UsageTable), 0, None), ("usage",),
        "Of sessions: names that are not in `by` are null, and so is a cost without a price.",
    ),
    Document("prompt", "session system_prompt", ("prompt",)),
    Document(
        "stat", _STAT, ("info", "open", "fork", "undo"),
        "Of the new session with `fork` and `undo`; `info` has `origin`, too.",
    ),
    Document(
        "description", contract.description(example(replies.SessionStat)),
        ("title", "label", "archive", "unarchive"),
    ),
    Document("mail", _MAIL, ("dmail show",), "`mail` is null if none is pending."),
    Document("sent", {**_ACK, "mail_id": None}, ("dmail send",)),
    Document(
        "delivered", {**_ACK, "mail_id": None, **_MAIL}, ("dmail deliver",),
        "`mail` is null if MAIL_ID was given, and in the answer to a repeat.",
    ),
    Document(
        "deleted", contract.deleted("demo", example(values.Deleted)),
        ("delete", "stream --delete"),
    ),
    Document(
        "moved", contract.document(example(replies.Moved)), ("rename", "undelete"),
        "With the new id.",
    ),
    Document(
        "compacted", contract.compacted("demo", None), ("compact",),
        "With --watch one a line; all but the first three are null if there was nothing to do.",
    ),
    Document(
        "timeline", contract.timeline("demo", "0:2", [example(TimelineEntry)]), ("timeline",)
    ),
    Document(
        "status",
        {**contract.document(example(replies.StatusReport)), "cluster": None}, ("status",),
        "`cluster` is as `cluster status` prints it without sessions, or null.",
    ),
    Document("start", "started version pid root endpoint", ("start", "restart")),
    Document("stop", "stopped pid root", ("stop",)),
    Document("clients", contract.document(example(replies.ClientsReport)), ("clients",)),
    Document("gc", contract.document(example(replies.GcReport)), ("gc",)),
    Document(
        "service", "files [{path state text}] next",
        ("service install", "service uninstall", "service show"),
        "`state` is missing, installed, outdated or foreign.",
    ),
    Document(
        "doctor", "root problems warnings findings [{check state told remedy}]", ("doctor",)
    ),
    Document("cluster", _CLUSTER, ("cluster status",)),
    Document("handed_over", "session moved from to host took_s", ("cluster move",)),
    Document("joined", "joined there left_out [{session why}]", ("cluster join",)),
    Document("files", "files {name: text} folder", ("cluster config",)),
    Document("tried", _PROOFS, ("cluster try",)),
    Document("demo", _PROOFS, ("demo",)),
    Document("stats", contract.stats(example(replies.StatsReport)), ("status --counters",)),
    Document(
        "top",
        "uptime_s span_s records_s bytes_s requests_s syncs {per_s mean_s most_s} errors {code: n}"
        " queued sessions [{session records_s bytes_s queued followers idle_s by}] clients [{name"
        " key pid requests_s follows connected_s dropped}]",
        ("top",),
        "One a line; rates and errors are those of the last span_s; `mean_s` and `most_s` are null"
        " without a sync.",
    ),
    Document("view", "address", ("view",), "When the page can be opened."),
    Document(
        "mcp", "address token", ("mcp --http",),
        "When it serves; `token` is null with --token-file.",
    ),
    Document(
        "config", "file pid options [{name value source live}]", ("config",),
        'Or {"example": text}.',
    ),
    Document("backup", contract.document(example(Report)), ("backup",), "One a round."),
    Document(
        "export",
        "session title labels archived forked_from head generation records [{cursor record}]"
        " events [{cursor record}] streams {name: [{cursor key by record}]} timeline damaged",
        ("export --format json",),
    ),
    Document(
        "exported", "session format path command", ("export -o", "export --install"),
        "`command` goes on with the session; it is null for -o.",
    ),
    Document(
        "imported",
        contract.imported(example(replies.SessionStat), Path("file"), 0, "imported"), ("import",),
        "One a line; `state` is imported, grown, rewritten, there, or left_out: then `why` is the"
        " reason, and unknown keys are null.",
    ),
    Document(
        "watched", contract.watched(None, "", "", 0, 0), ("watch",),
        "One a line; `state` is imported, grown, rewritten, deleted or left_out: then `session` is"
        " null.",
    ),
    Document("hook", contract.hook("", "", ""), ("hooks show",)),
    Document("followed", "session", ("hooks run",), "With --wait: one a line."),
    Document(
        "checked", contract.checked(example(replies.Verification), None), ("verify",),
        "Of `session` and `path` one is null; PROTOCOL.md lists kinds and remedies, and a call"
        " without a result is a note of the kind open_call with the remedy close.",
    ),
    Document(
        "repaired",
        contract.repaired(
            None, None, [example(replies.CheckFinding)], applied=True, kept_in=None, head=None
        ),
        ("repair",),
        "One a line; `findings` are those of the repair, `kept_in` is the new place of the damaged"
        " file, null if it was not replaced.",
    ),
    Document(
        "finding", contract.finding(None, "", None, "", ""), ("redact",),
        "One a line; `session` is null for stdin, `at` for a title or label; with --patterns"
        ' {"name", "source"}.',
    ),
    Document(
        "key", "name right public", ("keys new", "keys list"),
        '`keys new` adds `file` or `token`; `keys list` prints {"clients": [...]}.',
    ),
    Document("revoked", "revoked", ("keys revoke",), "The name."),
    Document("completion", "shell script", ("completion",)),
    Document("help", "help", ("help",), "The text."),
    Document("line", "line", ("logs",), "One a line."),
    Document(
        "error", {"error": contract.error_document(StenoError(""))}, (), "On stderr."
    ),
    Document("note", "note", (), "Other messages on stderr."),
)  # fmt: skip

_IN_CLUSTERS: Final = ("stale", "owner")

_WHOLE: Final = ("record", "messages", "message", "user_input", "details")
"""Keys with what a session holds: its records have no fixed keys."""

INTRODUCTION: Final = """\
Commands print these documents with `--json`, and every key is always present.
Two keys come only in a cluster: `stale`, true in what may be older than what another host has, and `owner` in an entry of `sessions`, the address of the host that owns it.
Positions are text, `generation:line`; times are Unix seconds.
Keys may be added, never removed: see [Stability](../stability.md).
"""  # noqa: E501


def shape(value: object) -> str:
    """The keys of a document, with those of the documents in it.

    >>> shape({"session": "demo", "files": [{"file": "a", "bytes": 1}], "counts": {"<str>": 1}})
    'session files [{file bytes}] counts {…: …}'
    """
    return " ".join(_keys(value)) if isinstance(value, Mapping) else ""


def _keys(document: Mapping[str, Any]) -> Iterator[str]:
    for name, value in document.items():
        if name in _IN_CLUSTERS:
            continue
        yield name
        if name in _WHOLE:
            continue
        match value:
            case dict() if any(key.startswith("<") for key in value):
                yield "{…: …}"
            case dict():
                yield f"{{{shape(value)}}}"
            case [dict() as first, *_]:
                yield f"[{{{shape(first)}}}]"
            case _:
                pass


def page() -> str:
    """The page."""
    rows = [
        f"| `{each.name}` | {_printed_by(each)} | `{keys_of(each)}` | {each.note} |"
        for each in DOCUMENTS
    ]
    return "\n".join(
        [
            f"<!-- Generated from the values that have these keys by: {COMMAND} -->",
            "# The documents of `--json`",
            "",
            INTRODUCTION,
            "| document | printed by | keys | |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def keys_of(document: Document) -> str:
    """The keys of a document, as the page shows them."""
    match document.keys:
        case str():
            return document.keys
        case bytes():
            return shape(json.loads(document.keys))
        case _:
            return shape(document.keys)


def _printed_by(document: Document) -> str:
    return ", ".join(f"`{each}`" for each in document.commands)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
